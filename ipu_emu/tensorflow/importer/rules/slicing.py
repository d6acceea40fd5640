"""Rules of ops that cut tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ipu_emu.ops import Value
from ipu_emu.tensorflow.importer.node import Rule, SourceNode
from ipu_emu.tensorflow.importer.rules.shapes import PLACES
from ipu_emu.tensorflow.importer.values import Held, Known


def sliced(value: Value, begins: Sequence[int], ends: Sequence[int], steps: Sequence[int] | None = None) -> Value:
    """The slice of all axes; a step may be negative."""
    shape = value.tensor.shape
    chosen = [
        axis
        for axis, size in enumerate(shape)
        if (begins[axis], ends[axis]) != (0, size) or (steps and steps[axis] != 1)
    ]
    if not chosen:
        return value
    attributes = {"starts": [begins[a] for a in chosen], "ends": [ends[a] for a in chosen], "axes": chosen}
    if steps and any(steps[axis] != 1 for axis in chosen):
        attributes["steps"] = [steps[axis] for axis in chosen]
        attributes["ends"] = [ends[a] if steps[a] > 0 or ends[a] >= 0 else -(2**31) for a in chosen]
    return value.op("Slice", **attributes)


def _parts(value: Value, axis: int, sizes: Sequence[int]) -> list[Value]:
    """``value`` cut along ``axis``."""
    parts, start, shape = [], 0, value.tensor.shape
    for size in sizes:
        begins, ends = [0] * len(shape), list(shape)
        begins[axis], ends[axis] = start, start + size
        parts.append(sliced(value, begins, ends))
        start += size
    return parts


def _unpack(node: SourceNode) -> list[Value]:
    shape = node.shape(0)
    axis = int(node.attr("axis")) % len(shape)
    part_shape = (*shape[:axis], *shape[axis + 1 :])
    return [part.shaped(part_shape) for part in _parts(node.x, axis, [1] * shape[axis])]


def _split_into(node: SourceNode, index: int, axis: int, sizes: Sequence[int]) -> list[Any]:
    held = node.held(index)
    if held.channels_first:
        return [Held(part, channels_first=True) for part in _parts(held.value, PLACES[axis % 4], sizes)]
    return list(_parts(held.value, axis % len(held.shape), sizes))


def _split(node: SourceNode) -> list[Any]:
    axis, count = node.integer(0), int(node.attr("num_split"))
    return _split_into(node, 1, axis, [node.shape(1)[axis] // count] * count)


def _split_by_sizes(node: SourceNode) -> list[Any]:
    sizes, axis = node.integers(1), node.integer(2)
    total = node.shape(0)[axis]
    rest = total - sum(size for size in sizes if size >= 0)
    return _split_into(node, 0, axis, [size if size >= 0 else rest for size in sizes])


def _slice(node: SourceNode) -> Any:
    sizes, shape = node.integers(2), node.shape(0)
    if not isinstance(node.inputs[1], Known):
        return _moving_slice(node, sizes)
    begins = node.integers(1)
    ends = [n if size == -1 else begin + size for begin, size, n in zip(begins, sizes, shape, strict=True)]
    held = node.held(0)
    if held.channels_first:
        begins, ends = ([bounds[axis] for axis in (0, 3, 1, 2)] for bounds in (begins, ends))
    return Held(sliced(held.value, begins, ends), held.channels_first)


def _moving_slice(node: SourceNode, sizes: Sequence[int]) -> Value:
    """A slice of known size with a computed start: one gather along each sliced axis."""
    value, shape = node.x, node.shape(0)
    begins = _parts(node.y, 0, [1] * len(shape))
    for axis, size in enumerate(sizes):
        size = shape[axis] if size == -1 else size
        if size != shape[axis]:
            places = begins[axis] + node.constant(np.arange(size), np.int32)
            value = value.op("Gather", places, axis=axis)
    return value


class _Strided:
    """A strided slice as in numpy: the slice of each axis, then added and removed axes of size 1."""

    def __init__(self, node: SourceNode, shape: tuple[int, ...], first: int) -> None:
        begins, ends, steps = (node.integers(first + index) for index in range(3))
        masks = {name: int(node.attr(f"{name}_mask")) for name in ("begin", "end", "ellipsis", "new_axis")}
        masks["shrink"] = int(node.attr("shrink_axis_mask"))
        self.begins: list[int] = []
        self.ends: list[int] = []
        self.steps: list[int] = []
        self.final: list[int] = []
        count, axis = len(begins), 0
        for i in range(count):
            if masks["ellipsis"] >> i & 1:
                while axis < len(shape) - sum(not masks["new_axis"] >> j & 1 for j in range(i + 1, count)):
                    self._whole(shape[axis])
                    axis += 1
            elif masks["new_axis"] >> i & 1:
                self.final.append(1)
            else:
                begin = None if masks["begin"] >> i & 1 else begins[i]
                end = None if masks["end"] >> i & 1 else ends[i]
                self._add(shape[axis], begin, end, steps[i], begins[i], bool(masks["shrink"] >> i & 1))
                axis += 1
        for size in shape[axis:]:
            self._whole(size)

    def _whole(self, size: int) -> None:
        self._append(0, size, 1)
        self.final.append(size)

    def _append(self, begin: int, end: int, step: int) -> None:
        self.begins.append(begin)
        self.ends.append(end)
        self.steps.append(step)

    def _add(self, size: int, begin: int | None, end: int | None, step: int, at: int, shrinks: bool) -> None:
        if shrinks:
            at = at + size if at < 0 else at
            self._append(at, at + 1, 1)
            return
        start, stop, step = slice(begin, end, step).indices(size)
        self._append(start, stop, step)
        self.final.append(len(range(start, stop, step)))


def _strided_slice(node: SourceNode) -> Any:
    if not all(isinstance(node.inputs[index], Known) for index in (1, 2, 3)):
        return _element(node)
    cut = _Strided(node, node.shape(0), 1)
    held = node.held(0)
    if held.channels_first and len(cut.final) == 4 and not node.attr("shrink_axis_mask"):
        order = (0, 3, 1, 2)
        begins, ends, steps = ([bounds[axis] for axis in order] for bounds in (cut.begins, cut.ends, cut.steps))
        return Held(sliced(held.value, begins, ends, steps), channels_first=True)
    return sliced(node.x, cut.begins, cut.ends, cut.steps).shaped(tuple(cut.final))


def _element(node: SourceNode) -> Value:
    """x[i] with a computed i."""
    masks = [node.attr(f"{name}_mask") for name in ("begin", "end", "ellipsis", "new_axis")]
    if any(masks) or node.attr("shrink_axis_mask") != 1 or node.shape(1) != (1,):
        raise node.refuse("a strided slice with computed bounds must be one index of the first axis")
    return node.x.op("Gather", node.y.shaped(()), axis=0)


def _strided_slice_grad(node: SourceNode) -> Value:
    """(shape, begin, end, strides, gradient)"""
    shape = tuple(node.integers(0))
    cut = _Strided(node, shape, 1)
    sizes = [len(range(*bounds)) for bounds in zip(cut.begins, cut.ends, cut.steps, strict=True)]
    g = node.value(4).shaped(tuple(sizes))
    return g.op("SliceInto", starts=cut.begins, ends=cut.ends, steps=cut.steps, shape=list(shape))


RULES: dict[str, Rule] = {
    "Slice": _slice,
    "Split": _split,
    "SplitV": _split_by_sizes,
    "StridedSlice": _strided_slice,
    "StridedSliceGrad": _strided_slice_grad,
    "Unpack": _unpack,
}
