"""Indexing: reads and writes of elements and rows at computed positions."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np
import torch

from ipu_emu.graph.dtype import BOOL, FLOAT, INT32
from ipu_emu.ops import Value, concatenated
from ipu_emu.poptorch.aten.call import Call, Rule, transposed

_DYNAMIC = (
    "Operations using aten::{} are unsupported because the output shape is determined by the tensor values. The IPU "
    "cannot support dynamic output shapes."
)


def _embedding(call: Call) -> Value:
    weight, indices = call.value("weight"), call.value("indices").cast(INT32)
    rows = weight.op("Gather", indices, axis=0)
    padding = int(call.get("padding_idx", -1))
    if padding < 0:
        return rows
    pads = indices.op("Equal", indices.like(padding)).shaped((*indices.tensor.shape, 1))
    return pads.op("Where", rows.op("Detach"), rows)


def _gather(call: Call) -> Value:
    index, axis = call.value("index").cast(INT32), call.axis()
    if not index.tensor.rank:
        index = index.shaped((1,))
    x = _cropped(call, call.atleast_1d, index, excluding=axis)
    return x.op("GatherElements", index, axis=axis)


def _cropped(call: Call, x: Value, like: Value, *, excluding: int = -1) -> Value:
    """The first elements of each axis, as many as another value has; without the axis ``excluding``."""
    for axis, (size, wanted) in enumerate(zip(x.tensor.shape, like.tensor.shape, strict=True)):
        if axis != excluding and size > wanted:
            x = call.sliced(x, [0], [wanted], [axis])
    return x


def _index_select(call: Call) -> Value:
    index = call.value("index").cast(INT32)
    return call.atleast_1d.op("Gather", index.shaped((-1,)), axis=call.axis()).shaped(call.shape)


def _take(call: Call) -> Value:
    x = call.x
    return x.shaped((x.tensor.nelms,)).op("Gather", call.value("index").cast(INT32), axis=0)


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
                by_axis.append((axis, call.of(index).cast(INT32)))
                axis += 1
        self.axes = [number for number, _ in by_axis]
        self.rest = [number for number in range(len(shape)) if number not in self.axes]
        self.index_shape = tuple(np.broadcast_shapes(*(value.tensor.shape for _, value in by_axis)))
        self.sizes = [shape[number] for number in self.axes]
        place: Value | None = None
        for size, (_, value) in zip(self.sizes, by_axis, strict=True):
            inside = _from_the_front(value, size)
            place = inside if place is None else place * inside.like(size) + inside
        assert place is not None
        self.place = place.spread_to(self.index_shape)
        self.perm = [*self.axes, *self.rest]
        turned = transposed(x, self.perm)
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
        return self._placed(self.rows.op("Gather", self.place, axis=0), back=False)

    def _placed(self, value: Value, *, back: bool) -> Value:
        """Move the index's axes from the front to their place, or ``back``."""
        first, count = self.axes[0], len(self.index_shape)
        if not self.together or not first:
            return value
        rank = count + len(self.rest)
        perm = [*range(count, count + first), *range(count), *range(count + first, rank)]
        return value.op("Transpose", perm=_inverse(perm) if back else perm)

    def written(self, values: Value, *, accumulate: bool) -> Value:
        """Return x with the rows at the indices replaced, or added to."""
        first = self.axes[0] if self.together else 0
        shape = (*self.rest_shape[:first], *self.index_shape, *self.rest_shape[first:])
        spread = self._placed(values.spread_to(shape), back=True)
        count = prod(self.index_shape)
        rows = spread.shaped((count, *self.rest_shape))
        places = self.place.shaped((count, 1))
        filled = self.rows.op("ScatterND", places, rows, reduction="add" if accumulate else "none")
        return transposed(filled.shaped(self.turned_shape), _inverse(self.perm))


def _from_the_front(index: Value, size: int) -> Value:
    """Indices along an axis of ``size`` elements, those below 0 counted from the front."""
    return index.op("Less", index.like(0)).op("Where", index + index.like(size), index)


def _inverse(perm: Sequence[int]) -> list[int]:
    return [perm.index(axis) for axis in range(len(perm))]


def _index(call: Call) -> Value:
    return _Indexed(call, call.x, list(call["indices"])).read().shaped(call.shape)


def _index_put(call: Call) -> Value:
    x, indices = call.x, list(call["indices"])
    values = call.value("values").cast(x.tensor.dtype)
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
    size = x.tensor.shape[axis]
    index = _from_the_front(call.value("index").cast(INT32), size)
    hits = index.shaped((-1, 1)).op("Equal", call.constant(np.arange(size), np.int32))
    hit = hits.cast(INT32).op("ReduceMax", axes=[0], keepdims=0).cast(BOOL)
    hit = hit.shaped(tuple(size if i == axis else 1 for i in range(x.tensor.rank)))
    return hit.op("Where", call.as_type(call["value"], x.tensor.dtype), x)


def _index_write(reduction: str) -> Rule:
    def rule(call: Call) -> Value:
        x, axis = call.x, call.axis()
        index, source = call.value("index").cast(INT32), call.value("source").cast(x.tensor.dtype)
        if call.get("alpha", 1) != 1:
            source = source.scaled(call["alpha"])
        perm = [axis, *(number for number in range(x.tensor.rank) if number != axis)]
        rows, new = transposed(x, perm), transposed(source, perm)
        scattered = rows.op("ScatterND", index.shaped((-1, 1)), new, reduction=reduction)
        return transposed(scattered, _inverse(perm))

    return rule


_REDUCE: dict[str | None, str] = {**dict.fromkeys(("sum", "add", "mean"), "add"), "prod": "mul", "multiply": "mul"}
_REDUCE |= {"amax": "max", "amin": "min", None: "none"}


def _scatter(reduction: str | None) -> Rule:
    def rule(call: Call) -> Value:
        x, index, axis = call.x, call.value("index").cast(INT32), call.axis()
        source = call["src"] if "src" in call.arguments else call["value"]
        values = call.as_type(source, x.tensor.dtype)
        if not values.tensor.shape:
            values = values.spread_to(index.tensor.shape)
        values = _cropped(call, values, index)
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
    return (combined if combined.tensor.dtype.is_float else combined - combined.op("Mod", count)) / count


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
    values = call.value("source").cast(x.tensor.dtype)
    shape = tuple(-1 if i == axis else 1 for i in range(x.tensor.rank))
    index = call.value("index").cast(INT32).shaped(shape).spread_to(values.tensor.shape)
    return _combined(call, x, index, values, axis, _REDUCE[call["reduce"]])


def _slice_scatter(call: Call) -> Value:
    x, new, axis = call.x, call.value("src").cast(call.x.tensor.dtype), call.axis()
    size = x.tensor.shape[axis]
    start, end, step = slice(call.get("start"), call.get("end"), call.get("step", 1)).indices(size)
    if step != 1:
        raise call.refuse("In-place modification of slices with step size other than 1 is not supported.")
    return _inserted(call, x, new, axis, start, end)


def _select_scatter(call: Call) -> Value:
    x, axis = call.x, call.axis()
    index = int(call["index"]) % x.tensor.shape[axis]
    shape = tuple(1 if i == axis else size for i, size in enumerate(x.tensor.shape))
    return _inserted(call, x, call.value("src").cast(x.tensor.dtype).shaped(shape), axis, index, index + 1)


def _inserted(call: Call, x: Value, new: Value, axis: int, start: int, end: int) -> Value:
    size = x.tensor.shape[axis]
    before = [call.sliced(x, [0], [start], [axis])] if start else []
    after = [call.sliced(x, [end], [size], [axis])] if end < size else []
    return concatenated([*before, new, *after], axis)


def _one_hot(call: Call) -> Value:
    count = int(call.get("num_classes", -1))
    if count < 0:
        raise call.refuse("OneHot num classes must be specified and must be constant.")
    index = call.value("tensor").cast(INT32)
    classes = call.constant(np.arange(count), np.int32)
    return index.shaped((*index.tensor.shape, 1)).op("Equal", classes).cast(INT32)


def _bincount(call: Call) -> Value:
    x, count = call.x.cast(INT32), call.shape[0]
    if not call.get("minlength", 0):
        raise call.refuse("minlength must be given, because shapes are fixed")
    hits = x.shaped((-1, 1)).op("Equal", call.constant(np.arange(count), np.int32))
    weights = call.optional("weights")
    if weights is None:
        return hits.cast(INT32).op("ReduceSum", axes=[0], keepdims=0)
    return (hits.cast(FLOAT) * weights.shaped((-1, 1))).op("ReduceSum", axes=[0], keepdims=0)


def _dynamic(name: str) -> Rule:
    def rule(call: Call) -> Value:
        raise call.refuse(_DYNAMIC.format(name))

    return rule


def _embedding_bag(call: Call) -> list[Any]:
    weight, indices = call.value("weight"), call.value("indices").cast(INT32)
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
    return [concatenated(bags, 0), None, None, None]


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
