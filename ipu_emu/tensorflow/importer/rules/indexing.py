"""Rules of ops that read or write elements at indices, and of sorting."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
from tensorflow.python.framework import tensor_util

from ipu_emu.ops import Value
from ipu_emu.tensorflow.importer.node import Rule, SourceNode
from ipu_emu.tensorflow.importer.rules.arithmetic import cast_to


def _gather_v2(node: SourceNode) -> Value:
    """(data, indices, axis)"""
    axis = node.integer(2) % max(len(node.shape(0)), 1)
    batch = int(node.attr("batch_dims")) % max(len(node.shape(1)) + 1, 1)
    return _gathered(node, node.x, axis, batch)


def _gathered(node: SourceNode, data: Value, axis: int, batch: int) -> Value:
    indices = cast_to(node.value(1), np.int32)
    if not batch:
        return data.op("Gather", indices, axis=axis)
    shape, own = data.tensor.shape, indices.tensor.shape
    if axis != batch:
        order = [*range(batch), axis, *(a for a in range(batch, len(shape)) if a != axis)]
        data = data.op("Transpose", perm=order)
    groups, rest = prod(shape[:batch]), data.tensor.shape[batch + 1 :]
    rows = data.shaped((groups * shape[axis], *rest))
    flat_indices = indices.shaped((groups, prod(own[batch:])))
    starts = node.constant(np.arange(groups)[:, None] * shape[axis], np.int32)
    gathered = rows.op("Gather", flat_indices + starts, axis=0).shaped((*own, *rest))
    if axis == batch:
        return gathered
    rank, inner = len(own), axis - batch
    order = [*range(batch), *range(rank, rank + inner), *range(batch, rank), *range(rank + inner, rank + len(rest))]
    return gathered.op("Transpose", perm=order)


def _resource_gather(node: SourceNode) -> Value:
    batch = int(node.attr("batch_dims"))
    return _gathered(node, node.writer.read(node.variable(0)), batch, batch)


def _gather_nd(node: SourceNode) -> Value:
    data, indices = node.x, node.y
    depth = indices.tensor.shape[-1]
    rows = data.shaped((prod(data.tensor.shape[:depth]), *data.tensor.shape[depth:]))
    return rows.op("Gather", _places(node, indices, data.tensor.shape[:depth]), axis=0)


def _places(node: SourceNode, indices: Value, shape: tuple[int, ...]) -> Value:
    """The number of each element that ``indices`` [..., depth] name in an array of ``shape``."""
    strides = [prod(shape[axis + 1 :]) for axis in range(len(shape))]
    numbers = cast_to(indices, np.int32) * node.constant(np.array(strides), np.int32)
    return numbers.op("ReduceSum", axes=[indices.tensor.rank - 1], keepdims=0)


def rows_added(node: SourceNode, updates: Value, places: Value, rows: int) -> Value:
    """Zeros [rows, ...] to which each update is added at its place."""
    rest = updates.tensor.shape[places.tensor.rank :]
    return updates.op("GatherGrad", cast_to(places, np.int32), axis=0, shape=[rows, *rest])


def _segment_sum(node: SourceNode) -> Value:
    """(data, ids, number of segments); rows with a negative id belong to no segment."""
    data, ids = node.x, cast_to(node.y, np.int32)
    inside = ids.op("Less", ids.like(0)).op("Not")
    used = inside.shaped((*ids.tensor.shape, *[1] * (data.tensor.rank - ids.tensor.rank)))
    return rows_added(node, used.op("Where", data, data.like(0)), ids.op("Max", ids.like(0)), node.integer(2))


def _scatter_sum(node: SourceNode, indices: Value, updates: Value, shape: tuple[int, ...]) -> Value:
    depth = indices.tensor.shape[-1]
    sums = rows_added(node, updates, _places(node, indices, shape[:depth]), prod(shape[:depth]))
    return sums.shaped(shape)


def _scatter_nd(node: SourceNode) -> Value:
    """(indices, updates, shape)"""
    return _scatter_sum(node, node.x, node.y, tuple(node.integers(2)))


def _tensor_scatter(sign: int) -> Rule:
    def rule(node: SourceNode) -> Value:
        x = node.x
        change = _scatter_sum(node, node.y, node.value(2), x.tensor.shape)
        return x + change if sign > 0 else x - change

    return rule


def _resource_scatter(sign: int) -> Rule:
    """(variable, row indices, updates)"""

    def rule(node: SourceNode) -> list[Any]:
        variable = node.variable(0)
        old, places, updates = node.writer.read(variable), node.value(1), node.value(2)
        rest = variable.shape[1:]
        change = rows_added(node, updates.spread_to((*places.tensor.shape, *rest)), places, variable.shape[0])
        node.writer.assign(variable, old + change if sign > 0 else old - change)
        return []

    return rule


def _resource_scatter_update(node: SourceNode) -> list[Any]:
    variable = node.variable(0)
    old, places = node.writer.read(variable), cast_to(node.value(1), np.int32)
    updates = node.value(2).spread_to((*places.tensor.shape, *variable.shape[1:]))
    node.writer.assign(variable, old.op("ScatterND", places.shaped((*places.tensor.shape, 1)), updates))
    return []


def _one_hot(node: SourceNode) -> Value:
    """(indices, depth, on, off)"""
    indices, depth, axis = cast_to(node.x, np.int32), node.integer(1), int(node.attr("axis"))
    shape = indices.tensor.shape
    place = axis % (len(shape) + 1)
    wide = indices.shaped((*shape[:place], 1, *shape[place:]))
    classes = np.arange(depth).reshape(depth, *(1,) * (len(shape) - place))
    return wide.op("Equal", node.constant(classes, np.int32)).op("Where", node.value(2), node.value(3))


def _bounded(size: Any) -> int | None:
    """The value n of ``min(max(x, n), n)``, whatever x is."""
    while size.op.type in ("Cast", "Identity"):
        size = size.op.inputs[0]
    if size.op.type != "Minimum":
        return None
    most, inner = _split(size.op)
    least, _ = _split(inner.op) if inner is not None and inner.op.type == "Maximum" else (None, None)
    return most if most is not None and most == least else None


def _split(op: Any) -> tuple[int | None, Any]:
    """The constant operand of an op with two operands, and the other operand."""
    for own, other in (op.inputs, reversed(op.inputs)):
        value = tensor_util.constant_value(own)
        if value is not None:
            return int(value), other
    return None, None


def _count(node: SourceNode) -> Value:
    """(numbers [N] or [rows, N], size, weights): the count, or the sum of weights, of each number below ``size``."""
    bounded = _bounded(node.op.inputs[1])
    size = node.integer(1) if bounded is None else bounded
    numbers, kind = cast_to(node.x, np.int32), node.numpy_of("T")
    shape = numbers.tensor.shape
    matches = numbers.shaped((*shape, 1)).op("Equal", node.constant(np.arange(size), np.int32))
    unit = node.constant(1, kind)
    weights = unit if 0 in node.shape(2) else node.value(2).shaped((*shape, 1))
    if node.has("binary_output") and node.attr("binary_output"):
        return matches.op("Where", unit, unit.like(0)).op("ReduceMax", axes=[len(shape) - 1], keepdims=0)
    return matches.op("Where", weights, unit.like(0)).op("ReduceSum", axes=[len(shape) - 1], keepdims=0)


def _top_k(node: SourceNode) -> list[Value]:
    x = node.x
    values, places = x.ops(2, "TopK", node.constant([node.integer(1)], np.int32), axis=x.tensor.rank - 1)
    kind = node.numpy_of("index_type") if node.has("index_type") else np.int32
    return [values, cast_to(places, kind)]


def _in_top_k(node: SourceNode) -> Value:
    """(predictions [N, C], targets, k): fewer than k classes are above the target."""
    predictions, targets = node.x, cast_to(node.y, np.int32)
    rows, classes = predictions.tensor.shape
    flat = predictions.shaped((rows * classes,))
    starts = node.constant(np.arange(rows) * classes, np.int32)
    target = flat.op("Gather", starts + targets, axis=0).shaped((rows, 1))
    above = cast_to(predictions.op("Greater", target), np.int32).op("ReduceSum", axes=[1], keepdims=0)
    return above.op("Less", node.constant(node.integer(2), np.int32))


RULES: dict[str, Rule] = {
    "DenseBincount": _count,
    "Gather": lambda node: node.x.op("Gather", cast_to(node.y, np.int32), axis=0),
    "GatherNd": _gather_nd,
    "GatherV2": _gather_v2,
    "InTopKV2": _in_top_k,
    "OneHot": _one_hot,
    "ResourceGather": _resource_gather,
    "ResourceScatterAdd": _resource_scatter(1),
    "ResourceScatterSub": _resource_scatter(-1),
    "ResourceScatterUpdate": _resource_scatter_update,
    "ScatterNd": _scatter_nd,
    "SegmentSum": lambda node: rows_added(node, node.x, node.y, int(node.known(1).max(initial=-1)) + 1),
    "TensorScatterAdd": _tensor_scatter(1),
    "TensorScatterSub": _tensor_scatter(-1),
    "TensorScatterUpdate": lambda node: node.x.op("ScatterND", cast_to(node.y, np.int32), node.value(2)),
    "TopKV2": _top_k,
    "UnsortedSegmentSum": _segment_sum,
}
