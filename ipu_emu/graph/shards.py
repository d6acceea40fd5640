"""Shards: the division of a variable between replicas, each of which holds one shard.

A variable is spread evenly over the tiles of an IPU, and each replica gets a part of every tile
(BalancedReorder of gcl):

    whole, 14 elements, 8 on a tile    0 1 2 3 4 5 6 7 | 8 9 10 11 12 13
    4 shards                           0 1 8 9    2 3 10 11    4 5 12 13    6 7 . .

Elements are taken in C order, and shards are padded with zeros.
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
from ipu_emu.hardware.generation import GC200

#: Shards start at a multiple of this number of bytes, as tensors do, and consist of lines of this size.
_ALIGNMENT = 64
#: On an IPU with fewer tiles the same shards use fewer of them.
_TILES = GC200.tiles

_Array = NDArray[Any]


@dataclass(frozen=True)
class StridedPieces:
    """``count`` pieces of ``length`` elements, which are contiguous in a shard, from ``place``.

    In the whole value the first piece starts at ``start``, and each further one ``stride`` elements later.
    """

    start: int
    place: int
    length: int
    count: int
    stride: int

    def of_whole(self, flat: _Array) -> _Array:
        """Return a view [count, length] of the pieces in a whole value [n]."""
        strides = (self.stride * flat.strides[0], flat.strides[0])
        return np.lib.stride_tricks.as_strided(flat[self.start :], (self.count, self.length), strides)

    def of_shard(self, shard: _Array) -> _Array:
        """Return a view of the pieces in a shard."""
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
        """Return the smallest shards for elements of ``itemsize`` bytes."""
        line = max(1, _ALIGNMENT // itemsize)
        return cls(shape, _arrangement(prod(shape), domain[1], line).elements_per_replica, line, domain, group)

    @property
    def arrangement(self) -> HostRearrangement:
        """The position of each element of the whole value in the concatenated shards."""
        return _arrangement(prod(self.shape), self.domain[1], self.line)

    def strided_pieces(self, index: int) -> tuple[StridedPieces, ...]:
        """Return the pieces that the shard of one replica of a group consists of."""
        return _strided_pieces(prod(self.shape), self.domain[1], self.line, index)

    def cut(self, value: _Array, replica: int, replicas: int) -> _Array:
        """Return the shard [size] of one of ``replicas``; with several groups a whole value has a leading axis."""
        groups, index = self._groups(replicas), Group(replicas, *self.domain).index(replica)
        own = value.reshape(groups.count, -1)[groups.of(replica)]
        shard = np.zeros(self.size, own.dtype)
        for pieces in self.strided_pieces(index):
            pieces.of_shard(shard)[:] = pieces.of_whole(own)
        return shard

    def join(self, rows: _Array) -> _Array:
        """Return the whole value of shards [replicas, size], from the first replicas of each group."""
        groups, domains = self._groups(len(rows)), Group(len(rows), *self.domain)
        firsts = [domains.members(domains.of(members[0])) for members in groups.all_members()]
        values = np.stack([self.arrangement.undo(rows[members].reshape(-1)) for members in firsts])
        return values.reshape((*([groups.count] if groups.count > 1 else []), *self.shape))

    def _groups(self, replicas: int) -> Group:
        return Group.all(replicas) if self.group is None else Group(replicas, *self.group)


@lru_cache(maxsize=256)  # pure, and slow for large variables; replicas and steps use the same arrangements
def _arrangement(elements: int, replicas: int, line: int) -> HostRearrangement:
    """Return the arrangement: all tiles except the last, which is padded, have equally many lines per replica."""
    unit = replicas * line
    tile = max(1, -(-elements // (_TILES * unit))) * unit
    sizes = [tile] * (elements // tile) + [elements % tile] * (elements % tile > 0)
    return BalancedReorder.of_sizes(replicas, sizes, line).arrangement


@lru_cache(maxsize=4096)  # pure; one entry for each shard of a variable
def _strided_pieces(elements: int, replicas: int, line: int, index: int) -> tuple[StridedPieces, ...]:
    return tuple(_joined(_pieces(_arrangement(elements, replicas, line), index)))


def _pieces(arrangement: HostRearrangement, index: int) -> Iterator[tuple[int, int, int]]:
    """Return (start in the whole value, position in the shard, length) of each piece of shard ``index``."""
    low, start = index * arrangement.elements_per_replica, 0
    high = low + arrangement.elements_per_replica
    for begin, end in arrangement.slices:
        first, last = max(begin, low), min(end, high)
        if first < last:
            yield start + first - begin, first - low, last - first
        start += end - begin


def _joined(pieces: Iterator[tuple[int, int, int]]) -> Iterator[StridedPieces]:
    """Combine pieces of equal length and distance."""
    last: StridedPieces | None = None
    for start, place, length in pieces:
        if last is not None and length == last.length and place == last.place + last.count * length:
            stride = start - last.start if last.count == 1 else last.stride
            if start == last.start + last.count * stride:
                last = StridedPieces(last.start, last.place, length, last.count + 1, stride)
                continue
        if last is not None:
            yield last
        last = StridedPieces(start, place, length, 1, length)
    if last is not None:
        yield last
