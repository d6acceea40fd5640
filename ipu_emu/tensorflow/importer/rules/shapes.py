"""Rules of reductions and of ops that reshape, join, cut, pad or repeat."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from ipu_emu.graph.dtype import FLOAT
from ipu_emu.ops import Value
from ipu_emu.tensorflow.importer.node import Node, Rule
from ipu_emu.tensorflow.importer.rules.arithmetic import cast_to
from ipu_emu.tensorflow.importer.values import Held, Known

__all__ = ["RULES", "sliced"]

#: The place of each axis of TensorFlow's images in those that are held channels first, and the other way round.
_PLACES = {0: 0, 1: 2, 2: 3, 3: 1}
_AXES = (0, 2, 3, 1)

# Sizes, which are known


def _integers(node: Node, values: Any) -> Known:
    return Known(np.asarray(values, node.numpy_of("out_type")))


def _shape(node: Node) -> Known:
    return _integers(node, node.shape(0))


def _shapes(node: Node) -> list[Known]:
    return [_integers(node, node.shape(index)) for index in range(len(node.inputs))]


# Reductions


def _axes(node: Node, rank: int) -> list[int]:
    return sorted({axis % rank for axis in node.integers(1)}) if rank else []


def _reduced(node: Node, type: str, held: Held | None = None) -> Held:
    """A reduction of input 0, or of ``held``, along the known axes of input 1; images stay as they are held."""
    held = held or node.held(0)
    axes, keep = _axes(node, len(held.shape)), int(node.attr("keep_dims"))
    if not axes:
        return held
    if held.channels_first:
        places = sorted(_PLACES[axis] for axis in axes)
        left = [_AXES[place] for place in range(4) if place not in places]
        if keep or left == sorted(left):
            made = held.value.op(type, axes=places, keepdims=keep)
            return Held(made, channels_first=bool(keep))
        held = Held(node.writer.plain(held))
    return Held(held.value.op(type, axes=axes, keepdims=keep))


def _reduction(type: str) -> Rule:
    return lambda node: _reduced(node, type)


def _logical(type: str) -> Rule:
    """All is the least, Any the largest of 0 and 1."""

    def rule(node: Node) -> Held:
        given = node.held(0)
        made = _reduced(node, type, Held(given.value.op("Cast", to=FLOAT.onnx), given.channels_first))
        return Held(made.value.op("Greater", made.value.like(0.5)), made.channels_first)

    return rule


def _norm(node: Node) -> Held:
    given = node.held(0)
    return _reduced(node, "ReduceL2", Held(given.value.op("Abs"), given.channels_first))


def _half_square(node: Node) -> Value:
    value = node.held(0).value
    return value.op("ReduceSumSquare", axes=list(range(value.tensor.rank)), keepdims=0) * 0.5


def _extreme_place(type: str) -> Rule:
    def rule(node: Node) -> Value:
        x, axis = node.x, node.integer(1)
        return cast_to(x.op(type, axis=axis % x.tensor.rank, keepdims=0), node.numpy_of("output_type"))

    return rule


def _cumulative(type: str) -> Rule:
    def rule(node: Node) -> Value:
        x, axis = node.x, node.integer(1)
        options = {name: int(node.attr(name)) for name in ("exclusive", "reverse")}
        return x.op(type, node.constant(axis % x.tensor.rank, np.int32), **options)

    return rule


# Reshaping


def _target(shape: Sequence[int], size: int) -> tuple[int, ...]:
    known = prod(one for one in shape if one != -1)
    return tuple(size // max(known, 1) if one == -1 else one for one in shape)


def _reshape(node: Node) -> Value:
    return node.x.shaped(_target(node.integers(1), prod(node.shape(0))))


def _expand(node: Node) -> Value:
    shape, axis = list(node.shape(0)), node.integer(1)
    shape.insert(axis + len(shape) + 1 if axis < 0 else axis, 1)
    return node.x.shaped(tuple(shape))


def _squeeze(node: Node) -> Value:
    shape, rank = node.shape(0), len(node.shape(0))
    chosen = {axis % rank for axis in node.attr("squeeze_dims")} or {a for a in range(rank) if shape[a] == 1}
    return node.x.shaped(tuple(size for axis, size in enumerate(shape) if axis not in chosen))


def _transpose(node: Node) -> Held:
    """A transpose from or to channels first costs nothing where images are held like that."""
    held, perm = node.held(0), node.integers(1)
    places = [_PLACES[axis] for axis in perm] if held.channels_first else perm
    if places == sorted(places):
        return Held(held.value)
    if held.channels_first and perm == [0, 1, 2, 3]:
        return held
    return Held(held.value.op("Transpose", perm=places))


def _joined(node: Node, inputs: Sequence[int], axis: int) -> Held:
    given = [node.inputs[index] for index in inputs]
    images = all(isinstance(one, Held) and len(one.shape) == 4 for one in given)
    if images and any(isinstance(one, Held) and one.channels_first for one in given):
        values, first = [node.first(index) for index in inputs], True
    else:
        values, first = [node.value(index) for index in inputs], False
    rank = values[0].tensor.rank
    place = _PLACES[axis % 4] if first else axis % rank
    return Held(values[0].op("Concat", *values[1:], axis=place) if len(values) > 1 else values[0], first)


def _concat_v2(node: Node) -> Held:
    count = int(node.attr("N"))
    return _joined(node, range(count), node.integer(count))


def _concat(node: Node) -> Held:
    count = int(node.attr("N"))
    return _joined(node, range(1, count + 1), node.integer(0))


def _pack(node: Node) -> Value:
    axis = int(node.attr("axis"))
    values = []
    for index in range(len(node.inputs)):
        shape = list(node.shape(index))
        place = axis + len(shape) + 1 if axis < 0 else axis
        values.append(node.value(index).shaped((*shape[:place], 1, *shape[place:])))
    return values[0].op("Concat", *values[1:], axis=place) if len(values) > 1 else values[0]


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
    made, start, shape = [], 0, value.tensor.shape
    for size in sizes:
        begins, ends = [0] * len(shape), list(shape)
        begins[axis], ends[axis] = start, start + size
        made.append(sliced(value, begins, ends))
        start += size
    return made


def _unpack(node: Node) -> list[Value]:
    shape = node.shape(0)
    axis = int(node.attr("axis")) % len(shape)
    kept = (*shape[:axis], *shape[axis + 1 :])
    return [part.shaped(kept) for part in _parts(node.x, axis, [1] * shape[axis])]


def _split_into(node: Node, index: int, axis: int, sizes: Sequence[int]) -> list[Any]:
    held = node.held(index)
    if held.channels_first:
        return [Held(part, channels_first=True) for part in _parts(held.value, _PLACES[axis % 4], sizes)]
    return list(_parts(held.value, axis % len(held.shape), sizes))


def _split(node: Node) -> list[Any]:
    axis, count = node.integer(0), int(node.attr("num_split"))
    return _split_into(node, 1, axis, [node.shape(1)[axis] // count] * count)


def _split_by_sizes(node: Node) -> list[Any]:
    sizes, axis = node.integers(1), node.integer(2)
    whole = node.shape(0)[axis]
    rest = whole - sum(size for size in sizes if size >= 0)
    return _split_into(node, 0, axis, [size if size >= 0 else rest for size in sizes])


def _slice(node: Node) -> Any:
    sizes, shape = node.integers(2), node.shape(0)
    if not isinstance(node.inputs[1], Known):
        return _moving_slice(node, sizes)
    begins = node.integers(1)
    ends = [n if size == -1 else begin + size for begin, size, n in zip(begins, sizes, shape, strict=True)]
    held = node.held(0)
    if held.channels_first:
        begins, ends = ([one[axis] for axis in (0, 3, 1, 2)] for one in (begins, ends))
    return Held(sliced(held.value, begins, ends), held.channels_first)


def _moving_slice(node: Node, sizes: Sequence[int]) -> Value:
    """A slice of known size whose start is computed: one gather along each axis that is cut."""
    value, shape = node.x, node.shape(0)
    begins = _parts(node.y, 0, [1] * len(shape))
    for axis, size in enumerate(sizes):
        size = shape[axis] if size == -1 else size
        if size != shape[axis]:
            places = begins[axis] + node.constant(np.arange(size), np.int32)
            value = value.op("Gather", places, axis=axis)
    return value


class _Strided:
    """A strided slice of numpy's kind: the slice of each axis, then axes of size 1 that appear or vanish."""

    def __init__(self, node: Node, shape: tuple[int, ...], first: int) -> None:
        begins, ends, steps = (node.integers(first + index) for index in range(3))
        masks = {name: int(node.attr(f"{name}_mask")) for name in ("begin", "end", "ellipsis", "new_axis")}
        masks["shrink"] = int(node.attr("shrink_axis_mask"))
        self.begins: list[int] = []
        self.ends: list[int] = []
        self.steps: list[int] = []
        self.final: list[int] = []
        given, axis = len(begins), 0
        for i in range(given):
            if masks["ellipsis"] >> i & 1:
                while axis < len(shape) - sum(not masks["new_axis"] >> j & 1 for j in range(i + 1, given)):
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


def _strided_slice(node: Node) -> Any:
    if not all(isinstance(node.inputs[index], Known) for index in (1, 2, 3)):
        return _element(node)
    cut = _Strided(node, node.shape(0), 1)
    held = node.held(0)
    if held.channels_first and len(cut.final) == 4 and not node.attr("shrink_axis_mask"):
        order = (0, 3, 1, 2)
        begins, ends, steps = ([one[axis] for axis in order] for one in (cut.begins, cut.ends, cut.steps))
        return Held(sliced(held.value, begins, ends, steps), channels_first=True)
    return sliced(node.x, cut.begins, cut.ends, cut.steps).shaped(tuple(cut.final))


def _element(node: Node) -> Value:
    """x[i] with a computed i."""
    masks = [node.attr(f"{name}_mask") for name in ("begin", "end", "ellipsis", "new_axis")]
    if any(masks) or node.attr("shrink_axis_mask") != 1 or node.shape(1) != (1,):
        raise node.refuse("a strided slice with computed bounds must be one index of the first axis")
    return node.x.op("Gather", node.y.shaped(()), axis=0)


def _strided_slice_grad(node: Node) -> Value:
    """(shape, begin, end, strides, gradient)"""
    shape = tuple(node.integers(0))
    cut = _Strided(node, shape, 1)
    sizes = [len(range(*bounds)) for bounds in zip(cut.begins, cut.ends, cut.steps, strict=True)]
    g = node.value(4).shaped(tuple(sizes))
    return g.op("SliceInto", starts=cut.begins, ends=cut.ends, steps=cut.steps, shape=list(shape))


# Repeating and padding


def _tile(node: Node) -> Value:
    repeats = node.integers(1)
    if all(count == 1 for count in repeats):
        return node.x
    return node.x.op("Tile", node.constant(repeats, np.int32))


def _broadcast(node: Node) -> Value:
    return node.x.spread_to(tuple(node.integers(1)))


def _fill(node: Node) -> Value:
    return node.y.spread_to(tuple(node.integers(0)))


def _pads(node: Node) -> list[int]:
    pairs = node.known(1)
    return [int(one) for one in (*pairs[:, 0], *pairs[:, 1])]


def _pad(node: Node) -> Any:
    value = float(node.known(2)) if len(node.inputs) > 2 else 0.0
    pads, held = _pads(node), node.held(0)
    if held.channels_first:
        order = (0, 3, 1, 2)
        pads = [pads[axis] for axis in order] + [pads[4 + axis] for axis in order]
    return Held(held.value.op("Pad", pads=pads, mode="constant", value=value), held.channels_first)


def _mirror_pad(node: Node) -> Value:
    pairs, value = node.known(1), node.x
    for axis, (before, after) in enumerate(pairs):
        if before or after:
            mode = "reflect" if node.attr("mode") == b"REFLECT" else "symmetric"
            places = np.pad(np.arange(value.tensor.shape[axis]), (int(before), int(after)), mode)  # type: ignore[call-overload]
            value = value.op("Gather", node.constant(places, np.int32), axis=axis)
    return value


def _mirror_pad_grad(node: Node) -> Value:
    pairs, value = node.known(1), node.x
    for axis, (before, after) in enumerate(pairs):
        if before or after:
            shape = list(value.tensor.shape)
            shape[axis] -= int(before) + int(after)
            mode = "reflect" if node.attr("mode") == b"REFLECT" else "symmetric"
            places = np.pad(np.arange(shape[axis]), (int(before), int(after)), mode)  # type: ignore[call-overload]
            value = value.op("GatherGrad", node.constant(places, np.int32), axis=axis, shape=shape)
    return value


def _reverse(node: Node) -> Value:
    rank = len(node.shape(0))
    axes = sorted({axis % rank for axis in node.integers(1)})
    return node.x.op("Reverse", dimensions=axes) if axes else node.x


def _roll(node: Node) -> Value:
    value = node.x
    for shift, axis in zip(node.integers(1), node.integers(2), strict=True):
        size = value.tensor.shape[axis]
        places = (np.arange(size) - shift) % max(size, 1)
        value = value.op("Gather", node.constant(places, np.int32), axis=axis % value.tensor.rank)
    return value


# Blocks of pixels


def _space_to_depth(node: Node) -> Held:
    size = int(node.attr("block_size"))
    n, h, w, c = node.shape(0)
    x = node.x.shaped((n, h // size, size, w // size, size, c))
    return Held(x.op("Transpose", perm=[0, 1, 3, 2, 4, 5]).shaped((n, h // size, w // size, size * size * c)))


def _depth_to_space(node: Node) -> Held:
    size = int(node.attr("block_size"))
    n, h, w, c = node.shape(0)
    each = c // (size * size)
    x = node.x.shaped((n, h, w, size, size, each))
    return Held(x.op("Transpose", perm=[0, 1, 3, 2, 4, 5]).shaped((n, h * size, w * size, each)))


def _space_to_batch(node: Node) -> Value:
    blocks, pairs, value = node.integers(1), node.known(2), node.x
    rest = value.tensor.shape[len(blocks) + 1 :]
    begins = [0, *(int(one) for one in pairs[:, 0]), *[0] * len(rest)]
    ends = [0, *(int(one) for one in pairs[:, 1]), *[0] * len(rest)]
    if any((*begins, *ends)):
        value = value.op("Pad", pads=[*begins, *ends], mode="constant", value=0.0)
    shape, count = value.tensor.shape, len(blocks)
    split = [n for i, block in enumerate(blocks) for n in (shape[i + 1] // block, block)]
    value = value.shaped((shape[0], *split, *rest))
    perm = [*(2 * i + 2 for i in range(count)), 0, *(2 * i + 1 for i in range(count))]
    value = value.op("Transpose", perm=[*perm, *range(2 * count + 1, 2 * count + 1 + len(rest))])
    return value.shaped((shape[0] * prod(blocks), *(shape[i + 1] // b for i, b in enumerate(blocks)), *rest))


def _batch_to_space(node: Node) -> Value:
    blocks, crops, value = node.integers(1), node.known(2), node.x
    shape, count = value.tensor.shape, len(blocks)
    rest, batch = shape[count + 1 :], shape[0] // prod(blocks)
    value = value.shaped((*blocks, batch, *shape[1:]))
    pairs = [axis for i in range(count) for axis in (count + 1 + i, i)]
    value = value.op("Transpose", perm=[count, *pairs, *range(2 * count + 1, 2 * count + 1 + len(rest))])
    value = value.shaped((batch, *(shape[i + 1] * b for i, b in enumerate(blocks)), *rest))
    begins = [0, *(int(one) for one in crops[:, 0]), *[0] * len(rest)]
    ends = [
        batch,
        *(value.tensor.shape[i + 1] - int(crop) for i, crop in enumerate(crops[:, 1])),
        *rest,
    ]
    return sliced(value, begins, ends)


# Matrices


def _band(node: Node) -> Value:
    rows, columns = node.shape(0)[-2:]
    lower, upper = node.integer(1), node.integer(2)
    i, j = np.ogrid[:rows, :columns]
    kept = ((lower < 0) | (i - j <= lower)) & ((upper < 0) | (j - i <= upper))
    x = node.x
    return node.constant(kept, np.bool_).op("Where", x, x.like(0))


def _diagonal(node: Node) -> Value:
    x = node.x
    size = x.tensor.shape[-1]
    eye = node.constant(np.eye(size, dtype=bool), np.bool_)
    return eye.op("Where", x.shaped((*x.tensor.shape, 1)), x.like(0))


def _diagonal_part(node: Node) -> Value:
    x = node.x
    rows, columns = x.tensor.shape[-2:]
    size = min(rows, columns)
    flat = x.shaped((*x.tensor.shape[:-2], rows * columns))
    return flat.op("Gather", node.constant(np.arange(size) * (columns + 1), np.int32), axis=x.tensor.rank - 2)


def _main_diagonal(node: Node, index: int) -> None:
    """Raise where an op names another diagonal than the main one."""
    if node.integers(index) not in ([0], [0, 0]):
        raise node.refuse("only the main diagonal is supported")


def _diagonal_v3(node: Node) -> Value:
    """(diagonal, k, rows, columns, padding)"""
    _main_diagonal(node, 1)
    size = node.shape(0)[-1]
    if node.integer(2) not in (-1, size) or node.integer(3) not in (-1, size):
        raise node.refuse("the matrix must be square")
    return _diagonal(node)


def _diagonal_part_v3(node: Node) -> Value:
    _main_diagonal(node, 1)
    return _diagonal_part(node)


def _set_diagonal(node: Node) -> Value:
    """(matrix, diagonal, k)"""
    if len(node.inputs) > 2:
        _main_diagonal(node, 2)
    x, diagonal = node.x, node.y
    rows, columns = x.tensor.shape[-2:]
    size = min(rows, columns)
    eye = node.constant(np.eye(rows, columns, dtype=bool), np.bool_)
    if size < rows:
        pads = [0] * (2 * diagonal.tensor.rank)
        pads[-1] = rows - size
        diagonal = diagonal.op("Pad", pads=pads, mode="constant", value=0.0)
    return eye.op("Where", diagonal.shaped((*diagonal.tensor.shape, 1)), x)


RULES: dict[str, Rule] = {
    "All": _logical("ReduceMin"),
    "Any": _logical("ReduceMax"),
    "ArgMax": _extreme_place("ArgMax"),
    "ArgMin": _extreme_place("ArgMin"),
    "BatchToSpaceND": _batch_to_space,
    "BroadcastTo": _broadcast,
    "Concat": _concat,
    "ConcatV2": _concat_v2,
    "Cumprod": _cumulative("CumProd"),
    "Cumsum": _cumulative("CumSum"),
    "DepthToSpace": _depth_to_space,
    "Diag": _diagonal,
    "EuclideanNorm": _norm,
    "ExpandDims": _expand,
    "Fill": _fill,
    "L2Loss": _half_square,
    "MatrixBandPart": _band,
    "MatrixDiag": _diagonal,
    "MatrixDiagPart": _diagonal_part,
    "MatrixDiagPartV3": _diagonal_part_v3,
    "MatrixDiagV3": _diagonal_v3,
    "MatrixSetDiag": _set_diagonal,
    "MatrixSetDiagV3": _set_diagonal,
    "Max": _reduction("ReduceMax"),
    "Mean": _reduction("ReduceMean"),
    "Min": _reduction("ReduceMin"),
    "MirrorPad": _mirror_pad,
    "MirrorPadGrad": _mirror_pad_grad,
    "Pack": _pack,
    "Pad": _pad,
    "PadV2": _pad,
    "Prod": _reduction("ReduceProd"),
    "Reshape": _reshape,
    "ReverseV2": _reverse,
    "Roll": _roll,
    "Shape": _shape,
    "ShapeN": _shapes,
    "Slice": _slice,
    "SpaceToBatchND": _space_to_batch,
    "SpaceToDepth": _space_to_depth,
    "Split": _split,
    "SplitV": _split_by_sizes,
    "Squeeze": _squeeze,
    "StridedSlice": _strided_slice,
    "StridedSliceGrad": _strided_slice_grad,
    "Sum": _reduction("ReduceSum"),
    "Tile": _tile,
    "Transpose": _transpose,
    "Unpack": _unpack,
    "Rank": lambda node: Known(np.asarray(len(node.shape(0)), np.int32)),
    "Size": lambda node: _integers(node, prod(node.shape(0))),
}
