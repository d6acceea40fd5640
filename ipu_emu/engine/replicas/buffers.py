"""Buffers: the memory of one replica, laid out by the memory plan."""

from __future__ import annotations

import mmap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import lcm
from threading import Thread
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ipu_emu.graph import Role
from ipu_emu.hardware import mapped
from ipu_emu.ops import Node
from ipu_emu.program.memory_plan import (
    PERSISTENT,
    TRANSIENT,
    Allocation,
    MemoryPlan,
    ipu_of,
    is_off_chip,
    region_of,
    scratch_key,
)
from ipu_emu.program.scratch import scratch_of
from ipu_emu.program.storage_order import order

_ALIGNMENT = 64
_LARGE = 1 << 24


def aligned(nbytes: int) -> NDArray[np.uint8]:
    """Zeroed bytes that start at a multiple of the cache line size."""
    memory = np.zeros(nbytes + _ALIGNMENT, np.uint8)
    skip = -memory.ctypes.data % _ALIGNMENT
    return memory[skip : skip + nbytes]


def _memory(region: str, nbytes: int, folder: str | None) -> NDArray[np.uint8]:
    if is_off_chip(region):
        return mapped(nbytes, folder)
    return _in_small_pages(nbytes) if _is_in_small_pages(region, nbytes) else aligned(nbytes)


def _is_in_small_pages(region: str, nbytes: int) -> bool:
    return region.partition(":")[0] == PERSISTENT and nbytes >= _LARGE


def _in_small_pages(nbytes: int) -> NDArray[np.uint8]:
    """Zeroed bytes for weights, which are filled as soon as a session starts.

    NumPy requests huge pages, for which the kernel moves other pages: the first write of BERT-base's 418 MiB took 1.1
    to 1.7 s, and 0.4 s in small pages; steps were equally fast.
    """
    return np.frombuffer(mmap.mmap(-1, nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS), np.uint8)


class Buffers:
    """Arrays of one replica by tensor id; ``buckets`` are this replica's rows of the collectives' memory.

    A stash of a pipeline has several arrays; ``arrays`` has the first. ``held`` has the variables that no step
    changes, at the place of which ops may read copies from Streaming Memory.
    """

    def __init__(
        self,
        plan: MemoryPlan,
        buckets: Mapping[str, NDArray[Any]],
        folder: str | None = None,
        held: Mapping[str, Allocation] = MappingProxyType({}),
    ) -> None:
        self.plan = plan
        self.regions: dict[str, NDArray[np.uint8]] = {
            name: buckets[name].view(np.uint8) if name in buckets else _memory(name, size, folder)
            for name, size in plan.sizes.items()
        }
        self.arrays = {id: self._array(placement, 0) for id, placement in plan.placements.items()}
        self._stashes = {
            id: [self._array(placement, place) for place in range(placement.places)]
            for id, placement in plan.placements.items()
            if placement.places > 1
        }
        self.held = {id: self._array(placement, 0) for id, placement in held.items()}

    def at(self, id: str, micro_batch: int) -> NDArray[Any]:
        """The array of a tensor in a micro-batch."""
        places = self._stashes.get(id)
        return self.arrays[id] if places is None else places[micro_batch % len(places)]

    def period(self, ids: Iterable[str]) -> int:
        """The number of micro-batches after which all ``ids`` use the same buffers again."""
        return lcm(*(len(self._stashes[id]) for id in ids if id in self._stashes))

    def weights(self) -> Iterator[NDArray[np.uint8]]:
        """The parts of large regions in small pages that hold the weights, which are filled when a session starts."""
        for name, region in self.regions.items():
            placed = [
                placement
                for placement in self.plan.placements.values()
                if placement.region == name and placement.tensor.role is Role.WEIGHT
            ]
            if placed and _is_in_small_pages(name, region.nbytes):
                starts = [placement.offset_of(0) for placement in placed]
                ends = [placement.offset_of(0) + placement.tensor.nbytes for placement in placed]
                yield region[min(starts) : max(ends)]

    def nbytes_of(self, ipu: int) -> int:
        """Bytes allocated for the memory of one IPU."""
        return self._sum(ipu, off_chip=False)

    def streaming_nbytes_of(self, ipu: int) -> int:
        """Bytes allocated for the Streaming Memory of one IPU."""
        return self._sum(ipu, off_chip=True)

    def _sum(self, ipu: int, *, off_chip: bool) -> int:
        return sum(
            region.nbytes
            for name, region in self.regions.items()
            if ipu_of(name) == ipu and is_off_chip(name) is off_chip
        )

    def _array(self, placement: Allocation, place: int) -> NDArray[Any]:
        """The tensor in its logical shape, regardless of its storage order."""
        tensor, start = placement.tensor, placement.offset_of(place)
        raw = self.regions[placement.region][start : start + tensor.nbytes]
        return in_order(raw.view(tensor.dtype.numpy), tensor.shape, order(tensor, placement.batch_innermost))

    def scratch(self, node: Node) -> tuple[list[NDArray[Any]], dict[str, NDArray[Any]]]:
        """(workspace arrays, float32 copies of FLOAT16 operands by id) of an op, flat or in stored order."""
        wanted = scratch_of(node)
        offsets = self.plan.scratch.get(scratch_key(node.op), ())
        region = self.regions[region_of(TRANSIENT, node.op.place.ipu)]
        floats = [
            region[offset : offset + 4 * nelms].view(np.float32)
            for offset, nelms in zip(offsets, wanted.sizes, strict=True)
        ]
        workspace, images = floats[: len(wanted.workspace)], floats[len(wanted.workspace) :]
        shaped = {}
        for id, image in zip(wanted.images, images, strict=True):
            placement = self.plan.placements[id]
            axes = order(placement.tensor, placement.batch_innermost)
            shaped[id] = in_order(image, placement.tensor.shape, axes)
        return workspace, shaped


def in_order(flat: NDArray[Any], shape: tuple[int, ...], axes: tuple[int, ...]) -> NDArray[Any]:
    """``flat`` memory as an array of ``shape`` whose axes are stored in the order ``axes``."""
    stored = flat.reshape(tuple(shape[axis] for axis in axes))
    return stored.transpose(tuple(axes.index(axis) for axis in range(len(axes))))


_PAGE = 4096


@contextmanager
def prefaulted(ranges: Sequence[NDArray[np.uint8]]) -> Iterator[None]:
    """Fault in the pages of ``ranges`` during the block, which must not write to them; they remain zero.

    The kernel provides a page of new memory when it is first written to, which takes longer than filling it: 0.2 of
    the 0.25 s in which the 418 MiB of BERT-base's weights were copied to a new engine. A thread does this while the
    main thread binds the program.
    """
    if not ranges:
        yield
        return
    thread = Thread(target=_touch, args=(ranges,), name="early pages")
    thread.start()
    try:
        yield
    finally:
        thread.join()


def _touch(ranges: Sequence[NDArray[np.uint8]]) -> None:
    """Write a zero to each page, in one NumPy call that releases the GIL.

    madvise(MADV_POPULATE_WRITE) would take three quarters of the time, but binding waits for it whenever it needs
    memory of its own.
    """
    for part in ranges:
        part[::_PAGE] = 0
