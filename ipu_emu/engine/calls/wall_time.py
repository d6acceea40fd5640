"""Wall: measured time of a session, by kind of work."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from time import perf_counter_ns

__all__ = ["Kind", "Wall"]


class Kind(Enum):
    """What the time was spent on; ``OTHER`` is the engine itself."""

    COMPUTE = "compute"
    COLLECTIVES = "collectives"
    HOST_IO = "host I/O"
    OTHER = "other"


@dataclass
class Wall:
    """Nanoseconds of wall time since the engine was made."""

    nanoseconds: dict[Kind, int] = field(default_factory=lambda: dict.fromkeys(Kind, 0))
    total: int = 0

    def timed(self, kind: Kind, call: Callable[[], object]) -> None:
        """Make a call and add its time."""
        start = perf_counter_ns()
        try:
            call()
        finally:
            self.nanoseconds[kind] += perf_counter_ns() - start

    def seconds(self) -> dict[str, float]:
        """Seconds by kind of work, and their ``total``; what no instruction accounts for is ``other``."""
        known = sum(self.nanoseconds.values())
        parts = self.nanoseconds | {Kind.OTHER: max(self.total - known, 0)}
        return {kind.value: spent / 1e9 for kind, spent in parts.items()} | {"total": self.total / 1e9}
