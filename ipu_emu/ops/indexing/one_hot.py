"""One-hot: rows that have one value at the given index and another value elsewhere."""

from __future__ import annotations

from typing import Any

import numpy as np

from ipu_emu.graph import DType
from ipu_emu.ops.core import Adjoint, BoundOp, Call, Node, OpDef, OutputTypes, Value, copy_cost
from ipu_emu.ops.core.axis_sums import sum_of
from ipu_emu.ops.core.kernel_helpers import allocating_kernel

#: An array; numpy's stubs call most results Any.
_Array = Any


def _one_hot_shape(node: Node) -> OutputTypes:
    indices, depth = node.input(0), node.integer("depth", 1)
    axis = node.attribute("axis", -1)
    if not -indices.rank - 1 <= axis <= indices.rank or depth < 0:
        raise node.fail(f"axis {axis} and depth {depth} do not fit {indices}")
    place = axis % (indices.rank + 1)
    dtype: DType = node.input(2).dtype
    return [(dtype, (*indices.shape[:place], depth, *indices.shape[place:]))]


def _hot(node: Node, indices: _Array) -> _Array:
    """A mask of the elements that get the "on" value."""
    depth, axis = node.integer("depth", 1), node.attribute("axis", -1) % (indices.ndim + 1)
    wanted = np.where(indices < 0, indices + depth, indices)
    classes = np.arange(depth).reshape((-1,) + (1,) * (indices.ndim - axis))
    return np.expand_dims(wanted, axis) == classes


def _one_hot(bound: BoundOp) -> Call:
    node, indices, values, y = bound.node, bound.input(0), bound.input(2), bound.outputs[0]
    return lambda: np.copyto(y, np.where(_hot(node, indices), values[1], values[0]))


def _one_hot_grad(d: Adjoint) -> list[Value | None]:
    return [None, None, d.g.op("OneHotGrad", d.x, **d.node.op.attributes)]


def _one_hot_back(node: Node, g: _Array, indices: _Array) -> _Array:
    hot = _hot(node, indices)
    return np.array([sum_of(g[~hot]), sum_of(g[hot])])


def _pair_shape(node: Node) -> OutputTypes:
    return [(node.input(0).dtype, (2,))]


OPS = [
    OpDef("OneHot", (3, 3), _one_hot_shape, _one_hot, copy_cost, _one_hot_grad, constant_inputs={1: "depth"}),
    OpDef("OneHotGrad", (2, 2), _pair_shape, allocating_kernel(_one_hot_back), copy_cost),
]
