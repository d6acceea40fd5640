"""DelayedReports: reports the activity of a command or session, if it takes more than two seconds.

with DelayedReports() as report:
    report("compiling")           printed after two seconds, if it still runs
    report("trying --recompute")  printed at once, if two seconds have passed
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from threading import Timer
from time import monotonic

_SECONDS = 2.0


def _to_stderr(text: str) -> None:
    print(f"... {text}", file=sys.stderr, flush=True)


class DelayedReports:
    """Calls ``write`` with the current activity, starting ``seconds`` after the object was created."""

    def __init__(self, write: Callable[[str], None] = _to_stderr, *, seconds: float = _SECONDS) -> None:
        self._write, self._start = write, monotonic() + seconds
        self._timer: Timer | None = None

    def __call__(self, text: str) -> None:
        """Report that the activity ``text`` begins."""
        self._cancel()
        left = self._start - monotonic()
        if left <= 0:
            self._write(text)
            return
        self._timer = Timer(left, self._write, [text])
        self._timer.daemon = True
        self._timer.start()

    def __enter__(self) -> DelayedReports:
        return self

    def __exit__(self, *error: object) -> None:
        self._cancel()

    def _cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
