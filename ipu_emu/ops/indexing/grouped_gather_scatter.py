"""Grouped gather and scatter: of rows in groups (aiGraphcore)."""

from __future__ import annotations

from functools import partial
from math import prod
from typing import Any

import numpy as np

from ipu_emu.graph.op import GRAPHCORE
from ipu_emu.ops.core.adjoint import Adjoint, Value
from ipu_emu.ops.core.call_chain import call_chain
from ipu_emu.ops.core.cost import copy_cost
from ipu_emu.ops.core.kernel_helpers import allocating_kernel, view, with_contiguous_operands
from ipu_emu.ops.core.node import Node, OutputTypes
from ipu_emu.ops.core.op_definition import BoundOp, Call, OpDef
from ipu_emu.ops.core.shape_rules import axis_of
from ipu_emu.ops.indexing.gather_kernels import (
    SCATTER_REDUCTIONS,
    along,
    broadcast_along,
    put_elements,
    take_elements,
    zero_unindexed,
)
from ipu_emu.ops.indexing.gather_scatter import add_rows
from ipu_emu.ops.indexing.index_arrays import check_integer_indices, index_arrays

__all__ = ["OPS"]

#: An array; numpy's stubs call most results Any.
_Array = Any


def _by_attribute(node: Node) -> OutputTypes:
    return [(node.input(0).dtype, tuple(node.attribute("shape", [])))]


def _grouped_shape(node: Node) -> OutputTypes:
    x, indices, axis = node.input(0), node.input(1), node.attribute("axis", 0)
    check_integer_indices(node, indices)
    groups = node.attribute("group_size", 1)
    if x.shape[:1] != (groups,) or indices.shape[:1] != (groups,) or not 0 < axis < x.rank:
        raise node.fail(f"{x} and {indices} need a first axis of {groups} groups, and an axis above 0")
    return [(x.dtype, (groups, *x.shape[1:axis], *indices.shape[1:], *x.shape[axis + 1 :]))]


def _grouped_gather(bound: BoundOp) -> Call:
    x, indices, out, axis = bound.input(0), bound.input(1), bound.outputs[0], bound.node.attribute("axis", 0) - 1
    return call_chain(*(partial(np.take, x[i], indices[i], axis, out[i], "wrap") for i in range(len(x))))


def _grouped_grad(d: Adjoint) -> list[Value | None]:
    return [d.g.op("GroupedGatherGrad", d.input(1), shape=list(d.shape), axis=d.attribute("axis", 0)), None]


def _grouped_back(bound: BoundOp) -> Call:
    g, indices, out, axis = bound.input(0), bound.input(1), bound.outputs[0], bound.node.attribute("axis", 0) - 1
    count = prod(indices.shape[1:])
    steps = []
    for i, total in enumerate(out):
        rows = along(total, axis)
        steps.append(
            partial(add_rows, view(g[i], (rows.shape[0], count, rows.shape[2])), indices[i].reshape(-1), rows)
        )
    return call_chain(*steps)


def _reduce_shape(node: Node) -> OutputTypes:
    data, indices, axis = node.input(0), node.input(1), node.attribute("axis", -1)
    check_integer_indices(node, indices)
    axis = axis_of(node, axis)
    size = int(node.attribute("axis_size", 0))
    if node.attribute("reduction", "sum") not in _SCATTERS:
        raise node.fail(f"reduction {node.attribute('reduction', '')} is not one of {', '.join(_SCATTERS)}")
    _spread(node, data.shape, indices.shape, axis)
    return [(data.dtype, (*data.shape[:axis], size, *data.shape[axis + 1 :]))]


def _spread(node: Node, data: tuple[int, ...], indices: tuple[int, ...], axis: int) -> tuple[int, ...]:
    """The shape in which ``indices`` broadcast to the data: a vector belongs to ``axis``."""
    if len(indices) == 1:
        indices = tuple(indices[0] if i == axis else 1 for i in range(len(data)))
    try:
        if np.broadcast_shapes(data, indices) == data:
            return indices
    except ValueError:
        pass
    raise node.fail(f"indices {list(indices)} do not broadcast to the data {list(data)}")


#: (how elements combine, what an empty place holds)
_SCATTERS: dict[str, tuple[Any, float]] = {
    "sum": (np.add, 0.0),
    "max": (np.maximum, -np.inf),
    "min": (np.minimum, np.inf),
    "mul": (np.multiply, 1.0),
    "none": (None, 0.0),
}


def _reduce_places(node: Node, data: tuple[int, ...], indices: _Array, size: int) -> tuple[_Array, ...]:
    axis = node.attribute("axis", -1) % len(data)
    wide = np.broadcast_to(indices.reshape(_spread(node, data, indices.shape, axis)), data)
    return index_arrays(wide, axis, size)


def _scatter_reduce(bound: BoundOp) -> Call:
    node, data, out = bound.node, bound.input(0), bound.outputs[0]
    axis = node.attribute("axis", -1) % data.ndim
    indices = _indices(node, bound.input(1), data.shape, axis)
    if indices is None or not out.size or data.dtype.kind == "b":
        return allocating_kernel(_scatter_reduce_numpy)(bound)
    way = node.attribute("reduction", "sum")
    empty = _SCATTERS[way][1]
    rows, places = (
        along(out, axis),
        partial(put_elements, indices, along(data, axis), along(out, axis), SCATTER_REDUCTIONS[way]),
    )
    if len(bound.inputs) > 2:
        return call_chain(partial(np.copyto, out, bound.input(2)), places)
    if np.isfinite(empty):
        return call_chain(partial(out.fill, empty), places)
    limits = np.finfo(data.dtype) if data.dtype.kind == "f" else np.iinfo(data.dtype)
    first = empty if data.dtype.kind == "f" else limits.min if empty < 0 else limits.max
    reached = view(bound.scratch[0].view(bool)[: out.size], rows.shape)
    return call_chain(partial(out.fill, first), places, partial(zero_unindexed, indices, reached, rows))


def _indices(node: Node, indices: _Array, data: tuple[int, ...], axis: int) -> _Array | None:
    return broadcast_along(indices.reshape(_spread(node, data, indices.shape, axis)), data, axis)


def _bit_per_place(node: Node) -> list[int]:
    return [-(-node.outputs[0].nelms // 4)]


def _scatter_reduce_numpy(node: Node, data: _Array, indices: _Array, *initial: _Array) -> _Array:
    function, empty = _SCATTERS[node.attribute("reduction", "sum")]
    axis, size = node.attribute("axis", -1) % data.ndim, int(node.attribute("axis_size", 0))
    shape = (*data.shape[:axis], size, *data.shape[axis + 1 :])
    places = _reduce_places(node, data.shape, indices, size)
    if initial:
        out = initial[0].astype(data.dtype, copy=True)
    else:
        empty = empty if np.isfinite(empty) or data.dtype.kind == "f" else np.iinfo(data.dtype).min
        out = np.full(shape, empty, data.dtype)
    if function is None:
        out[places] = data
    else:
        function.at(out, places, data)
    if not initial and np.isinf(empty):
        reached = np.zeros(shape, bool)
        reached[places] = True
        out[~reached] = 0
    return out


def _scatter_reduce_grad(d: Adjoint) -> list[Value | None]:
    reduction, axis = d.attribute("reduction", "sum"), axis_of(d.node, d.attribute("axis", -1))
    if reduction == "mul":
        raise d.node.fail("a scatter with reduction mul has no gradient; use sum, max or min")
    taken = d.g.op("ScatterReduceGrad", d.input(1), axis=axis, shape=list(d.shape))
    if reduction in ("max", "min"):
        largest = d.y.op("ScatterReduceGrad", d.input(1), axis=axis, shape=list(d.shape))
        taken = d.x.op("Equal", largest).op("Where", taken, taken.like(0.0))
    return [taken, None]


def _scatter_reduce_back(bound: BoundOp) -> Call:
    g, out, axis = bound.input(0), bound.outputs[0], bound.node.attribute("axis", -1)
    indices = _indices(bound.node, bound.input(1), out.shape, axis)
    if indices is None or not g.size:
        return allocating_kernel(_scatter_reduce_back_numpy)(bound)
    return partial(take_elements, along(g, axis), indices, along(out, axis))


def _scatter_reduce_back_numpy(node: Node, g: _Array, indices: _Array) -> _Array:
    shape = tuple(node.attribute("shape", []))
    return g[_reduce_places(node, shape, indices, g.shape[node.attribute("axis", -1)])]


OPS = [
    OpDef(
        "GroupedGather",
        (2, 2),
        _grouped_shape,
        with_contiguous_operands(_grouped_gather),
        copy_cost,
        _grouped_grad,
        domain=GRAPHCORE,
    ),
    OpDef("GroupedGatherGrad", (2, 2), _by_attribute, with_contiguous_operands(_grouped_back), copy_cost),
    OpDef(
        "ScatterReduce",
        (2, 3),
        _reduce_shape,
        with_contiguous_operands(_scatter_reduce),
        copy_cost,
        _scatter_reduce_grad,
        _bit_per_place,
        domain=GRAPHCORE,
    ),
    OpDef("ScatterReduceGrad", (2, 2), _by_attribute, with_contiguous_operands(_scatter_reduce_back), copy_cost),
]
