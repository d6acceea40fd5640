"""Indexing: reads and writes of elements and rows at computed positions."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
import torch

from ipu_emu.graph.dtype import BOOL, FLOAT, INT32
from ipu_emu.ops import Value
from ipu_emu.poptorch.aten.call import Call, Rule, cast

_DYNAMIC = (
    "Operations using aten::{} are unsupported because the output shape is determined by the tensor values. The IPU "
    "cannot support dynamic output shapes."
)


def _embedding(call: Call) -> Value:
    weight, indices = call.value("weight"), cast(call.value("indices"), INT32)
    rows = weight.op("Gather", indices, axis=0)
    padding = int(call.get("padding_idx", -1))
    if padding < 0:
        return rows
    pads = indices.op("Equal", indices.like(padding)).shaped((*indices.tensor.shape, 1))
    return pads.op("Where", rows.op("Detach"), rows)


def _gather(call: Call) -> Value:
    index = cast(call.value("index"), INT32)
    if not index.tensor.rank:
        index = index.shaped((1,))
    return _elements(call, call.atleast_1d, index, call.axis())


def _elements(call: Call, x: Value, index: Value, axis: int) -> Value:
    """Gather elements; ``x`` may be larger than ``index`` in other axes."""
    for other, (size, wanted) in enumerate(zip(x.tensor.shape, index.tensor.shape, strict=True)):
        if other != axis and size > wanted:
            x = call.sliced(x, [0], [wanted], [other])
    return x.op("GatherElements", index, axis=axis)


def _index_select(call: Call) -> Value:
    index = cast(call.value("index"), INT32)
    return call.atleast_1d.op("Gather", index.shaped((-1,)), axis=call.axis()).shaped(call.shape)


def _take(call: Call) -> Value:
    x = call.x
    return x.shaped((x.tensor.nelms,)).op("Gather", cast(call.value("index"), INT32), axis=0)


class _Indexed:
    """``x[indices]`` as rows of a matrix: the indexed axes together, the others after them."""

    def __init__(self, call: Call, x: Value, indices: list[Any]) -> None:
        self.call = call
        shape = x.tensor.shape
        by_axis: list[tuple[int, Value]] = []
        axis = 0
        for index in indices:
            if index is None:
                axis += 1
            elif index.dtype in (torch.bool, torch.uint8):
                for positions in np.nonzero(self._mask(index)):
                    by_axis.append((axis, call.constant(positions, np.int32)))
                    axis += 1
            else:
                by_axis.append((axis, cast(call.of(index), INT32)))
                axis += 1
        self.axes = [number for number, _ in by_axis]
        self.rest = [number for number in range(len(shape)) if number not in self.axes]
        self.index_shape = tuple(np.broadcast_shapes(*(value.tensor.shape for _, value in by_axis)))
        self.sizes = [shape[number] for number in self.axes]
        place: Value | None = None
        for size, (_, value) in zip(self.sizes, by_axis, strict=True):
            inside = value.op("Less", value.like(0)).op("Where", value + value.like(size), value)
            place = inside if place is None else place * inside.like(size) + inside
        assert place is not None
        self.place = place.spread_to(self.index_shape)
        self.perm = [*self.axes, *self.rest]
        turned = x if self.perm == list(range(len(shape))) else x.op("Transpose", perm=self.perm)
        self.turned_shape = turned.tensor.shape
        self.rest_shape = tuple(shape[number] for number in self.rest)
        self.rows = turned.shaped((prod(self.sizes), *self.rest_shape))

    def _mask(self, tensor: torch.Tensor) -> Any:
        value = self.call.of(tensor)
        array = self.call.writer.graph.data.get(value.tensor.id)
        if array is None or value.tensor.role.name != "CONSTANT":
            raise self.call.refuse(_DYNAMIC.format("nonzero"))
        return array

    @property
    def together(self) -> bool:
        """Whether the indexed axes are adjacent: the axes of the index then replace them in the result."""
        return self.axes == list(range(self.axes[0], self.axes[0] + len(self.axes)))

    def read(self) -> Value:
        rows = self.rows.op("Gather", self.place, axis=0)
        return self._placed(rows, back=False)

    def _placed(self, value: Value, *, back: bool) -> Value:
        """Move the index's axes from the front to their place, or ``back``."""
        first, count = self.axes[0], len(self.index_shape)
        if not self.together or not first:
            return value
        rank = count + len(self.rest)
        perm = [*range(count, count + first), *range(count), *range(count + first, rank)]
        if back:
            inverse = [0] * rank
            for number, axis in enumerate(perm):
                inverse[axis] = number
            perm = inverse
        return value.op("Transpose", perm=perm)

    def written(self, values: Value, *, accumulate: bool) -> Value:
        """Return x with the rows at the indices replaced, or added to."""
        first = self.axes[0] if self.together else 0
        shape = (*self.rest_shape[:first], *self.index_shape, *self.rest_shape[first:])
        spread = self._placed(values.spread_to(shape), back=True)
        count = prod(self.index_shape)
        rows = spread.shaped((count, *self.rest_shape))
        places = self.place.shaped((count, 1))
        filled = self.rows.op("ScatterND", places, rows, reduction="add" if accumulate else "none")
        back = [0] * len(self.perm)
        for number, axis in enumerate(self.perm):
            back[axis] = number
        turned = filled.shaped(self.turned_shape)
        return turned if back == list(range(len(back))) else turned.op("Transpose", perm=back)


def _index(call: Call) -> Value:
    return _Indexed(call, call.x, list(call["indices"])).read().shaped(call.shape)


def _index_put(call: Call) -> Value:
    x, indices = call.x, list(call["indices"])
    values = cast(call.value("values"), x.tensor.dtype)
    if len(indices) == 1 and indices[0].dtype is torch.bool and values.tensor.nelms == 1:
        mask = call.of(indices[0])
        mask = mask.shaped((*mask.tensor.shape, *[1] * (x.tensor.rank - mask.tensor.rank)))
        new = values.shaped(())
        if call.get("accumulate", False):
            new = x + new
        return mask.op("Where", new, x)
    return _Indexed(call, x, indices).written(values, accumulate=bool(call.get("accumulate", False)))


def _index_fill(call: Call) -> Value:
    x, axis = call.x, call.axis()
    index = cast(call.value("index"), INT32)
    size = x.tensor.shape[axis]
    index = index.op("Less", index.like(0)).op("Where", index + index.like(size), index)
    hits = index.shaped((-1, 1)).op("Equal", call.constant(np.arange(size), np.int32))
    hit = cast(cast(hits, INT32).op("ReduceMax", axes=[0], keepdims=0), BOOL)
    hit = hit.shaped(tuple(size if i == axis else 1 for i in range(x.tensor.rank)))
    return hit.op("Where", call.as_type(call["value"], x.tensor.dtype), x)


def _index_write(reduction: str) -> Rule:
    def rule(call: Call) -> Value:
        x, axis = call.x, call.axis()
        index, source = cast(call.value("index"), INT32), cast(call.value("source"), x.tensor.dtype)
        if call.get("alpha", 1) != 1:
            source = source.scaled(call["alpha"])
        rank = x.tensor.rank
        perm = [axis, *(number for number in range(rank) if number != axis)]
        back = [perm.index(number) for number in range(rank)]
        turn = axis != 0
        rows = x.op("Transpose", perm=perm) if turn else x
        new = source.op("Transpose", perm=perm) if turn else source
        scattered = rows.op("ScatterND", index.shaped((-1, 1)), new, reduction=reduction)
        return scattered.op("Transpose", perm=back) if turn else scattered

    return rule


_REDUCE: dict[str | None, str] = {**dict.fromkeys(("sum", "add", "mean"), "add"), "prod": "mul", "multiply": "mul"}
_REDUCE |= {"amax": "max", "amin": "min", None: "none"}


def _scatter(reduction: str | None) -> Rule:
    def rule(call: Call) -> Value:
        x, index, axis = call.x, cast(call.value("index"), INT32), call.axis()
        source = call["src"] if "src" in call.arguments else call["value"]
        values = call.as_type(source, x.tensor.dtype)
        shape = index.tensor.shape
        if not values.tensor.shape:
            values = values.spread_to(shape)
        for other, (size, wanted) in enumerate(zip(values.tensor.shape, shape, strict=True)):
            if size > wanted:
                values = call.sliced(values, [0], [wanted], [other])
        how = reduction if reduction is not None else _REDUCE[call.get("reduce")]
        if how == "none" and not x.tensor.rank:
            return values
        return _combined(call, x, index, values, axis, how)

    return rule


def _combined(call: Call, x: Value, index: Value, values: Value, axis: int, how: str) -> Value:
    """Combine ``values`` with the elements of ``x``, or, without ``include_self``, replace those that have any."""
    mean, alone = call.get("reduce") == "mean", not call.get("include_self", True)
    hits = x.like(0)
    if mean or alone:
        ones = x.like(1).spread_to(index.tensor.shape)
        hits = x.like(0).spread_to(x.tensor.shape).op("ScatterElements", index, ones, axis=axis, reduction="add")
    if alone:
        x = hits.op("Greater", hits.like(0)).op("Where", call.number(_neutral(x, how), x), x)
    combined = x.op("ScatterElements", index, values, axis=axis, reduction=how)
    if not mean:
        return combined
    count = hits.op("Max", hits.like(1)) if alone else hits + hits.like(1)
    return combined / count if combined.tensor.dtype.is_float else _floored(combined, count)


def _floored(total: Value, count: Value) -> Value:
    return (total - total.op("Mod", count)) / count


def _neutral(x: Value, how: str) -> float:
    """The value that changes nothing under a reduction."""
    if how in ("max", "min") and x.tensor.dtype.is_float:
        return -np.inf if how == "max" else np.inf
    if how in ("max", "min"):
        limits = np.iinfo(x.tensor.dtype.numpy)
        return float(limits.min if how == "max" else limits.max)
    return 1 if how == "mul" else 0


def _index_reduce(call: Call) -> Value:
    x, axis = call.x, call.axis()
    values = cast(call.value("source"), x.tensor.dtype)
    shape = tuple(-1 if i == axis else 1 for i in range(x.tensor.rank))
    index = cast(call.value("index"), INT32).shaped(shape).spread_to(values.tensor.shape)
    return _combined(call, x, index, values, axis, _REDUCE[call["reduce"]])


def _slice_scatter(call: Call) -> Value:
    x, new, axis = call.x, cast(call.value("src"), call.x.tensor.dtype), call.axis()
    size = x.tensor.shape[axis]
    start, end, step = slice(call.get("start"), call.get("end"), call.get("step", 1)).indices(size)
    if step != 1:
        raise call.refuse("In-place modification of slices with step size other than 1 is not supported.")
    return _inserted(call, x, new, axis, start, end)


def _select_scatter(call: Call) -> Value:
    x, axis = call.x, call.axis()
    index = int(call["index"]) % x.tensor.shape[axis]
    shape = tuple(1 if i == axis else size for i, size in enumerate(x.tensor.shape))
    return _inserted(call, x, cast(call.value("src"), x.tensor.dtype).shaped(shape), axis, index, index + 1)


def _inserted(call: Call, x: Value, new: Value, axis: int, start: int, end: int) -> Value:
    size, pieces = x.tensor.shape[axis], [new]
    if start:
        pieces.insert(0, call.sliced(x, [0], [start], [axis]))
    if end < size:
        pieces.append(call.sliced(x, [end], [size], [axis]))
    return pieces[0].op("Concat", *pieces[1:], axis=axis) if len(pieces) > 1 else new


def _one_hot(call: Call) -> Value:
    count = int(call.get("num_classes", -1))
    if count < 0:
        raise call.refuse("OneHot num classes must be specified and must be constant.")
    index = cast(call.value("tensor"), INT32)
    classes = call.constant(np.arange(count), np.int32)
    return cast(index.shaped((*index.tensor.shape, 1)).op("Equal", classes), INT32)


def _bincount(call: Call) -> Value:
    x, count = cast(call.x, INT32), call.shape[0]
    if not call.get("minlength", 0):
        raise call.refuse("minlength must be given, because shapes are fixed")
    hits = x.shaped((-1, 1)).op("Equal", call.constant(np.arange(count), np.int32))
    weights = call.optional("weights")
    if weights is None:
        return cast(hits, INT32).op("ReduceSum", axes=[0], keepdims=0)
    return (cast(hits, FLOAT) * weights.shaped((-1, 1))).op("ReduceSum", axes=[0], keepdims=0)


def _dynamic(name: str) -> Rule:
    def rule(call: Call) -> Value:
        raise call.refuse(_DYNAMIC.format(name))

    return rule


def _embedding_bag(call: Call) -> list[Any]:
    weight, indices = call.value("weight"), cast(call.value("indices"), INT32)
    offsets = call.numpy(call["offsets"])
    rows = weight.op("Gather", indices, axis=0)
    scale = call.optional("per_sample_weights")
    if scale is not None:
        rows = rows * scale.shaped((-1, 1))
    ends = [*offsets[1:].tolist(), indices.tensor.nelms][: call.out.shape[0]]
    type = ("ReduceSum", "ReduceMean", "ReduceMax")[int(call.get("mode", 0))]
    bags = []
    for start, end in zip(offsets.tolist(), ends, strict=False):
        if start == end:
            bags.append(call.number(0, rows).spread_to((1, *rows.tensor.shape[1:])))
            continue
        part = call.sliced(rows, [start], [end], [0])
        bags.append(part.op(type, axes=[0], keepdims=1))
    joined = bags[0].op("Concat", *bags[1:], axis=0) if len(bags) > 1 else bags[0]
    return [joined, None, None, None]


RULES: dict[str, Rule] = {
    "_embedding_bag": _embedding_bag,
    "_embedding_bag_forward_only": _embedding_bag,
    "_unsafe_index": _index,
    "bincount": _bincount,
    "embedding": _embedding,
    "gather": _gather,
    "index": _index,
    "index_add": _index_write("add"),
    "index_copy": _index_write("none"),
    "index_fill": _index_fill,
    "index_put": _index_put,
    "index_reduce": _index_reduce,
    "_index_put_impl": _index_put,
    "index_select": _index_select,
    "masked_select": _dynamic("masked_select"),
    "nonzero": _dynamic("nonzero"),
    "one_hot": _one_hot,
    "scatter": _scatter(None),
    "scatter_add": _scatter("add"),
    "scatter_reduce": _scatter(None),
    "select_scatter": _select_scatter,
    "slice_scatter": _slice_scatter,
    "take": _take,
    "unique": _dynamic("unique"),
    "_unique2": _dynamic("_unique2"),
}
