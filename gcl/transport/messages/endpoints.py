"""Endpoints: the parties that exchange messages (ranks or whole hosts), and the replicas that each of them owns.

A ``GroupView`` is a replica group divided among the parties: the members of each, and the subtrees it can combine
alone.

    index    0   1   2   3   4   5        party 0: indices 0 1 2 3, one subtree of 4
    party    0   0   0   0   1   1        party 1: indices 4 5, one subtree of 2

    party    0   1   0   1   0   1        no party has adjacent replicas: every leaf is sent separately
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from gcl.core.world import World
from gcl.kernels.dtypes import sum_dtype
from gcl.reduce.reduction import Subtree, subtrees

_LINE = 64  # bytes; stripes begin on one


class Stripe(NamedTuple):
    """The part of a tensor that a rank sends: its position among the ``number`` ranks that send to other hosts."""

    position: int
    number: int


@dataclass(frozen=True)
class Endpoints:
    """``owners[replica]`` is the party that owns it, whatever the order; ``names[party]`` is for error messages.

    ``contacts``: the rank of each party with which this one exchanges messages, if parties have several ranks.
    """

    me: int
    owners: tuple[int, ...]
    names: tuple[str, ...]
    contacts: tuple[str, ...] = ()

    @classmethod
    def of_ranks(cls, world: World) -> Endpoints:
        """One party per rank."""
        return cls(world.rank, tuple(world.owners), tuple(map(world.describe, range(world.ranks))))

    def contact(self, party: int) -> str:
        """Name of the rank that sends and receives the messages of ``party``."""
        return (self.contacts or self.names)[party]

    @cached_property
    def rows(self) -> dict[int, int]:
        """Row of each replica of this party: its place among them."""
        mine = [replica for replica, owner in enumerate(self.owners) if owner == self.me]
        return {replica: row for row, replica in enumerate(mine)}


class GroupView:
    """The group of replicas ``members``; parties are in ascending order."""

    def __init__(self, members: list[int], endpoints: Endpoints) -> None:
        owners = [endpoints.owners[replica] for replica in members]
        self.me = endpoints.me
        self.size = len(members)
        #: party of each index
        self.owners = owners
        #: party -> indices of its replicas
        self.indices = {party: [i for i, p in enumerate(owners) if p == party] for party in sorted(set(owners))}
        #: party -> its subtrees
        self.subtrees = {party: _subtrees(indices) for party, indices in self.indices.items()}
        #: rows of this party's replicas, in the order of their indices
        self.rows = [endpoints.rows[replica] for replica in members if endpoints.owners[replica] == endpoints.me]
        self.others = [party for party in self.indices if party != endpoints.me]
        self._row_of = dict(zip(self.indices.get(endpoints.me, []), self.rows, strict=True))

    def rows_of(self, subtree: Subtree) -> list[int]:
        """Rows of the leaves of a subtree of this party."""
        return [self._row_of[index] for index in range(subtree.first, subtree.first + subtree.leaves)]

    def wire_dtype(self, dtype: np.dtype[Any]) -> np.dtype[Any]:
        """The dtype of messages: that of sums if any party sends a partial sum, so that none is rounded."""
        single = all(subtree.leaves == 1 for party_subtrees in self.subtrees.values() for subtree in party_subtrees)
        return dtype if single else sum_dtype(dtype)


def stripe_bounds(width: int, itemsize: int, stripe: Stripe) -> tuple[int, int]:
    """The elements [low, high) of ``width`` in ``stripe``: whole cache lines, divided as evenly as possible."""
    unit = _LINE // itemsize
    position, number = stripe
    units = -(-width // unit)
    low, high = (min(width, units * p // number * unit) for p in (position, position + 1))
    return low, high


def _subtrees(indices: list[int]) -> list[Subtree]:
    """The largest aligned subtrees of the ascending ``indices``."""
    gaps = [0, *(i + 1 for i, (a, b) in enumerate(pairwise(indices)) if b != a + 1), len(indices)]
    runs = [(indices[low], indices[high - 1] + 1) for low, high in pairwise(gaps)]
    return [subtree for start, stop in runs for subtree in subtrees(start, stop)]
