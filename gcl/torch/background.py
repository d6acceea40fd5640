"""Background: collectives that a program begins and waits for later, in a thread of the process group.

Where each rank has a second core, a collective runs while the program computes. Elsewhere its copies would take turns
with the backward pass, which costs more than they could hide: there it starts as soon as the program waits for it, or
other ranks do and so leave a core free.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from threading import Event, get_native_id

from gcl.core.handle import Handle, Runner

__all__ = ["Background"]

#: Seconds between looks whether anybody waits: first, factor, at most.
_FIRST_NAP, _GROWTH, _NAP = 5e-5, 1.5, 4e-3
#: Seconds after which a collective starts in any case, such as where all ranks only ask again and again.
_LONGEST = 0.5


class Background:
    """Runs collectives in the order in which they were begun.

    ``has_core`` says whether a core is free for them, ``is_awaited`` whether another rank waits for this one.
    """

    def __init__(self, has_core: Callable[[], bool], is_awaited: Callable[[], bool]) -> None:
        self._has_core, self._is_awaited = has_core, is_awaited
        self._runner: Runner | None = None
        self._begun = 0
        self._wanted, self._news = 0, Event()

    def begin(self, collective: Callable[[], None]) -> Callable[[float | None], bool]:
        """Run ``collective`` after all that were begun earlier; what is returned waits for it at most so long."""
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
        """Wait for all that were begun."""
        if self._runner is not None:
            self._want(self._begun)
            self._runner.drain()

    def stop(self) -> None:
        """End the thread after what was begun."""
        if self._runner is not None:
            self._want(self._begun)
            self._runner.stop()
            self._runner = None

    def _want(self, number: int) -> None:
        """Let all collectives up to ``number`` start."""
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
    """A thread of this process, of which others ask whether it sleeps, such as in the wait of a future."""

    def __init__(self, number: int) -> None:
        self._status = f"/proc/self/task/{number}/stat"
        self._clock = ~number << 3 | 6  # Linux's number of the clock of its processor time
        self._used = -1.0

    @classmethod
    def own(cls) -> _Thread:
        """The calling thread."""
        return cls(get_native_id())

    def sleeps(self) -> bool:
        """Whether it has not run since the last time that this was asked, and waits for something, or has ended."""
        try:
            used = time.clock_gettime(self._clock)
            if used != self._used:
                self._used = used
                return False
            with open(self._status, "rb", buffering=0) as file:
                return file.read(512).rpartition(b")")[2].split()[0] != b"R"
        except OSError:
            return True
