"""GroupView: a replica group as parties see it: whose members stand where, and what each may combine by itself.

index    0   1   2   3   4   5        party 0: indices 0 1 2 3, one subtree of 4
party    0   0   0   0   1   1        party 1: indices 4 5, one subtree of 2

party    0   1   0   1   0   1        nobody has two neighbours: every leaf travels by itself
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from gcl.kernels.dtypes import sum_dtype
from gcl.reduce.reduction import subtrees
from gcl.transport.messages.endpoints import Endpoints

__all__ = ["GroupView"]


class GroupView:
    """The group of replicas ``members``; parties are in the order of their number."""

    def __init__(self, members: list[int], parties: Endpoints) -> None:
        owners = [parties.owners[replica] for replica in members]
        self.me = parties.me
        self.size = len(members)
        #: party of each index
        self.owners = owners
        #: party -> indices of its replicas
        self.indices = {party: [i for i, p in enumerate(owners) if p == party] for party in sorted(set(owners))}
        #: party -> its subtrees, (first index, leaves)
        self.blocks = {party: _blocks(indices) for party, indices in self.indices.items()}
        #: the own replicas' rows, in the order of their indices
        self.rows = [parties.rows[replica] for replica in members if parties.owners[replica] == parties.me]
        self.others = [party for party in self.indices if party != parties.me]
        self._row_of = dict(zip(self.indices.get(parties.me, []), self.rows, strict=True))

    def rows_of(self, block: tuple[int, int]) -> list[int]:
        """Rows of the leaves of an own subtree."""
        return [self._row_of[index] for index in range(block[0], block[0] + block[1])]

    def wire_dtype(self, dtype: np.dtype[Any]) -> np.dtype[Any]:
        """Sums travel unrounded: in their own dtype as soon as any party sends one."""
        single = all(leaves == 1 for blocks in self.blocks.values() for _, leaves in blocks)
        return dtype if single else sum_dtype(dtype)


def _blocks(indices: list[int]) -> list[tuple[int, int]]:
    """The largest aligned blocks of ``indices``, which ascend."""
    gaps = [0, *(i + 1 for i, (a, b) in enumerate(pairwise(indices)) if b != a + 1), len(indices)]
    runs = [(indices[low], indices[high - 1] + 1) for low, high in pairwise(gaps)]
    return [block for start, stop in runs for block in subtrees(start, stop)]
