"""Wall: measured time of a session, by category of work."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from time import perf_counter_ns


class WallCategory(Enum):
    """The kind of work that time was spent on; ``OTHER`` is the engine itself."""

    COMPUTE = "compute"
    COLLECTIVES = "collectives"
    HOST_IO = "host I/O"
    OTHER = "other"


#: Runs a call and adds its time to a category.
Timer = Callable[[WallCategory, Callable[[], object]], None]


@dataclass
class Wall:
    """Wall time since the engine was created, in nanoseconds by category."""

    nanoseconds: dict[WallCategory, int] = field(default_factory=lambda: dict.fromkeys(WallCategory, 0))
    total: int = 0

    def timed(self, category: WallCategory, call: Callable[[], object]) -> None:
        """Run a call and add its time to a category."""
        start = perf_counter_ns()
        try:
            call()
        finally:
            self.nanoseconds[category] += perf_counter_ns() - start

    def seconds(self) -> dict[str, float]:
        """Seconds by category of work, and their ``total``; time outside all instructions is ``other``."""
        known = sum(self.nanoseconds.values())
        parts = self.nanoseconds | {WallCategory.OTHER: max(self.total - known, 0)}
        return {category.value: spent / 1e9 for category, spent in parts.items()} | {"total": self.total / 1e9}
