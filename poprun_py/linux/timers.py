"""Alarms: calls that are due later, for an event loop."""

from __future__ import annotations

import time
from collections.abc import Callable

__all__ = ["Alarms"]


class Alarms:
    """A handful of deadlines; ``until_next`` says how long a loop may sleep."""

    def __init__(self) -> None:
        self._set: list[tuple[float, Callable[[], None]]] = []

    def set(self, delay: float, call: Callable[[], None]) -> None:
        """Have ``call`` made by the first ``ring`` after ``delay`` seconds; at once when there is none."""
        if delay <= 0:
            call()
        else:
            self._set.append((time.monotonic() + delay, call))

    def until_next(self) -> float | None:
        """Seconds until the next one; None without any."""
        return max(0.0, min(at for at, _ in self._set) - time.monotonic()) if self._set else None

    def ring(self) -> None:
        """Make all calls that are due."""
        now = time.monotonic()
        due = [call for at, call in self._set if at <= now]
        self._set = [(at, call) for at, call in self._set if at > now]
        for call in due:
            call()

    def clear(self) -> None:
        self._set.clear()
