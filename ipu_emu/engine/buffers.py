"""Buffers: the memory of one replica, laid out by the memory plan."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ipu_emu.ops import Node
from ipu_emu.program.memory import PERSISTENT, TRANSIENT, MemoryPlan, Placement, scratch_key
from ipu_emu.program.scratch import scratch_of
from ipu_emu.transforms.storage import order

__all__ = ["Buffers", "aligned"]

_ALIGNMENT = 64


def aligned(nbytes: int) -> NDArray[np.uint8]:
    """Zeroed bytes that start at a multiple of the width of a cache line."""
    whole = np.zeros(nbytes + _ALIGNMENT, np.uint8)
    skip = -whole.ctypes.data % _ALIGNMENT
    return whole[skip : skip + nbytes]


class Buffers:
    """Arrays of one replica by tensor id; ``buckets`` are this replica's rows of the collectives' memory."""

    def __init__(self, plan: MemoryPlan, buckets: Mapping[str, NDArray[Any]]) -> None:
        self.plan = plan
        self.regions: dict[str, NDArray[np.uint8]] = {
            PERSISTENT: aligned(plan.sizes[PERSISTENT]),
            TRANSIENT: aligned(plan.sizes[TRANSIENT]),
        } | {name: row.view(np.uint8) for name, row in buckets.items()}
        self.arrays = {id: self._array(placement) for id, placement in plan.placements.items()}

    def _array(self, placement: Placement) -> NDArray[Any]:
        """The tensor in its logical shape, whatever the order in which it is stored."""
        tensor = placement.tensor
        raw = self.regions[placement.region][placement.offset : placement.offset + tensor.nbytes]
        return in_order(raw.view(tensor.dtype.numpy), tensor.shape, order(tensor, placement.batch_innermost))

    def scratch(self, node: Node) -> tuple[list[NDArray[Any]], dict[str, NDArray[Any]]]:
        """(workspace arrays, float32 images of FLOAT16 operands by id) of an op, all one-dimensional or as stored."""
        wanted = scratch_of(node)
        offsets = self.plan.scratch.get(scratch_key(node.op), ())
        floats = [
            self.regions[TRANSIENT][offset : offset + 4 * nelms].view(np.float32)
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
