"""Workers: threads that run replicas, and the IPUs of a pipeline, at the same time.

Kernels release the GIL, so each thread uses a CPU. Speed-up of two threads over one for two replicas of a
convolutional network on two CPUs (median and best of 40 rounds on a shared machine):

    MFLOP per micro-batch    2      13     52     208    832
    median                   0.66   0.83   0.97   1.5    1.6
    best                     0.78   0.91   1.1    1.7    1.9

The two IPUs of a pipeline wait for each other less often than replicas. For layers of equal work, with 64 rows:

    MFLOP per IPU            3      13     50
    best                     0.72   0.86   1.3
"""

from __future__ import annotations

from collections.abc import Sequence
from queue import SimpleQueue
from threading import Thread
from weakref import finalize

import numpy as np

from ipu_emu.ops import Call
from ipu_emu.ops.core.op_definition import call_chain

#: The number of floating-point operations of a micro-batch below which threads cost more than they save.
WORTH_A_THREAD = 150_000_000
#: The fraction of that number from which threads are used for the IPUs of a pipeline.
PART_IN_PIPELINES = 0.2

_Done = SimpleQueue[BaseException | None]
_Jobs = SimpleQueue[tuple[Call, _Done] | None]


class Workers:
    """``count`` threads; with one, everything runs in the caller's thread. Part n always runs on the same thread.

    With ``background`` even a single thread is not the caller's: ``start`` returns immediately.
    """

    def __init__(self, count: int, *, background: bool = False) -> None:
        self.count = count
        self._give_up: Call = _nothing
        self._running: list[_Done] = []
        self._jobs: list[_Jobs] = [SimpleQueue() for _ in range(count if count > 1 or background else 0)]
        name = "host-io" if background else "ipu"
        self._threads = [
            Thread(target=_work, args=(jobs,), name=f"{name}-{number}", daemon=True)
            for number, jobs in enumerate(self._jobs)
        ]
        for thread in self._threads:
            thread.start()
        self._stop = finalize(self, _stop, self._jobs)

    @property
    def busy(self) -> bool:
        """Whether ``start`` was called and ``wait`` was not yet."""
        return bool(self._running)

    def run(self, parts: Sequence[Call]) -> None:
        """Run all ``parts`` and wait for them; the error of the first that failed is raised."""
        if not self._jobs or len(parts) == 1:
            for part in parts:
                part()
            return
        self.start(parts)
        self.wait()

    def start(self, parts: Sequence[Call], *, give_up: Call | None = None) -> None:
        """Start ``parts``, adjacent ones on the same thread; ``wait`` must follow.

        ``give_up`` ends parts that wait for each other, if the caller is interrupted.
        """
        self._give_up = give_up or _nothing
        share = -(-len(parts) // self.count)
        try:
            for number, first in enumerate(range(0, len(parts), share)):
                done: _Done = SimpleQueue()
                self._jobs[number].put((call_chain(*parts[first : first + share]), done))
                self._running.append(done)
        except BaseException:
            self._settle()
            raise

    def wait(self) -> None:
        """Wait until no part runs, even if interrupted; raise the error of the first part that failed."""
        try:
            ended = [done.get() for done in self._running]
        except BaseException:
            self._settle()
            raise
        self._running = []
        failed = next((error for error in ended if error is not None), None)
        if failed is not None:
            raise failed

    def _settle(self) -> None:
        """Wait until no part runs.

        An interrupt may arrive after a result was taken and before it was stored, so results cannot be counted. But
        every thread works in order: once it has run an empty part, it has run all earlier parts.
        """
        self._give_up()
        self._running = []
        done: list[_Done] = [SimpleQueue() for _ in self._jobs]
        for jobs, answer in zip(self._jobs, done, strict=True):
            jobs.put((call_chain(), answer))
        for answer in done:
            answer.get()

    def close(self) -> None:
        """End the threads."""
        self._stop()
        for thread in self._threads:
            thread.join()


def _nothing() -> None:
    """The default for ``give_up``: parts that do not wait for each other end by themselves."""


def _work(jobs: _Jobs) -> None:
    """The loop of a thread; it sets numpy's error state, which is per thread and not inherited from the caller."""
    np.seterr(all="ignore")
    while (job := jobs.get()) is not None:
        step, done = job
        error: BaseException | None = None
        try:
            step()
        except BaseException as raised:
            error = raised
        done.put(error)
        del job, step, done, error


def _stop(jobs: Sequence[_Jobs]) -> None:
    for queue in jobs:
        queue.put(None)
