"""Host clocks: when something happened on another host, by the clock of the launcher.

Each host counts its monotonic seconds from its own start. A message that says when it was sent is received later by
what its way takes: the least difference of all messages of a host is closest to the difference of the clocks.
"""

from __future__ import annotations

__all__ = ["HostClocks"]


class HostClocks:
    """The seconds that the launcher's clock is ahead of those of the hosts."""

    def __init__(self) -> None:
        self._differences: dict[str, float] = {}

    def hear(self, host: str, sent: float, received: float) -> None:
        """Take note of a message that ``host`` sent at ``sent``, by its clock, and that came at ``received``."""
        self._differences[host] = min(received - sent, self._differences.get(host, received - sent))

    def difference(self, host: str) -> float:
        """Return what to add to a time of ``host``: too much by what its quickest message took."""
        return self._differences.get(host, 0.0)
