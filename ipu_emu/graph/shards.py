"""Shards: how a variable is divided between replicas, each of which holds one shard of it.

A variable lies evenly over the tiles of an IPU, and every tile gives each replica its part (gcl's BalancedReorder):

    whole, 14 elements, 8 on a tile    0 1 2 3 4 5 6 7 | 8 9 10 11 12 13
    4 shards                           0 1 8 9    2 3 10 11    4 5 12 13    6 7 . .

The elements are taken in the order of the axes, and what is left of a shard is padded with zeros.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gcl import BalancedReorder, Group, HostRearrangement

__all__ = ["Run", "Shards"]

#: Shards begin at a multiple of this many bytes, as tensors do, and elements stay together in such lines.
_ALIGNMENT = 64
#: Tiles of a GC200 or a Bow; on a smaller IPU the same shards lie on fewer tiles.
_TILES = 1472

_Array = NDArray[Any]


@dataclass(frozen=True)
class Run:
    """``count`` pieces of ``length`` elements, side by side in a shard from ``place`` on.

    In the whole value the first starts at ``start``, and each of the others ``stride`` elements after the one before.
    """

    start: int
    place: int
    length: int
    count: int
    stride: int

    def of_whole(self, flat: _Array) -> _Array:
        """The pieces [count, length] in a whole value [n], where they are."""
        strides = (self.stride * flat.strides[0], flat.strides[0])
        return np.lib.stride_tricks.as_strided(flat[self.start :], (self.count, self.length), strides)

    def of_shard(self, shard: _Array) -> _Array:
        """The same pieces in a shard."""
        return shard[self.place : self.place + self.count * self.length].reshape(self.count, self.length)


@dataclass(frozen=True)
class Shards:
    """``shape`` is that of the whole value, which the replicas of ``group`` (stride, size) share; None is all.

    The replicas of each ``domain`` (stride, size) hold the shards of one value, ``size`` elements each, in which
    ``line`` elements stay together.
    """

    shape: tuple[int, ...]
    size: int
    line: int
    domain: tuple[int, int]
    group: tuple[int, int] | None = None

    @classmethod
    def of(
        cls, shape: tuple[int, ...], itemsize: int, domain: tuple[int, int], group: tuple[int, int] | None
    ) -> Shards:
        """Shards as small as they can be, for elements of ``itemsize`` bytes."""
        line = max(1, _ALIGNMENT // itemsize)
        return cls(shape, _arrangement(prod(shape), domain[1], line).elements_per_replica, line, domain, group)

    @property
    def arrangement(self) -> HostRearrangement:
        """Where each element of the whole value lies in the shards one after the other."""
        return _arrangement(prod(self.shape), self.domain[1], self.line)

    def runs(self, index: int) -> tuple[Run, ...]:
        """What the shard of one replica of a domain consists of."""
        return _runs(prod(self.shape), self.domain[1], self.line, index)

    def cut(self, value: _Array, replica: int, replicas: int) -> _Array:
        """The shard [size] of one of ``replicas``; a whole value has a leading axis if there are several groups."""
        groups, index = self._groups(replicas), Group(replicas, *self.domain).index(replica)
        own = value.reshape(groups.count, -1)[groups.of(replica)]
        shard = np.zeros(self.size, own.dtype)
        for run in self.runs(index):
            run.of_shard(shard)[:] = run.of_whole(own)
        return shard

    def join(self, rows: _Array) -> _Array:
        """The whole value of [replicas, size]; that of the first domain of each group."""
        groups, domains = self._groups(len(rows)), Group(len(rows), *self.domain)
        firsts = [domains.members(domains.of(members[0])) for members in groups.all_members()]
        values = np.stack([self.arrangement.undo(rows[members].reshape(-1)) for members in firsts])
        return values.reshape((*([groups.count] if groups.count > 1 else []), *self.shape))

    def _groups(self, replicas: int) -> Group:
        return Group.all(replicas) if self.group is None else Group(replicas, *self.group)


@lru_cache(maxsize=256)
def _arrangement(elements: int, replicas: int, line: int) -> HostRearrangement:
    """Every tile but the last holds the same number of lines for each replica, so that only the last is padded."""
    unit = replicas * line
    tile = max(1, -(-elements // (_TILES * unit))) * unit
    sizes = [tile] * (elements // tile) + [elements % tile] * (elements % tile > 0)
    return BalancedReorder.of_sizes(replicas, sizes, line).arrangement


@lru_cache(maxsize=4096)
def _runs(elements: int, replicas: int, line: int, index: int) -> tuple[Run, ...]:
    return tuple(_joined(_pieces(_arrangement(elements, replicas, line), index)))


def _pieces(arrangement: HostRearrangement, index: int) -> Iterator[tuple[int, int, int]]:
    """(start in the whole, place in the shard, length) of what lies in the shard ``index``."""
    low, start = index * arrangement.elements_per_replica, 0
    high = low + arrangement.elements_per_replica
    for begin, end in arrangement.slices:
        first, last = max(begin, low), min(end, high)
        if first < last:
            yield start + first - begin, first - low, last - first
        start += end - begin


def _joined(pieces: Iterator[tuple[int, int, int]]) -> Iterator[Run]:
    """Pieces of one length at one distance together."""
    run: Run | None = None
    for start, place, length in pieces:
        if run is not None and length == run.length and place == run.place + run.count * length:
            stride = start - run.start if run.count == 1 else run.stride
            if start == run.start + run.count * stride:
                run = Run(run.start, run.place, length, run.count + 1, stride)
                continue
        if run is not None:
            yield run
        run = Run(start, place, length, 1, length)
    if run is not None:
        yield run
