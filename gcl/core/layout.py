"""Layout: how a tensor is cut into one fragment per replica, and padded where it does not divide.

Plain padding cuts the elements of each IPU; the balanced reorder (CollectiveBalancedReorder) those of each tile:

    1 2 3 4 5 on IPU 0, 6 7 on IPU 1, R = 4     plain       [1 2 6] [3 4 7] [5 . .] [. . .]
    0 1 2 3 4 | 5 6 7 | 8 9 on tiles, R = 4     balanced    [0 . 5 8] [1 2 6 9] [3 4 7 .] [. . . .]

Both give a HostRearrangement, with which the host converts a tensor to that order and back. GCL reference,
section 5.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate

import numpy as np

from gcl.core.argument_checks import check_whole, is_whole
from gcl.errors import ArgumentError

#: Methods send a fragment in one, two or four directions.
_SPLITS = (1, 2, 4)


@dataclass(frozen=True)
class HostRearrangement:
    """A layout as the host sees it: the place of each run of the reference tensor in the gathered tensor.

    ``slices``: [begin, end) of the gathered tensor, in the order of the reference tensor. Elements outside all slices
    are padding, filled with zeros.
    """

    replication_factor: int
    elements_per_replica: int
    slices: tuple[tuple[int, int], ...]

    def __post_init__(self) -> None:
        check_whole(self.replication_factor, "replication_factor", 1)
        check_whole(self.elements_per_replica, "elements_per_replica")
        free = 0
        for begin, end in sorted(self.slices):
            if not free <= begin <= end <= self.gathered_size:
                raise ArgumentError(
                    f"the slice [{begin}, {end}) does not fit; slices of a gathered tensor lie within its "
                    f"{self.gathered_size} elements, and none overlaps another"
                )
            free = end

    @property
    def gathered_size(self) -> int:
        """Elements of the gathered tensor, padding included."""
        return self.elements_per_replica * self.replication_factor

    @property
    def reference_size(self) -> int:
        """Elements of the original tensor."""
        return sum(end - begin for begin, end in self.slices)

    @property
    def is_identity(self) -> bool:
        """Whether both orders are equal and there is no padding."""
        return self.gathered_size == 0 or self.slices == ((0, self.gathered_size),)

    @cached_property
    def addresses(self) -> np.ndarray:
        """Gathered address of every reference element, int64 [reference_size]."""
        runs = [np.arange(begin, end) for begin, end in self.slices]
        return np.concatenate(runs) if runs else np.empty(0, np.int64)

    def rearrange(self, reference: np.ndarray) -> np.ndarray:
        """``reference`` [..., n] in gathered order: [..., gathered_size], zero where padded."""
        self._check(reference, self.reference_size, "reference")
        gathered = np.zeros((*reference.shape[:-1], self.gathered_size), reference.dtype)
        start = 0
        for begin, end in self.slices:
            gathered[..., begin:end] = reference[..., start : start + end - begin]
            start += end - begin
        return gathered

    def undo(self, gathered: np.ndarray) -> np.ndarray:
        """``gathered`` [..., gathered_size] in reference order: [..., n], without padding."""
        self._check(gathered, self.gathered_size, "gathered")
        reference = np.empty((*gathered.shape[:-1], self.reference_size), gathered.dtype)
        start = 0
        for begin, end in self.slices:
            reference[..., start : start + end - begin] = gathered[..., begin:end]
            start += end - begin
        return reference

    def shards(self, reference: np.ndarray) -> np.ndarray:
        """The shard of ``reference`` [n] that each replica owns: [replication_factor, elements_per_replica]."""
        return self.rearrange(reference).reshape(self.replication_factor, self.elements_per_replica)

    def _check(self, tensor: np.ndarray, size: int, name: str) -> None:
        if not isinstance(tensor, np.ndarray) or tensor.ndim < 1 or tensor.shape[-1] != size:
            shape = list(tensor.shape) if isinstance(tensor, np.ndarray) else "unknown (not an array)"
            raise ArgumentError(
                f"the {name} tensor has shape {shape}; it must be an array whose last axis has {size} elements"
            )


@dataclass(frozen=True)
class PlainPadding:
    """A tensor with ``elements[q]`` elements on IPU q, in tensor order, cut for ``replicas``.

    The block of each IPU is padded at its end to a multiple of the replicas. If a method cuts fragments into
    ``splits`` pieces, every replica gets at least that many elements of each block that is not empty.
    """

    replicas: int
    elements: tuple[int, ...]
    splits: int = 1

    def __post_init__(self) -> None:
        check_whole(self.replicas, "replicas", 1)
        if not isinstance(self.elements, tuple | list) or not all(map(is_whole, self.elements)):
            raise ArgumentError(
                f"elements={self.elements!r} is not valid; give a tuple of whole numbers of at least 0, one per IPU"
            )
        if self.splits not in _SPLITS:
            raise ArgumentError(
                f"splits={self.splits!r} is not valid; methods cut a fragment into {', '.join(map(str, _SPLITS))}"
            )

    @property
    def widths(self) -> tuple[int, ...]:
        """Elements of one fragment on each IPU."""
        return tuple(max(-(-n // self.replicas), self.splits) if n else 0 for n in self.elements)

    @property
    def shard(self) -> int:
        """Elements of one fragment."""
        return sum(self.widths)

    def arrangement(self, across: int = 1) -> HostRearrangement:
        """From tensor order to fragment order: by replica, within a replica by IPU.

        With ``across`` above 1 the fragments of replicas i, i + R/across, i + 2 R/across, ... are one fragment of a
        first phase, which a second phase cuts again: the order in which several IPU-Link domains need them.
        """
        self._check_across(across)
        slices = []
        for ipu, (count, width) in enumerate(zip(self.elements, self.widths, strict=True)):
            for fragment in range(-(-count // width) if width else 0):
                begin = self._address(fragment, ipu, across)
                slices.append((begin, begin + min(width, count - fragment * width)))
        return HostRearrangement(self.replicas, self.shard, _joined(slices))

    def shard_order(self, across: int) -> HostRearrangement:
        """From fragment order, padding included, to the order of ``arrangement(across)``."""
        self._check_across(across)
        slices = [
            (begin := self._address(fragment, ipu, across), begin + width)
            for fragment in range(self.replicas)
            for ipu, width in enumerate(self.widths)
            if width
        ]
        return HostRearrangement(self.replicas, self.shard, _joined(slices))

    def _check_across(self, across: int) -> None:
        if not is_whole(across, 1) or self.replicas % across:
            raise ArgumentError(
                f"an order across {across!r} is not possible; use a number that divides the {self.replicas} replicas"
            )

    def _address(self, fragment: int, ipu: int, across: int) -> int:
        inside = self.replicas // across
        second, first = divmod(fragment, inside)
        before = sum(self.widths[:ipu])
        return across * (first * self.shard + before) + second * self.widths[ipu]


@dataclass(frozen=True)
class BalancedReorder:
    """CollectiveBalancedReorder: every tile of a tensor gives every replica the same number of elements.

    ``tiles[t]`` are the [begin, end) slices of the tensor on tile t, in its order. A tile of k elements takes
    ceil(k/R) in every shard and is cut into V = ceil(k / ceil(k/R)) pieces; replicas from V on get padding only.
    ``grain``: number of elements that are never separated (later releases: 4 of FLOAT16, 2 of FLOAT32).
    """

    replicas: int
    tiles: tuple[tuple[tuple[int, int], ...], ...]
    grain: int = 1

    @classmethod
    def of_sizes(cls, replicas: int, sizes: Sequence[int], grain: int = 1) -> BalancedReorder:
        """Tiles that hold ``sizes`` elements of the tensor, one after the other."""
        if not isinstance(sizes, Sequence | np.ndarray) or not all(map(is_whole, sizes)):
            raise ArgumentError(f"tiles of {sizes!r} elements are not valid; give whole numbers of at least 0")
        ends = list(accumulate(sizes))
        return cls(replicas, tuple(((end - n, end),) for n, end in zip(sizes, ends, strict=True)), grain)

    def __post_init__(self) -> None:
        check_whole(self.replicas, "replicas", 1)
        check_whole(self.grain, "grain", 1)
        covered = sorted(interval for tile in self.tiles for interval in tile)
        position = 0
        for begin, end in covered:
            if begin != position or end < begin:
                raise ArgumentError(
                    f"tiles hold elements {covered}; they must hold each element of the "
                    f"tensor once, which fails at element {min(begin, position)}"
                )
            position = end

    @property
    def shard(self) -> int:
        """Elements per replica: the sum over tiles of ceil(k/R)."""
        return self._offsets[-1]

    @property
    def arrangement(self) -> HostRearrangement:
        """From tensor order to the gathered tensor: address = replica x shard + place in it."""
        runs = sorted(run for tile in range(len(self.tiles)) for run in self._tile_runs(tile))
        slices = [(address, address + length) for _, address, length in runs]
        return HostRearrangement(self.replicas, self.shard, _joined(slices))

    @cached_property
    def _sizes(self) -> list[int]:
        return [sum(end - begin for begin, end in tile) for tile in self.tiles]

    def _grains(self, size: int) -> int:
        return -(-size // self.grain)

    @cached_property
    def _offsets(self) -> list[int]:
        """For each tile, the index in every shard of its first element; at the end the size of a shard."""
        shares = (-(-self._grains(size) // self.replicas) * self.grain for size in self._sizes)
        return list(accumulate(shares, initial=0))

    def _tile_runs(self, tile: int) -> Iterator[tuple[int, int, int]]:
        """The runs of tile ``tile``: (first element, gathered address, length)."""
        size, offset = self._sizes[tile], self._offsets[tile]
        pieces = list(_pieces(self._grains(size), self.replicas))
        done = 0
        for begin, end in self.tiles[tile]:
            for replica, (low, high) in enumerate(pieces):
                first = max(done, low * self.grain)
                last = min(done + end - begin, high * self.grain)
                if first < last:
                    address = replica * self.shard + offset + first - low * self.grain
                    yield begin + first - done, address, last - first
            done += end - begin


def graph_shard(elements: int, replicas: int) -> int:
    """Elements of a shard as PopART's graph sees it, without tiles; a gathered tensor is cut back to ``elements``."""
    check_whole(elements, "elements")
    check_whole(replicas, "replicas", 1)
    return -(-elements // replicas)


def spread(elements: int, ipus: int) -> tuple[int, ...]:
    """``elements`` divided over ``ipus`` as evenly as possible, the first IPUs with one more."""
    return tuple(elements // ipus + (ipu < elements % ipus) for ipu in range(ipus))


def _pieces(count: int, replicas: int) -> Iterator[tuple[int, int]]:
    """Cut ``count`` elements into V pieces, as evenly as possible."""
    if count:
        pieces = -(-count // -(-count // replicas))
        for v in range(pieces):
            yield v * count // pieces, (v + 1) * count // pieces


def _joined(slices: Iterable[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """``slices`` with adjacent ones merged."""
    runs: list[tuple[int, int]] = []
    for begin, end in slices:
        first = runs.pop()[0] if runs and runs[-1][1] == begin else begin
        runs.append((first, end))
    return tuple(runs)
