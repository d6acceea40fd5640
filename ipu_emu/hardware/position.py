"""Position: the place of an IPU: its machine, row and rail, its IPU-Link domain, and its link ports.

machine m, seen from the front        rungs join 0-1 and 2-3, rails 0-2 and 1-3
  row 2m + 1    4m + 2 === 4m + 3
                  |          |        rail 0 on the left, rail 1 on the right
  row 2m        4m     === 4m + 1
"""

from __future__ import annotations

from dataclasses import dataclass

IPUS_PER_MACHINE = 4

#: Link controllers by the link they serve; the assignment of the two names to the ends of a rail is not published.
RUNG_PORTS = ("2A", "2B", "2C", "3A", "3B", "3C")
RAIL_PORTS = (("0B", "0C"), ("1B", "1C"))
#: Link controllers to the machines above and below, by rail.
FREE_PORTS = (("1B", "1C"), ("0B", "0C"))


@dataclass(frozen=True)
class Position:
    """The place of IPU number ``ipu`` in a system whose IPU-Link domains have ``domain_size`` IPUs."""

    ipu: int
    domain_size: int

    @property
    def machine(self) -> int:
        """Index of the IPU-Machine."""
        return self.ipu // IPUS_PER_MACHINE

    @property
    def place(self) -> int:
        """0 bottom left, 1 bottom right, 2 top left, 3 top right in its machine."""
        return self.ipu % IPUS_PER_MACHINE

    @property
    def row(self) -> int:
        """Row of the ladder."""
        return self.ipu // 2

    @property
    def rail(self) -> int:
        """Side of the ladder, 0 or 1."""
        return self.ipu % 2

    @property
    def domain(self) -> int:
        """Index of the IPU-Link domain."""
        return self.ipu // self.domain_size

    @property
    def rung_partner(self) -> int:
        """The IPU at the other end of the rung."""
        return self.ipu ^ 1

    @property
    def rail_neighbours(self) -> tuple[int, ...]:
        """The IPUs below and above in the same domain, on a ladder without loop-back cables."""
        first = self.domain * self.domain_size
        near = (self.ipu - 2, self.ipu + 2)
        return tuple(ipu for ipu in near if first <= ipu < first + self.domain_size)

    @property
    def ports(self) -> dict[str, tuple[str, ...]]:
        """Link controllers of an IPU of an IPU-Machine, by the link they serve."""
        return {"rung": RUNG_PORTS, "rail": RAIL_PORTS[self.rail], "other machines": FREE_PORTS[self.rail]}

    def hops(self, other: Position) -> int:
        """Links between two IPUs of one ladder."""
        return abs(self.row - other.row) + (self.rail != other.rail)
