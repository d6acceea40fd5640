"""Shards: how a variable is divided between replicas, each of which holds one shard of it.

    whole, 10 elements in 4 shards      0 1 2 | 3 4 5 | 6 7 8 | 9 . .

The elements are taken in the order of the axes, and the last shards are padded with zeros.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gcl.groups import Group

__all__ = ["Shards"]

#: Shards begin at a multiple of this many bytes, as tensors do.
_ALIGNMENT = 64

_Array = NDArray[Any]


@dataclass(frozen=True)
class Shards:
    """``shape`` is that of the whole value, which the replicas of ``group`` (stride, size) share; None is all.

    The replicas of each ``domain`` (stride, size) hold the shards of one value, ``size`` elements each.
    """

    shape: tuple[int, ...]
    size: int
    domain: tuple[int, int]
    group: tuple[int, int] | None = None

    @classmethod
    def of(
        cls, shape: tuple[int, ...], itemsize: int, domain: tuple[int, int], group: tuple[int, int] | None
    ) -> Shards:
        """Shards as small as they can be, for elements of ``itemsize`` bytes."""
        unit = max(1, _ALIGNMENT // itemsize)
        return cls(shape, -(-prod(shape) // (domain[1] * unit)) * unit, domain, group)

    def cut(self, value: _Array, replica: int, replicas: int) -> _Array:
        """The shard [size] of one of ``replicas``; a whole value has a leading axis if there are several groups."""
        groups, start = self._groups(replicas), Group(replicas, *self.domain).index(replica) * self.size
        own = value.reshape(groups.count, -1)[groups.of(replica), start : start + self.size]
        return own if own.size == self.size else np.pad(own, (0, self.size - own.size))

    def join(self, rows: _Array) -> _Array:
        """The whole value of [replicas, size]; that of the first domain of each group."""
        groups, domains = self._groups(len(rows)), Group(len(rows), *self.domain)
        firsts = [domains.members(domains.of(members[0])) for members in groups.all_members()]
        values = np.stack([rows[members].reshape(-1)[: prod(self.shape)] for members in firsts])
        return values.reshape((*([groups.count] if groups.count > 1 else []), *self.shape))

    def _groups(self, replicas: int) -> Group:
        return Group.all(replicas) if self.group is None else Group(replicas, *self.group)
