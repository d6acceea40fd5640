"""Ordering: the largest elements, their places, sorted and running values along one axis."""

from __future__ import annotations

from typing import Any

import numpy as np

from ipu_emu.graph.dtype import INT32, INT64
from ipu_emu.graph.op import GRAPHCORE
from ipu_emu.ops.adjoint import Adjoint, Value
from ipu_emu.ops.arrays import computed
from ipu_emu.ops.cost import flops
from ipu_emu.ops.node import Made, Node
from ipu_emu.ops.registry import OpDef
from ipu_emu.ops.shapes import axes_of, axis_of, same

__all__ = ["OPS"]

#: An array; numpy's stubs call most results Any.
_Array = Any


# Places of extremes


def _arg_shape(node: Node) -> Made:
    x, axis = node.input(0), axis_of(node, node.attribute("axis", 0))
    if not x.shape[axis]:
        raise node.fail(f"axis {axis} of {x} has no largest element")
    kept = (1,) if node.attribute("keepdims", 1) else ()
    return [(INT64, (*x.shape[:axis], *kept, *x.shape[axis + 1 :]))]


def _arg(function: Any) -> Any:
    def find(node: Node, x: _Array) -> _Array:
        axis, keep = axis_of(node, node.attribute("axis", 0)), bool(node.attribute("keepdims", 1))
        if not node.attribute("select_last_index", 0):
            made: _Array = function(x, axis, keepdims=keep)
            return made
        last: _Array = x.shape[axis] - 1 - function(np.flip(x, axis), axis, keepdims=keep)
        return last

    return computed(find)


# The k largest


def _k(node: Node) -> int:
    k = node.given("k", 1)
    return int(k[0] if isinstance(k, list) else k)


def _top_k_shape(node: Node) -> Made:
    x, axis, k = node.input(0), axis_of(node, node.attribute("axis", -1)), _k(node)
    if not 0 <= k <= x.shape[axis]:
        raise node.fail(f"k {k} was asked for, axis {axis} of {x} has {x.shape[axis]}")
    shape = (*x.shape[:axis], k, *x.shape[axis + 1 :])
    return [(x.dtype, shape), (INT64, shape)]


def _order(x: _Array, axis: int, *, largest: bool) -> _Array:
    """Places from the first to the last; of equal elements the one in front comes first."""
    if not largest:
        return np.argsort(x, axis, kind="stable")
    last = x.shape[axis] - 1
    return last - np.flip(np.argsort(np.flip(x, axis), axis, kind="stable"), axis)


def _top_k(node: Node, x: _Array, *k: _Array) -> tuple[_Array, _Array]:
    axis = axis_of(node, node.attribute("axis", -1))
    order = _order(x, axis, largest=bool(node.attribute("largest", 1)))
    places = np.take(order, range(_k(node)), axis)
    return np.take_along_axis(x, places, axis), places


def _places_grad(d: Adjoint) -> list[Value | None]:
    """Each element of the result goes back to where it was."""
    axis = axis_of(d.node, d.attribute("axis", -1))
    return [d.gradient(0).op("ElementsInto", d.outputs[1], axis=axis, shape=list(d.shape))]


def _sort_shape(node: Node) -> Made:
    axis_of(node, node.attribute("axis", -1))
    x = node.input(0)
    return [(x.dtype, x.shape), (INT32, x.shape)]


def _sort(node: Node, x: _Array) -> tuple[_Array, _Array]:
    axis = axis_of(node, node.attribute("axis", -1))
    order = _order(x, axis, largest=bool(node.attribute("descending", 0)))
    return np.take_along_axis(x, order, axis), order


def _median_shape(node: Node) -> Made:
    x, axes = node.input(0), axes_of(node, node.attribute("axes", None))
    if node.attribute("keepdims", 1):
        shape = tuple(1 if i in axes else n for i, n in enumerate(x.shape))
    else:
        shape = tuple(n for i, n in enumerate(x.shape) if i not in axes)
    return [(x.dtype, shape), (INT32, shape)]


def _median(node: Node, x: _Array) -> tuple[_Array, _Array]:
    """The lower of the two middle elements, and its place among those that were reduced."""
    axes = axes_of(node, node.attribute("axes", None))
    kept = [i for i in range(x.ndim) if i not in axes]
    rows = x.transpose([*kept, *axes]).reshape([*(x.shape[i] for i in kept), -1])
    places = np.argsort(rows, -1, kind="stable")[..., (rows.shape[-1] - 1) // 2]
    values = np.take_along_axis(rows, places[..., None], -1)[..., 0]
    shape = node.outputs[0].shape
    return values.reshape(shape), places.reshape(shape)


def _median_grad(d: Adjoint) -> Value:
    attributes = {"axes": list(axes_of(d.node, d.attribute("axes", None))), "shape": list(d.shape)}
    return d.gradient(0).op("ReduceMedianGrad", d.outputs[1], **attributes)


def _by_attribute(node: Node) -> Made:
    return [(node.input(0).dtype, tuple(node.attribute("shape", [])))]


def _median_back(node: Node, g: _Array, places: _Array) -> _Array:
    shape, axes = tuple(node.attribute("shape", [])), node.attribute("axes", [])
    kept = [i for i in range(len(shape)) if i not in axes]
    rows = np.zeros((g.size, int(np.prod([shape[i] for i in axes]))), g.dtype)
    rows[np.arange(g.size), places.reshape(-1)] = g.reshape(-1)
    order = [*kept, *axes]
    return rows.reshape([shape[i] for i in order]).transpose([order.index(i) for i in range(len(shape))])


# Running sums


def _axis_input(node: Node) -> int:
    axis = node.given("axis", 1)
    return axis_of(node, int(axis[0] if isinstance(axis, list) else axis))


def _running_shape(node: Node) -> Made:
    _axis_input(node)
    return same(node)


def _running(function: Any, start: int) -> Any:
    def run(node: Node, x: _Array, *axis: _Array) -> _Array:
        along = _axis_input(node)
        x = np.flip(x, along) if node.attribute("reverse", 0) else x
        made: _Array = function(x, along, dtype=x.dtype)
        if node.attribute("exclusive", 0) and x.shape[along]:
            first = np.full_like(np.take(x, [0], along), start)
            made = np.concatenate([first, np.take(made, range(x.shape[along] - 1), along)], along)
        return np.flip(made, along) if node.attribute("reverse", 0) else made

    return computed(run)


def _cumulative_grad(d: Adjoint) -> list[Value | None]:
    back = {"exclusive": d.attribute("exclusive", 0), "reverse": 1 - d.attribute("reverse", 0)}
    return [d.g.op("CumSumAlong", axis=_axis_input(d.node), **back)]


def _reverse_sequence_shape(node: Node) -> Made:
    x, axes = node.input(0), {node.attribute("batch_axis", 1), node.attribute("time_axis", 0)}
    if axes != {0, 1} or x.rank < 2 or node.input(1).shape != (x.shape[node.attribute("batch_axis", 1)],):
        raise node.fail(f"{x} and lengths {node.input(1)} do not fit batch and time axes 0 and 1")
    return same(node)


def _reverse_sequence(node: Node, x: _Array, lengths: _Array) -> _Array:
    """The first elements of each sequence turned round, the rest as they are."""
    batch, time = node.attribute("batch_axis", 1), node.attribute("time_axis", 0)
    out = x.copy()
    rows, target = np.moveaxis(x, [batch, time], [0, 1]), np.moveaxis(out, [batch, time], [0, 1])
    for index, length in enumerate(lengths.tolist()):
        target[index, :length] = rows[index, :length][::-1]
    return out


def _reverse_sequence_grad(d: Adjoint) -> list[Value | None]:
    return [d.g.op("ReverseSequence", d.input(1), **d.node.op.attributes), None]


# Buckets


def _bucket_shape(node: Node) -> Made:
    x, boundaries = node.input(0), node.input(1)
    if boundaries.rank != 1 or boundaries.dtype is not x.dtype:
        raise node.fail(f"boundaries must be a vector of the type of {x}, found {boundaries}")
    return [(INT32, x.shape)]


def _bucketize(node: Node, x: _Array, boundaries: _Array) -> _Array:
    """How many boundaries lie below each element; with ``right`` also those that it equals."""
    return np.searchsorted(boundaries, x, "right" if node.attribute("right", 0) else "left")


_cost = flops(lambda node: node.input(0).nelms)

OPS = [
    OpDef("ArgMax", (1, 1), _arg_shape, _arg(np.argmax), _cost),
    OpDef("ArgMin", (1, 1), _arg_shape, _arg(np.argmin), _cost),
    OpDef("TopK", (1, 2), _top_k_shape, computed(_top_k), _cost, _places_grad, given={1: "k"}),
    OpDef("Sort", (1, 1), _sort_shape, computed(_sort), _cost, _places_grad, domain=GRAPHCORE),
    OpDef("ReduceMedian", (1, 1), _median_shape, computed(_median), _cost, _median_grad, domain=GRAPHCORE),
    OpDef("ReduceMedianGrad", (2, 2), _by_attribute, computed(_median_back), _cost),
    OpDef("Bucketize", (2, 2), _bucket_shape, computed(_bucketize), _cost, domain=GRAPHCORE),
    OpDef("CumSum", (2, 2), _running_shape, _running(np.cumsum, 0), _cost, _cumulative_grad, given={1: "axis"}),
    OpDef("CumSumAlong", (1, 1), same, _running(np.cumsum, 0), _cost),
    OpDef("CumProd", (2, 2), _running_shape, _running(np.cumprod, 1), _cost, given={1: "axis"}),
    OpDef(
        "ReverseSequence", (2, 2), _reverse_sequence_shape, computed(_reverse_sequence), _cost, _reverse_sequence_grad
    ),
]
