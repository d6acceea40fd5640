"""Gather: reads of rows, elements or slices at the indices in a tensor; scatter of slices."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from ipu_emu.ops.core import Adjoint, BoundOp, Call, Node, OpDef, OutputTypes, Value, call_chain, copy_cost
from ipu_emu.ops.core.gather_kernels import SCATTER_REDUCTIONS, added_rows, along, put_elements, take_elements
from ipu_emu.ops.core.kernel_helpers import allocating_kernel, with_contiguous_operands
from ipu_emu.ops.core.shape_rules import axis_of, same, shape_attribute
from ipu_emu.ops.indexing.index_arrays import (
    ONNX_REDUCTIONS,
    check_integer_indices,
    check_reduction,
    combine_at,
    index_arrays,
    indexed_axis,
    wrapped_and_clipped,
)

#: An array; numpy's stubs call most results Any.
_Array = Any


# Gather


def _gather_shape(node: Node) -> OutputTypes:
    x, indices = node.input(0), node.input(1)
    check_integer_indices(node, indices)
    axis = indexed_axis(node, x.rank, 0, "GatherOp::setup")
    if not x.shape[axis] and indices.nelms:
        raise node.fail(f"axis {axis} of {x} is empty, so nothing can be gathered")
    return [(x.dtype, (*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :]))]


def _gather(bound: BoundOp) -> Call:
    """Gather rows; negative indices count from the end, indices out of range wrap round."""
    axis = axis_of(bound.node, bound.node.attribute("axis", 0))
    return partial(np.take, bound.input(0), bound.input(1), axis, bound.outputs[0], "wrap")


def _gather_grad(d: Adjoint) -> list[Value | None]:
    """One constant index is a slice: gradients of slices that divide a tensor are joined instead of added."""
    axis, shape = axis_of(d.node, d.attribute("axis", 0)), list(d.shape)
    index = d.node.values[1] if len(d.node.values) > 1 else None
    if index is None or index.size != 1:
        return [d.g.op("GatherGrad", d.input(1), axis=axis, shape=shape), None]
    starts, ends, at = [0] * len(shape), list(shape), int(index.reshape(())) % shape[axis]
    starts[axis], ends[axis] = at, at + 1
    part = d.g.shaped((*shape[:axis], 1, *shape[axis + 1 :]))
    return [part.op("SliceInto", shape=shape, starts=starts, ends=ends, steps=[1] * len(shape)), None]


def _gather_back(bound: BoundOp) -> Call:
    g, indices, out = bound.input(0), bound.input(1), bound.outputs[0]
    return added_rows(g, indices, out, bound.node.attribute("axis", 0))


# Gather and scatter of single elements


def _elements_shape(node: Node) -> OutputTypes:
    x, indices = node.input(0), node.input(1)
    check_integer_indices(node, indices)
    axis_of(node, node.attribute("axis", 0))
    if indices.rank != x.rank:
        raise node.fail(f"indices {indices} must have the rank of {x}")
    return [(x.dtype, indices.shape)]


def _fits(shape: tuple[int, ...], part: tuple[int, ...], axis: int) -> bool:
    """Whether two shapes differ in one axis only, so that kernels can take both as [outer, n, inner]."""
    return all(n == m for i, (n, m) in enumerate(zip(shape, part, strict=True)) if i != axis) and shape[axis] > 0


def _gather_elements(bound: BoundOp) -> Call:
    x, indices, out = bound.input(0), bound.input(1), bound.outputs[0]
    axis = axis_of(bound.node, bound.node.attribute("axis", 0))
    if not _fits(x.shape, indices.shape, axis):
        return allocating_kernel(lambda node, x, indices: x[index_arrays(indices, axis, x.shape[axis])])(bound)
    return partial(take_elements, along(x, axis), along(indices, axis), along(out, axis))


def _gather_elements_grad(d: Adjoint) -> list[Value | None]:
    axis = axis_of(d.node, d.attribute("axis", 0))
    return [d.g.op("ElementsInto", d.input(1), axis=axis, shape=list(d.shape)), None]


def _elements_into(bound: BoundOp) -> Call:
    g, indices, out = bound.input(0), bound.input(1), bound.outputs[0]
    axis = bound.node.attribute("axis", 0)
    if not _fits(out.shape, g.shape, axis):
        return allocating_kernel(_elements_into_numpy)(bound)
    put = partial(put_elements, along(indices, axis), along(g, axis), along(out, axis), SCATTER_REDUCTIONS["add"])
    return call_chain(partial(out.fill, 0), put)


def _elements_into_numpy(node: Node, g: _Array, indices: _Array) -> _Array:
    out, axis = np.zeros(node.attribute("shape", []), g.dtype), node.attribute("axis", 0)
    np.add.at(out, index_arrays(indices, axis, out.shape[axis]), g)
    return out


# Gather and scatter of slices at index vectors


def _nd_shapes(node: Node) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The shape of one gathered slice, and that of the index vectors without their last axis."""
    x, indices, batch = node.input(0), node.input(1), node.attribute("batch_dims", 0)
    check_integer_indices(node, indices)
    depth = indices.shape[-1]
    if depth > x.rank - batch or x.shape[:batch] != indices.shape[:batch]:
        raise node.fail(f"index vectors {indices} do not fit {x} with {batch} batch axes")
    return x.shape[batch + depth :], indices.shape[:-1]


def _gather_nd_shape(node: Node) -> OutputTypes:
    inner, outer = _nd_shapes(node)
    return [(node.input(0).dtype, (*outer, *inner))]


def _nd_places(x: _Array, indices: _Array, batch: int) -> tuple[_Array, ...]:
    depth = indices.shape[-1]
    lead: Any = np.indices(indices.shape[:batch], sparse=True)
    more = indices.ndim - 1 - batch
    grid = [axis.reshape(axis.shape + (1,) * more) for axis in lead]
    return (*grid, *(wrapped_and_clipped(indices[..., i], x.shape[batch + i]) for i in range(depth)))


def _gather_nd(node: Node, x: _Array, indices: _Array) -> _Array:
    return x[_nd_places(x, indices, node.attribute("batch_dims", 0))]


def _gather_nd_grad(d: Adjoint) -> list[Value | None]:
    batch = d.attribute("batch_dims", 0)
    return [d.g.op("SlicesInto", d.input(1), batch_dims=batch, shape=list(d.shape)), None]


def _slices_into(node: Node, g: _Array, indices: _Array) -> _Array:
    out = np.zeros(node.attribute("shape", []), g.dtype)
    np.add.at(out, _nd_places(out, indices, node.attribute("batch_dims", 0)), g)
    return out


def _scatter_nd_shape(node: Node) -> OutputTypes:
    inner, outer = _nd_shapes(node)
    check_reduction(node, "none", ONNX_REDUCTIONS)
    if node.input(2).shape != (*outer, *inner) or node.input(2).dtype is not node.input(0).dtype:
        raise node.fail(f"updates {node.input(2)} must have shape {[*outer, *inner]} and the type of {node.input(0)}")
    return same(node)


def _scatter_nd(node: Node, x: _Array, indices: _Array, updates: _Array) -> _Array:
    out = x.copy()
    combine_at(out, _nd_places(x, indices, 0), updates, node.attribute("reduction", "none"))
    return out


def _scatter_nd_grad(d: Adjoint) -> list[Value | None]:
    reduction = d.attribute("reduction", "none")
    if reduction not in ("none", "add"):
        raise d.node.fail(f"a scatter with reduction {reduction} has no gradient; use none or add")
    updates = d.g.op("GatherND", d.input(1))
    if reduction == "add":
        return [d.g, None, updates]
    return [d.g.op("ScatterND", d.input(1), d.input(2).constantly(0.0)), None, updates]


OPS = [
    OpDef("Gather", (2, 2), _gather_shape, _gather, copy_cost, _gather_grad),
    OpDef("GatherGrad", (2, 2), shape_attribute, with_contiguous_operands(_gather_back), copy_cost),
    OpDef(
        "GatherElements",
        (2, 2),
        _elements_shape,
        with_contiguous_operands(_gather_elements),
        copy_cost,
        _gather_elements_grad,
    ),
    OpDef("ElementsInto", (2, 2), shape_attribute, with_contiguous_operands(_elements_into), copy_cost),
    OpDef("GatherND", (2, 2), _gather_nd_shape, allocating_kernel(_gather_nd), copy_cost, _gather_nd_grad),
    OpDef("SlicesInto", (2, 2), shape_attribute, allocating_kernel(_slices_into), copy_cost),
    OpDef("ScatterND", (3, 3), _scatter_nd_shape, allocating_kernel(_scatter_nd), copy_cost, _scatter_nd_grad),
]
