"""Evaluation: runs one op on arrays without a session, for ops on constants when a graph is built."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ipu_emu.graph import Tensor
from ipu_emu.graph.dtype import FLOAT16
from ipu_emu.ops.core.node import Node
from ipu_emu.ops.core.op_definition import BoundOp, OpDef

__all__ = ["evaluate"]


def evaluate(entry: OpDef, node: Node, inputs: Sequence[NDArray[Any] | None]) -> list[NDArray[Any]]:
    """The outputs of ``node`` for ``inputs``; the types of its outputs must be known."""
    assert entry.kernel is not None
    operands = [*node.inputs, *node.outputs]
    spatial = {index % len(operands) for index in entry.batch_innermost}
    halves = entry.takes_half(node)
    arrays = [None if t is None else _place(t, i in spatial, halves) for i, t in enumerate(operands)]
    for place, value in zip(arrays, inputs, strict=False):
        if place is not None and value is not None:
            np.copyto(place, value)
    outputs = [array for array in arrays[len(node.inputs) :] if array is not None]
    scratch = tuple(np.zeros(size, np.float32) for size in entry.workspace(node))
    with np.errstate(all="ignore"):
        entry.kernel(BoundOp(node, tuple(arrays[: len(node.inputs)]), tuple(outputs), scratch))()
        return [np.ascontiguousarray(a, t.dtype.numpy) for a, t in zip(outputs, node.outputs, strict=True)]


def _place(tensor: Tensor, batch_innermost: bool, halves: bool) -> NDArray[Any]:
    """A zeroed array in the kernel's storage order; float32 for FLOAT16, unless the kernel takes halves."""
    kind = np.dtype(np.float32) if tensor.dtype is FLOAT16 and not halves else tensor.dtype.numpy
    if not batch_innermost or tensor.rank < 2:
        return np.zeros(tensor.shape, kind)
    stored: NDArray[Any] = np.zeros((*tensor.shape[1:], tensor.shape[0]), kind)
    return np.moveaxis(stored, -1, 0)
