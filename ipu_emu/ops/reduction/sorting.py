"""Sorting: the largest elements, their positions, sorted and cumulative values along one axis."""

from __future__ import annotations

from functools import partial
from math import prod
from typing import Any

import numpy as np

from ipu_emu.graph.dtype import INT32, INT64
from ipu_emu.graph.op import GRAPHCORE
from ipu_emu.ops.core import Adjoint, BoundOp, Call, Kernel, Node, OpDef, OutputTypes, Value, call_chain, flops
from ipu_emu.ops.core.kernel_helpers import allocating_kernel, view, with_contiguous_operands
from ipu_emu.ops.core.shape_rules import axis_of, reduced_axes, same, shape_attribute
from ipu_emu.ops.reduction.sorting_kernels import extremes, sort_rows

#: An array; numpy's stubs call most results Any.
_Array = Any


# Indices of extremes


def _arg_shape(node: Node) -> OutputTypes:
    x, axis = node.input(0), axis_of(node, node.attribute("axis", 0))
    if not x.shape[axis]:
        raise node.fail(f"axis {axis} of {x} is empty, so it has no largest element")
    reduced = (1,) if node.attribute("keepdims", 1) else ()
    return [(INT64, (*x.shape[:axis], *reduced, *x.shape[axis + 1 :]))]


def _arg(*, largest: bool) -> Kernel:
    def kernel(bound: BoundOp) -> Call:
        axis, last = (
            axis_of(bound.node, bound.node.attribute("axis", 0)),
            bound.node.attribute("select_last_index", 0),
        )
        x = _rows(bound.input(0), axis)
        out = view(bound.outputs[0], (x.shape[0], x.shape[2]))
        return partial(extremes, x, out, largest, bool(last))

    return with_contiguous_operands(kernel)


def _rows(x: _Array, axis: int) -> _Array:
    """``x`` as [outer, n, inner]."""
    return view(x, (prod(x.shape[:axis]), x.shape[axis], prod(x.shape[axis + 1 :])))


# The k largest


def _top_k_shape(node: Node) -> OutputTypes:
    x, axis, k = node.input(0), axis_of(node, node.attribute("axis", -1)), node.integer("k", 1)
    if not 0 <= k <= x.shape[axis]:
        raise node.fail(f"k {k} does not fit axis {axis} of {x}; use 0 to {x.shape[axis]}")
    shape = (*x.shape[:axis], k, *x.shape[axis + 1 :])
    return [(x.dtype, shape), (INT64, shape)]


def _ordered(falls: str, default: int) -> Kernel:
    """A kernel of the first k elements; the attribute ``falls`` selects descending order."""

    def kernel(bound: BoundOp) -> Call:
        node = bound.node
        axis = axis_of(node, node.attribute("axis", -1))
        x, values, places = (_rows(array, axis) for array in (bound.input(0), *bound.outputs))
        room = bound.scratch[0].view(np.int32)[: 2 * x.shape[1]].reshape(2, -1)
        return partial(sort_rows, x, room, values, places, bool(node.attribute(falls, default)))

    return with_contiguous_operands(kernel)


def _two_rows(node: Node) -> list[int]:
    return [2 * node.input(0).shape[axis_of(node, node.attribute("axis", -1))]]


def _places_grad(d: Adjoint) -> list[Value | None]:
    """Scatter the gradient to the indices of the selected elements."""
    axis = axis_of(d.node, d.attribute("axis", -1))
    return [d.gradient(0).op("ElementsInto", d.outputs[1], axis=axis, shape=list(d.shape))]


def _sort_shape(node: Node) -> OutputTypes:
    axis_of(node, node.attribute("axis", -1))
    x = node.input(0)
    return [(x.dtype, x.shape), (INT32, x.shape)]


def _median_shape(node: Node) -> OutputTypes:
    x, axes = node.input(0), reduced_axes(node, node.attribute("axes", None))
    if not all(x.shape[axis] for axis in axes):
        raise node.fail(f"axes {list(axes)} of {x} have no middle element")
    if node.attribute("keepdims", 1):
        shape = tuple(1 if i in axes else n for i, n in enumerate(x.shape))
    else:
        shape = tuple(n for i, n in enumerate(x.shape) if i not in axes)
    return [(x.dtype, shape), (INT32, shape)]


def _median(node: Node, x: _Array) -> tuple[_Array, _Array]:
    """The lower median, and its index among the reduced elements."""
    axes = reduced_axes(node, node.attribute("axes", None))
    others = [i for i in range(x.ndim) if i not in axes]
    rows = x.transpose([*others, *axes]).reshape([*(x.shape[i] for i in others), prod(x.shape[i] for i in axes)])
    places = np.argsort(rows, -1, kind="stable")[..., (rows.shape[-1] - 1) // 2]
    values = np.take_along_axis(rows, places[..., None], -1)[..., 0]
    shape = node.outputs[0].shape
    return values.reshape(shape), places.reshape(shape)


def _median_grad(d: Adjoint) -> Value:
    attributes = {"axes": list(reduced_axes(d.node, d.attribute("axes", None))), "shape": list(d.shape)}
    return d.gradient(0).op("ReduceMedianGrad", d.outputs[1], **attributes)


def _median_back(node: Node, g: _Array, places: _Array) -> _Array:
    shape, axes = tuple(node.attribute("shape", [])), node.attribute("axes", [])
    others = [i for i in range(len(shape)) if i not in axes]
    rows = np.zeros((g.size, int(np.prod([shape[i] for i in axes]))), g.dtype)
    rows[np.arange(g.size), places.reshape(-1)] = g.reshape(-1)
    order = [*others, *axes]
    return rows.reshape([shape[i] for i in order]).transpose([order.index(i) for i in range(len(shape))])


# Running sums


def _axis_input(node: Node) -> int:
    return axis_of(node, node.integer("axis", 1))


def _running_shape(node: Node) -> OutputTypes:
    _axis_input(node)
    return same(node)


def _running(function: Any, start: int) -> Kernel:
    def kernel(bound: BoundOp) -> Call:
        x, y, along = bound.input(0), bound.outputs[0], _axis_input(bound.node)
        if bound.node.attribute("reverse", 0):
            x, y = np.flip(x, along), np.flip(y, along)
        if not bound.node.attribute("exclusive", 0):
            return partial(function, x, along, x.dtype, y)
        x, y = np.moveaxis(x, along, 0), np.moveaxis(y, along, 0)
        return call_chain(partial(y[:1].fill, start), partial(function, x[:-1], 0, x.dtype, y[1:]))

    return kernel


def _cumulative_grad(d: Adjoint) -> list[Value | None]:
    back = {"exclusive": d.attribute("exclusive", 0), "reverse": 1 - d.attribute("reverse", 0)}
    return [d.g.op("CumSumAlong", axis=_axis_input(d.node), **back)]


def _reverse_sequence_shape(node: Node) -> OutputTypes:
    x, axes = node.input(0), {node.attribute("batch_axis", 1), node.attribute("time_axis", 0)}
    if axes != {0, 1} or x.rank < 2 or node.input(1).shape != (x.shape[node.attribute("batch_axis", 1)],):
        raise node.fail(f"the axes must be 0 and 1, with one length per sequence; found {x}, lengths {node.input(1)}")
    return same(node)


def _reverse_sequence(node: Node, x: _Array, lengths: _Array) -> _Array:
    """The first ``length`` elements of each sequence reversed, the rest unchanged."""
    batch, time = node.attribute("batch_axis", 1), node.attribute("time_axis", 0)
    out = x.copy()
    rows, target = np.moveaxis(x, [batch, time], [0, 1]), np.moveaxis(out, [batch, time], [0, 1])
    for index, length in enumerate(lengths.tolist()):
        target[index, :length] = rows[index, :length][::-1]
    return out


# Buckets


def _bucket_shape(node: Node) -> OutputTypes:
    x, boundaries = node.input(0), node.input(1)
    if boundaries.rank != 1 or not boundaries.nelms or boundaries.dtype is not x.dtype:
        raise node.fail(f"boundaries must be a vector of at least one number of the type of {x}, found {boundaries}")
    return [(INT32, x.shape)]


def _bucketize(node: Node, x: _Array, boundaries: _Array) -> _Array:
    """The bucket of each element: i where b[i - 1] < x <= b[i], with ``right`` where b[i - 1] <= x < b[i].

    Boundaries may be in any order: of several buckets the smallest i counts, 0 last; n of them where none holds x.
    """
    right = node.attribute("right", 0)
    first = x < boundaries[0] if right else x <= boundaries[0]
    out = np.where(first, 0, len(boundaries))
    for i in range(len(boundaries) - 1, 0, -1):
        low, high = boundaries[i - 1], boundaries[i]
        np.copyto(out, i, where=(low <= x) & (x < high) if right else (low < x) & (x <= high))
    return out


_cost = flops(lambda node: node.input(0).nelms)

OPS = [
    OpDef("ArgMax", (1, 1), _arg_shape, _arg(largest=True), _cost),
    OpDef("ArgMin", (1, 1), _arg_shape, _arg(largest=False), _cost),
    OpDef(
        "TopK", (1, 2), _top_k_shape, _ordered("largest", 1), _cost, _places_grad, _two_rows, constant_inputs={1: "k"}
    ),
    OpDef("Sort", (1, 1), _sort_shape, _ordered("descending", 0), _cost, _places_grad, _two_rows, domain=GRAPHCORE),
    OpDef("ReduceMedian", (1, 1), _median_shape, allocating_kernel(_median), _cost, _median_grad, domain=GRAPHCORE),
    OpDef("ReduceMedianGrad", (2, 2), shape_attribute, allocating_kernel(_median_back), _cost),
    OpDef("Bucketize", (2, 2), _bucket_shape, allocating_kernel(_bucketize), _cost, domain=GRAPHCORE),
    OpDef(
        "CumSum",
        (2, 2),
        _running_shape,
        _running(np.add.accumulate, 0),
        _cost,
        _cumulative_grad,
        constant_inputs={1: "axis"},
    ),
    OpDef("CumSumAlong", (1, 1), same, _running(np.add.accumulate, 0), _cost),
    OpDef("CumProd", (2, 2), _running_shape, _running(np.multiply.accumulate, 1), _cost, constant_inputs={1: "axis"}),
    OpDef(
        "ReverseSequence",
        (2, 2),
        _reverse_sequence_shape,
        allocating_kernel(_reverse_sequence),
        _cost,
        lambda d: [d.g.op("ReverseSequence", d.input(1), **d.node.op.attributes), None],
    ),
]
