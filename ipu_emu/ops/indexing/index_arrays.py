"""Index arrays: indices checked and converted to what numpy's indexing takes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ipu_emu.errors import EmulatorError
from ipu_emu.graph import Tensor
from ipu_emu.ops.core.node import Node
from popdist_py.messages.suggestion import did_you_mean

#: An array; numpy's stubs call most results Any.
_Array = Any


def check_integer_indices(node: Node, tensor: Tensor) -> None:
    """Raise EmulatorError if the indices are not integers."""
    if not tensor.dtype.is_integer:
        raise node.fail(f"indices must be integers, found {tensor}; cast them")


def indexed_axis(node: Node, rank: int, default: int, what: str) -> int:
    """The axis along which indices count, from the front; raise EmulatorError in PopART's words for one outside."""
    axis = int(node.attribute("axis", default))
    if not -rank <= axis < rank:
        raise EmulatorError(f"{what} axis = {axis} is outside the acceptable range [{-rank}, {rank - 1}]")
    return axis % rank


def wrapped_and_clipped(indices: _Array, size: int) -> _Array:
    """Indices from 0 to ``size`` - 1: negative ones count from the end, ones out of range are clamped."""
    wrapped: _Array = np.where(indices < 0, indices + size, indices).astype(np.int64)
    return np.clip(wrapped, 0, max(size - 1, 0))


#: How elements combine by the names of reductions; None: the last one written stays.
_COMBINE: Mapping[str, Any] = {
    "none": None,
    "sum": np.add,
    "add": np.add,
    "mul": np.multiply,
    "max": np.maximum,
    "min": np.minimum,
}


#: The reductions of scatters of ONNX.
ONNX_REDUCTIONS = ("none", "add", "mul", "max", "min")


def check_reduction(node: Node, default: str, reductions: tuple[str, ...]) -> None:
    """Raise EmulatorError if the reduction of the op is not one of ``reductions``."""
    reduction = node.attribute("reduction", default)
    if reduction not in reductions:
        hint = did_you_mean(reduction, reductions)
        raise node.fail(f"reduction '{reduction}' is not one of {', '.join(reductions)}{hint}")


def combine_at(out: _Array, places: tuple[_Array, ...], values: _Array, reduction: str) -> None:
    """Combine the elements of ``out`` at ``places`` with ``values``, in order."""
    if _COMBINE[reduction] is None:
        out[places] = values
    else:
        _COMBINE[reduction].at(out, places, values)


def index_arrays(indices: _Array, axis: int, size: int) -> tuple[_Array, ...]:
    """numpy index arrays for the elements that ``indices`` select along ``axis``."""
    grid: list[Any] = list(np.indices(indices.shape, sparse=True))
    grid[axis] = wrapped_and_clipped(indices, size)
    return tuple(grid)
