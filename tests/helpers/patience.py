"""Patience: a time-out that only counts time in which this process gets to run.

A stopped or overloaded machine uses little of it.
"""

from __future__ import annotations

import time

__all__ = ["Patience"]


class Patience:
    """A time-out of ``seconds``; between two polls of ``is_over`` at most ``interval`` seconds count."""

    def __init__(self, seconds: float, *, interval: float = 0.05) -> None:
        self.seconds, self.interval = seconds, interval
        self.used = 0.0
        self._last = time.monotonic()

    @property
    def is_over(self) -> bool:
        """Whether the time-out is over, after the time since the last poll."""
        now = time.monotonic()
        self.used += min(now - self._last, self.interval)
        self._last = now
        return self.used > self.seconds
