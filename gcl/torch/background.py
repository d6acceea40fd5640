"""Background: runs collectives for which a program waits later, in a thread of the process group.

If each rank has a second core, a collective runs while the program computes. Otherwise its copies would compete with
the backward pass, which costs more than overlap gains: then it starts as soon as the program waits for it, or other
ranks wait for it and so leave a core free.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from threading import Event, current_thread, get_native_id

from gcl.core.handle import Handle, Runner

#: Seconds between checks whether anybody waits: first, factor, maximum.
_FIRST_NAP, _GROWTH, _NAP = 5e-5, 1.5, 4e-3
#: Seconds after which a collective starts in any case, for example if all ranks only poll.
_LONGEST = 0.5


class Background:
    """Runs collectives in the order in which they were begun.

    ``has_core``: whether a core is free for them; ``is_awaited``: whether another rank waits for this one.
    """

    def __init__(self, has_core: Callable[[], bool], is_awaited: Callable[[], bool]) -> None:
        self._has_core, self._is_awaited = has_core, is_awaited
        self._runner: Runner | None = None
        self._begun = 0
        self._wanted, self._news = 0, Event()

    @property
    def is_current(self) -> bool:
        """Whether the caller is its thread: a callback of the future of a collective."""
        return self._runner is not None and self._runner.thread is current_thread()

    def begin(self, collective: Callable[[], None]) -> Callable[[float | None], bool]:
        """Run ``collective`` after all that were begun earlier; return a function that waits for it."""
        if self._runner is None or not self._runner.works:
            self._runner = Runner()
        self._begun += 1
        number, program = self._begun, _Thread.own()

        def run() -> None:
            self._hold(number, program)
            collective()

        handle: Handle[None] = self._runner.begin(collective if self._has_core() else run)

        def wait(seconds: float | None) -> bool:
            self._want(number)
            return handle.settled.wait(seconds)

        return wait

    def drain(self) -> None:
        """Wait for all collectives that were begun."""
        if self._runner is not None:
            self._want(self._begun)
            self._runner.drain()

    def stop(self) -> None:
        """End the thread after the collectives that were begun."""
        if self._runner is not None:
            self._want(self._begun)
            self._runner.stop()
            self._runner = None

    def _want(self, number: int) -> None:
        """Allow all collectives up to ``number`` to start."""
        if number > self._wanted:
            self._wanted = number
            self._news.set()

    def _hold(self, number: int, program: _Thread) -> None:
        """Sleep until a rank waits for collective ``number``, which the thread ``program`` has begun."""
        nap, end = _FIRST_NAP, time.monotonic() + _LONGEST
        while number > self._wanted and not self._is_awaited() and time.monotonic() < end:
            self._news.clear()
            if number > self._wanted:
                self._news.wait(nap)
            if program.sleeps():
                return
            nap = min(_NAP, nap * _GROWTH)


class _Thread:
    """A thread of this process that others can test for sleeping, for example in the wait of a future."""

    def __init__(self, number: int) -> None:
        self._status = f"/proc/self/task/{number}/stat"
        self._clock = ~number << 3 | 6  # the id of the clock of its processor time on Linux
        self._used = -1.0

    @classmethod
    def own(cls) -> _Thread:
        """The calling thread."""
        return cls(get_native_id())

    def sleeps(self) -> bool:
        """Whether it is waiting and has not run since the last call of this method, or has ended."""
        try:
            used = time.clock_gettime(self._clock)
            if used != self._used:
                self._used = used
                return False
            with open(self._status, "rb", buffering=0) as file:
                return file.read(512).rpartition(b")")[2].split()[0] != b"R"
        except OSError:
            return True
