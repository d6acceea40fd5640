"""Endpoints: who exchanges messages, ranks or whole hosts, and which replicas are whose."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from gcl.core.world import World

__all__ = ["Endpoints"]


@dataclass(frozen=True)
class Endpoints:
    """``owners[replica]`` is the party that has it, in any arrangement; ``names[party]`` is for messages.

    ``carriers``: who of each party is at the other end of messages, where a party is more than one rank.
    """

    me: int
    owners: tuple[int, ...]
    names: tuple[str, ...]
    carriers: tuple[str, ...] = ()

    @classmethod
    def of_ranks(cls, world: World) -> Endpoints:
        """Every rank for itself."""
        return cls(world.rank, tuple(world.owners), tuple(map(world.describe, range(world.ranks))))

    def carrier(self, party: int) -> str:
        """Who is at the other end of messages with ``party``."""
        return (self.carriers or self.names)[party]

    @cached_property
    def rows(self) -> dict[int, int]:
        """Each own replica's place among the own ones."""
        mine = [replica for replica, owner in enumerate(self.owners) if owner == self.me]
        return {replica: row for row, replica in enumerate(mine)}
