"""DependencyThreads: threads whose tasks wait for tasks of other threads, by tokens.

    thread 0   a   b   c        each thread runs its tasks in order
                   |
    thread 1   e   '-> d        b sends a token to thread 1, where d waits for it

A thread that fails, or a caller that is interrupted, sends all others a token that ends them at their next wait.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from queue import SimpleQueue

import numpy as np

from gcl.kernels.atomics import fetch_add, has_reached, load_acquire, pause, store_release
from gcl.kernels.jit import bare
from gcl.kernels.system_calls import sched_getcpu
from ipu_emu.engine.calls.wall_time import Timer, WallCategory
from ipu_emu.engine.threads.worker_threads import Workers
from ipu_emu.ops import Call

_LOOKS = 2000  # about 40 us
_SENT, _CORE = 0, 4  # offsets in the line of a queue: the number of tokens sent, and the core of the last sender
_LINE = 128  # bytes: two cache lines, because processors prefetch lines in pairs


class TokenQueue:
    """A queue with any number of senders and one receiver.

    Args:
        looks: whether the senders and the receiver have separate cores, so that the receiver may spin before it
        sleeps.

    Waking a sleeping thread takes 50 us or more on an idle machine, as long as a micro-batch of a small stage, and
    Linux tends to wake it on the core of the waking thread, where it has to wait until that thread sleeps.
    """

    def __init__(self, *, looks: bool) -> None:
        self._looks = looks
        self._queue: SimpleQueue[bool] = SimpleQueue()
        self._line = np.zeros(_LINE // 4, np.int32)
        self._line[_CORE // 4] = -1
        self._address = self._line.ctypes.data
        self._received = 0

    def put(self, token: bool) -> None:
        """Send ``token``, also from several threads at once."""
        self._queue.put(token)
        if self._looks:
            _sent(self._address)

    def get(self) -> bool:
        """The next token."""
        self._received += 1
        if self._looks and self._queue.empty():
            _look(self._address, self._received, _LOOKS)
        return self._queue.get()


@bare
def _sent(line: int) -> None:
    store_release(line + _CORE, sched_getcpu())
    fetch_add(line + _SENT, np.int32(1))


@bare
def _look(line: int, wanted: int, looks: int) -> None:
    """Spin until ``wanted`` tokens have been sent, or for a while; not at all if the sender shares the core."""
    if load_acquire(line + _CORE) == sched_getcpu():
        return
    for _ in range(looks):
        if has_reached(line + _SENT, wanted):
            return
        pause()


@dataclass(frozen=True)
class Dependency:
    """The threads for which a task waits, and those that wait for it, with one token each."""

    waits: tuple[int, ...]
    signals: tuple[int, ...]


def dependencies(threads: Sequence[int], needs: Sequence[set[int]]) -> list[Dependency]:
    """The tokens of tasks, given the thread of each and the numbers of the earlier tasks that it needs.

    A thread waits once for the last task that it needs from another thread, never for one before a task for which it
    has waited already.
    """
    waits: list[list[int]] = [[] for _ in threads]
    signals: list[list[int]] = [[] for _ in threads]
    seen: dict[tuple[int, int], int] = {}
    for number, (thread, needed) in enumerate(zip(threads, needs, strict=True)):
        latest = {threads[task]: task for task in sorted(needed)}
        for other, task in latest.items():
            if other != thread and task > seen.get((other, thread), -1):
                seen[other, thread] = task
                waits[number].append(other)
                signals[task].append(thread)
    return [Dependency(tuple(a), tuple(b)) for a, b in zip(waits, signals, strict=True)]


@dataclass(frozen=True)
class ThreadTask:
    """The tasks that a thread runs between two waits."""

    call: Call
    category: WallCategory
    dependency: Dependency


class _Tokens:
    """The queues of one run."""

    def __init__(self, threads: Sequence[Sequence[ThreadTask]]) -> None:
        self.over = False
        caller = len(threads) - 1  # has no core of its own
        self.queues = {
            (other, thread): TokenQueue(looks=caller not in (other, thread))
            for thread, tasks in enumerate(threads)
            for other in {other for task in tasks for other in task.dependency.waits}
        }

    def wait(self, thread: int, task: ThreadTask) -> None:
        """Wait until ``thread`` may begin ``task``, or the run is over."""
        for other in task.dependency.waits:
            token = self.queues[other, thread].get()
            self.over = not token or self.over

    def signal(self, thread: int, task: ThreadTask) -> None:
        for other in task.dependency.signals:
            self.queues[thread, other].put(True)

    def stop(self) -> None:
        """End all threads before their next task."""
        self.over = True
        for queue in self.queues.values():
            queue.put(False)

    def run(self, thread: int, tasks: Sequence[ThreadTask]) -> None:
        """The tasks of a thread."""
        try:
            for task in tasks:
                self.wait(thread, task)
                if self.over:
                    return
                task.call()
                self.signal(thread, task)
        except BaseException:
            self.stop()
            raise


class DependencyThreads:
    """The tasks of worker threads, and last those of the caller's thread."""

    def __init__(self, threads: Sequence[Sequence[ThreadTask]]) -> None:
        self.threads = threads

    def run(self, workers: Workers, timer: Timer) -> None:
        """Run all tasks, or raise the error of the first that failed; ``timer`` runs the caller's calls."""
        tokens = _Tokens(self.threads)
        parts = [partial(tokens.run, thread, tasks) for thread, tasks in enumerate(self.threads[:-1])]
        try:
            workers.start(parts, give_up=tokens.stop)
            for step, category in self._own(tokens):
                timer(category, step)
        except BaseException:
            tokens.stop()
            raise
        finally:
            timer(WallCategory.COMPUTE, workers.wait)

    def _own(self, tokens: _Tokens) -> Iterator[tuple[Call, WallCategory]]:
        thread = len(self.threads) - 1
        for task in self.threads[thread]:
            yield partial(tokens.wait, thread, task), WallCategory.COMPUTE
            if tokens.over:
                return
            yield task.call, task.category
            tokens.signal(thread, task)
