"""Host clocks: converts times of other hosts to the clock of the launcher.

Each host counts its monotonic seconds from its own start. A message with the time at which it was sent is received
later by its latency: the least difference of all messages of a host is closest to the difference of the clocks.
"""

from __future__ import annotations

__all__ = ["HostClocks"]


class HostClocks:
    """The seconds by which the launcher's clock is ahead of each host's."""

    def __init__(self) -> None:
        self._differences: dict[str, float] = {}

    def hear(self, host: str, sent: float, received: float) -> None:
        """Record a message that ``host`` sent at ``sent``, by its clock, and that was received at ``received``."""
        self._differences[host] = min(received - sent, self._differences.get(host, received - sent))

    def difference(self, host: str) -> float:
        """Return the seconds to add to a time of ``host``; they exceed the true difference by the least latency."""
        return self._differences.get(host, 0.0)
