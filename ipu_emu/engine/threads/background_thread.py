"""Aside: a thread beside that of the caller, which does jobs in their order, urgent ones first."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from threading import Condition, Thread
from weakref import finalize

import numpy as np

from ipu_emu.ops import Call

__all__ = ["Aside", "Job"]


@dataclass(eq=False)
class Job:
    """A call, and whether it has been made, or given up."""

    call: Call
    done: bool = False


class _Shared:
    """What the thread and its owner share; the thread holds nothing else, so that the owner can be collected."""

    def __init__(self) -> None:
        self.changed = Condition()
        self.urgent: deque[Job] = deque()
        self.patient: deque[Job] = deque()
        self.running: Job | None = None
        self.error: BaseException | None = None
        self.ended = False

    @property
    def idle(self) -> bool:
        return self.running is None and not self.urgent and not self.patient


class Aside:
    """One caller puts jobs and waits for them; a job that fails takes all that come after it with it."""

    def __init__(self, name: str) -> None:
        self._shared = shared = _Shared()
        self._thread = Thread(target=_work, args=(shared,), name=name, daemon=True)
        self._thread.start()
        self._stop = finalize(self, _stop, shared)

    def put(self, call: Call, *, urgent: bool = False) -> Job:
        """Let the thread make ``call``."""
        job = Job(call)
        with self._shared.changed:
            (self._shared.urgent if urgent else self._shared.patient).append(job)
            self._shared.changed.notify_all()
        return job

    def wait(self, jobs: Iterable[Job]) -> None:
        """Wait for ``jobs``; raise the error of the first job that failed."""
        shared = self._shared
        with shared.changed:
            wanted = list(jobs)
            shared.changed.wait_for(lambda: all(job.done for job in wanted))
            self._raise()

    def drain(self) -> None:
        """Wait until nothing is left to do; raise the error of the first job that failed."""
        with self._shared.changed:
            self._shared.changed.wait_for(lambda: self._shared.idle)
            self._raise()

    def settle(self) -> None:
        """Give up what has not begun, wait for what has, whatever interrupts, and forget errors."""
        shared = self._shared
        with shared.changed:
            _give_up(shared)
            shared.changed.wait_for(lambda: shared.idle)
            shared.error = None

    def _raise(self) -> None:
        error, self._shared.error = self._shared.error, None
        if error is not None:
            raise error

    def close(self) -> None:
        """End the thread."""
        self._stop()
        self._thread.join()


def _work(shared: _Shared) -> None:
    """The life of the thread. numpy keeps its error state per thread: what the caller has set does not reach it."""
    np.seterr(all="ignore")
    while True:
        with shared.changed:
            shared.changed.wait_for(lambda: shared.urgent or shared.patient or shared.ended)
            if shared.ended:
                return
            job = shared.running = (shared.urgent or shared.patient).popleft()
        error: BaseException | None = None
        try:
            job.call()
        except BaseException as raised:
            error = raised
        with shared.changed:
            job.done, shared.running = True, None
            if error is not None:
                shared.error = shared.error or error
                _give_up(shared)
            shared.changed.notify_all()
        del job, error


def _give_up(shared: _Shared) -> None:
    for jobs in (shared.urgent, shared.patient):
        for job in jobs:
            job.done = True
        jobs.clear()


def _stop(shared: _Shared) -> None:
    with shared.changed:
        shared.ended = True
        shared.changed.notify_all()
