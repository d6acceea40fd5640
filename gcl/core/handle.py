"""Handle: a collective that runs in the background; a Runner runs them one after the other in a thread."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable
from queue import SimpleQueue
from threading import Event, Thread, current_thread
from typing import Generic, TypeVar, cast

from gcl.core.argument_checks import check_seconds
from gcl.errors import CollectiveTimeout

T = TypeVar("T")


class Handle(Generic[T]):
    """The pending result of a collective; do not use its tensors before ``wait`` returns."""

    def __init__(self, collective: Callable[[], T]) -> None:
        self._collective = collective
        #: the thread that runs it, once it is queued
        self.thread: Thread | None = None
        #: set once there is a result or an error
        self.settled = Event()
        self._result: T | None = None
        self._error: BaseException | None = None

    @property
    def done(self) -> bool:
        """Whether ``wait`` would return, or raise, without waiting."""
        return self.settled.is_set()

    def wait(self, timeout: float | None = None) -> T:
        """Wait for the result; raise the error of the collective, or CollectiveTimeout after ``timeout`` seconds.

        A time-out does not end the collective: ``wait`` can be called again. ``timeout`` 0 does not wait.
        """
        if timeout is not None:
            check_seconds(timeout, "timeout", zero=True)
        if not self.settled.wait(timeout):
            raise CollectiveTimeout(
                f"the collective was not complete after {timeout:g} s; wait again, or check the other ranks"
            )
        if self._error is not None:
            raise self._error
        return cast(T, self._result)

    def run(self) -> None:
        """Run the collective in the current thread, that of the runner."""
        try:
            self._result = self._collective()
        except BaseException as error:
            self._error = error
        self.settled.set()


class Runner:
    """A daemon thread that runs collectives in the order in which they were begun."""

    def __init__(self) -> None:
        self._queue: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._last = Event()
        self._last.set()
        self._process = os.getpid()
        self.thread = Thread(target=work, args=(self._queue,), name="gcl-runner", daemon=True)
        self.thread.start()
        weakref.finalize(self, self._queue.put, None)

    @property
    def works(self) -> bool:
        """Whether its thread exists: not in a forked child process."""
        return self._process == os.getpid()

    def begin(self, collective: Callable[[], T]) -> Handle[T]:
        """Run ``collective`` after all that were begun earlier."""
        handle: Handle[T] = Handle(collective)
        handle.thread = self.thread
        self._last = handle.settled
        self._queue.put(handle.run)
        return handle

    def drain(self) -> None:
        """Wait for all collectives that were begun; return at once in the runner's own thread."""
        if not self._last.is_set() and self.works and current_thread() is not self.thread:
            self._last.wait()

    def stop(self) -> None:
        """End the thread after the collectives that were begun."""
        self._queue.put(None)


def work(queue: SimpleQueue[Callable[[], None] | None]) -> None:
    """Run what is put into ``queue`` until that is None: the main function of a Runner's thread."""
    while (collective := queue.get()) is not None:
        collective()
        del collective  # an idle thread keeps nothing alive
