"""Patience: time that passes only while the machine does something for the one who waits.

A machine that stands still, or on which this process seldom gets to run, uses little of it.
"""

from __future__ import annotations

import time

__all__ = ["Patience"]


class Patience:
    """``seconds`` to wait; ask ``is_over`` at intervals, of which no more than ``interval`` seconds count each."""

    def __init__(self, seconds: float, *, interval: float = 0.05) -> None:
        self.seconds, self.interval = seconds, interval
        self.used = 0.0
        self._last = time.monotonic()

    @property
    def is_over(self) -> bool:
        """Whether the time since the last look uses up what is left."""
        now = time.monotonic()
        self.used += min(now - self._last, self.interval)
        self._last = now
        return self.used > self.seconds
