"""Event sources: signals and timers in the form that an event loop waits for."""

from __future__ import annotations

import heapq
import os
import signal
import time
from collections.abc import Callable, Iterable


class SignalPipe:
    """A pipe that becomes readable when one of the signals ``numbers`` arrives; main thread only.

    Signals that this process was started to ignore stay ignored, except SIGCHLD.
    """

    def __init__(self, numbers: Iterable[int]) -> None:
        self._reader, self._writer = os.pipe()
        os.set_blocking(self._reader, False)
        os.set_blocking(self._writer, False)
        signal.set_wakeup_fd(self._writer, warn_on_full_buffer=False)
        for number in numbers:
            if signal.getsignal(number) is not signal.SIG_IGN or number == signal.SIGCHLD:
                signal.signal(number, lambda *_: None)

    def fileno(self) -> int:
        return self._reader

    def wake(self) -> None:
        """Make the pipe readable without a signal; may be called from any thread."""
        try:
            os.write(self._writer, b"\0")
        except BlockingIOError:
            return  # it is readable already

    def read(self) -> set[int]:
        """Return the signals that have arrived since the last call."""
        try:
            return set(os.read(self._reader, 4096)) - {0}
        except BlockingIOError:
            return set()


class Timers:
    """A few calls to be made later; ``until_next`` is how long the event loop may sleep."""

    def __init__(self) -> None:
        self._pending: list[tuple[float, int, Callable[[], None]]] = []  # a heap, by time and then by number
        self._number = 0

    def call_later(self, delay: float, call: Callable[[], None]) -> None:
        """Make ``call`` in the first ``run_due`` after ``delay`` seconds; immediately if ``delay`` is 0 or less."""
        if delay <= 0:
            call()
        else:
            self._number += 1
            heapq.heappush(self._pending, (time.monotonic() + delay, self._number, call))

    def until_next(self) -> float | None:
        """Return the seconds until the next call is due; None if none is pending."""
        return max(0.0, self._pending[0][0] - time.monotonic()) if self._pending else None

    def run_due(self) -> None:
        """Make every call that is due."""
        now = time.monotonic()
        due = []
        while self._pending and self._pending[0][0] <= now:
            due.append(heapq.heappop(self._pending)[-1])
        for call in due:
            call()
