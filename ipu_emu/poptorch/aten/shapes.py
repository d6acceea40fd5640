"""Shapes: views, joins, padding and repetition."""

from __future__ import annotations

from typing import Any

import numpy as np

from ipu_emu.ops import Value, concatenated
from ipu_emu.poptorch.aten.call import Call, Rule, transposed


def _shaped(call: Call) -> Value:
    return call.x.shaped(call.shape)


def _view(call: Call) -> Value:
    if call.get("dtype", call.first.dtype) is not call.first.dtype:
        raise call.refuse("dtype reads the bits of elements as another type; convert the elements with to(dtype)")
    return _shaped(call)


def _expand(call: Call) -> Value:
    x = call.x
    extra = len(call.shape) - x.tensor.rank
    return x.shaped((1,) * extra + x.tensor.shape).spread_to(call.shape)


def _transpose(call: Call) -> Value:
    rank = call.first.dim()
    perm = list(range(rank))
    a, b = (int(call[name]) % max(rank, 1) for name in ("dim0", "dim1"))
    if rank:
        perm[a], perm[b] = perm[b], perm[a]
    return transposed(call.x, perm)


def _t(call: Call) -> Value:
    turned = transposed(call.x, list(reversed(range(call.first.dim()))))
    if call.first.dim() == 2:
        call.writer.transposed[turned.tensor.id] = call.x
    return turned


def _movedim(call: Call) -> Value:
    rank = call.first.dim()
    source, target = call.axes("source"), call.axes("destination")
    rest = iter([axis for axis in range(rank) if axis not in source])
    moved = dict(zip(target, source, strict=True))
    return transposed(call.x, [moved[axis] if axis in moved else next(rest) for axis in range(rank)])


def _select(call: Call) -> Value:
    axis, index = call.axis(), int(call["index"])
    size = call.first.shape[axis]
    index %= size
    return call.sliced(call.x, [index], [index + 1], [axis]).shaped(call.shape)


def _slice(call: Call) -> Value:
    axis, step = call.axis(), int(call.get("step", 1))
    size = call.first.shape[axis]
    start, end, _ = slice(call.get("start"), call.get("end")).indices(size)
    if (start, end, step) == (0, size, 1):
        return call.x
    if step == 1:
        return call.sliced(call.x, [start], [end], [axis])
    return call.x.op("Gather", call.constant(np.arange(start, end, step), np.int32), axis=axis)


def _narrow(call: Call) -> Value:
    axis, start = call.axis(), int(call["start"])
    return call.sliced(call.x, [start], [start + int(call["length"])], [axis])


def _pieces(call: Call, sizes: list[int], axis: int) -> list[Value]:
    ends = np.cumsum(sizes).tolist()
    if len(sizes) == 1:
        return [call.x]
    return [call.sliced(call.x, [end - size], [end], [axis]) for size, end in zip(sizes, ends, strict=True)]


def _split(call: Call) -> list[Value]:
    axis = call.axis()
    return _pieces(call, [int(out.shape[axis]) for out in call.outputs], axis)


def _unbind(call: Call) -> list[Value]:
    axis = call.axis()
    pieces = _pieces(call, [1] * len(call.outputs), axis)
    return [piece.shaped(tuple(out.shape)) for piece, out in zip(pieces, call.outputs, strict=True)]


def _cat(call: Call) -> Value:
    tensors = [
        tensor
        for tensor in call["tensors"]
        if not (tensor.dim() == 1 and tensor.numel() == 0 and len(call.shape) != 1)
    ]
    values = [call.as_type(tensor, call.dtype) for tensor in tensors]
    axis = call.axis("dim", 0, len(call.shape))
    return concatenated(values, axis)


def _stack(call: Call) -> Value:
    axis = call.axis("dim", 0, len(call.shape))
    shape = tuple(1 if i == axis else size for i, size in enumerate(call.shape))
    values = [call.as_type(tensor, call.dtype).shaped(shape) for tensor in call["tensors"]]
    return concatenated(values, axis)


def _repeat(call: Call) -> Value:
    repeats = [int(count) for count in call["repeats"]]
    x = call.x
    shape = (1,) * (len(repeats) - x.tensor.rank) + x.tensor.shape
    return x.shaped(shape).op("Tile", call.constant(repeats, np.int64))


def _repeat_interleave(call: Call) -> Value:
    count = call.get("repeats")
    x, axis = call.x, call.get("dim")
    if not isinstance(count, int):
        raise call.refuse("the number of repetitions must be one integer")
    if axis is None:
        x, axis = x.shaped((x.tensor.nelms,)), 0
    places = np.repeat(np.arange(x.tensor.shape[axis]), count)
    return x.op("Gather", call.constant(places, np.int32), axis=int(axis) % x.tensor.rank)


def _roll(call: Call) -> Value:
    shifts = call["shifts"]
    shifts = [shifts] if isinstance(shifts, int) else list(shifts)
    dims, x = call.get("dims", []), call.x
    if not dims:
        flat = x.shaped((x.tensor.nelms,))
        return _rolled(call, flat, shifts[0], 0).shaped(call.shape)
    for shift, axis in zip(shifts, call.axes("dims"), strict=True):
        x = _rolled(call, x, shift, axis)
    return x


def _rolled(call: Call, x: Value, shift: int, axis: int) -> Value:
    size = x.tensor.shape[axis]
    shift %= max(size, 1)
    if not shift:
        return x
    head = call.sliced(x, [size - shift], [size], [axis])
    return head.op("Concat", call.sliced(x, [0], [size - shift], [axis]), axis=axis)


def _pad(call: Call) -> Value:
    pads = [int(size) for size in call.get("pad", call.get("padding"))]
    return _padded(call, pads, "constant", call.get("value", 0))


def _edges(mode: str) -> Rule:
    return lambda call: _padded(call, [int(size) for size in call["padding"]], mode, 0)


def _padded(call: Call, pads: list[int], mode: str, value: Any) -> Value:
    """``pads`` are (before, after) of the last axis, then of the one before it."""
    x = call.x
    rank = x.tensor.rank
    before, after = [0] * rank, [0] * rank
    for number in range(len(pads) // 2):
        before[rank - 1 - number], after[rank - 1 - number] = pads[2 * number : 2 * number + 2]
    if min(pads, default=0) < 0:
        starts = [max(-size, 0) for size in before]
        ends = [s - max(-a, 0) for s, a in zip(x.tensor.shape, after, strict=True)]
        x = call.sliced(x, starts, ends, list(range(rank)))
        before, after = [max(size, 0) for size in before], [max(size, 0) for size in after]
    both = [*before, *after]
    if not any(both):
        return x
    if mode == "constant" and x.tensor.dtype.is_float:
        return x.op("Pad", call.constant(both, np.int64), call.number(value, x), mode=mode)
    if mode == "constant":
        for axis in range(rank):
            edges = [_filled(call, x, axis, width, value) for width in (before[axis], after[axis])]
            x = concatenated([*edges[0], x, *edges[1]], axis)
        return x
    return x.op("Pad", call.constant(both, np.int64), mode=mode)


def _filled(call: Call, x: Value, axis: int, width: int, value: Any) -> list[Value]:
    """A constant like ``x`` of this width along an axis, none of width 0."""
    shape = tuple(width if i == axis else size for i, size in enumerate(x.tensor.shape))
    return [call.constant(np.full(shape, value, x.tensor.dtype.numpy))] if width else []


def _triangle(upper: int) -> Rule:
    def rule(call: Call) -> Value:
        x, k = call.x, int(call.get("diagonal", 0))
        rows, columns = x.tensor.shape[-2:]
        mask = np.triu(np.ones((rows, columns), bool), k) if upper else np.tril(np.ones((rows, columns), bool), k)
        return call.constant(mask).op("Where", x, call.number(0, x))

    return rule


def _unfold(call: Call) -> Value:
    axis, size, step = call.axis("dimension"), int(call["size"]), int(call["step"])
    x = call.x
    count = (x.tensor.shape[axis] - size) // step + 1
    places = np.arange(count)[:, None] * step + np.arange(size)
    windows = x.op("Gather", call.constant(places, np.int32), axis=axis)
    rank = windows.tensor.rank
    return transposed(windows, [*range(axis + 1), *range(axis + 2, rank), axis + 1])


def _elements(call: Call) -> Value:
    """Any view: its elements by their positions in memory."""
    x, base, out = call.x, call.first, call.out
    if not base.is_contiguous():
        raise call.refuse("it needs a contiguous tensor; call contiguous() first")
    places = np.full((), out.storage_offset() - base.storage_offset(), np.int64)
    for axis, (size, stride) in enumerate(zip(out.shape, out.stride(), strict=True)):
        shape = [1] * out.dim()
        shape[axis] = size
        places = places + np.arange(size).reshape(shape) * stride
    if places.size and not 0 <= places.min() <= places.max() < x.tensor.nelms:
        raise call.refuse("it reads memory outside of its tensor; take a view of the tensor that owns the memory")
    flat = x.shaped((x.tensor.nelms,))
    places = np.broadcast_to(places, tuple(out.shape))
    return flat.op("Gather", call.constant(places.reshape(-1), np.int32), axis=0).shaped(call.shape)


def _diagonal(call: Call) -> Value:
    x, k = call.x, int(call.get("offset", 0))
    rank = x.tensor.rank
    a, b = (int(call.get(name, default)) % rank for name, default in (("dim1", 0), ("dim2", 1)))
    rest = [axis for axis in range(rank) if axis not in (a, b)]
    turned = transposed(x, [*rest, a, b])
    rows, columns = turned.tensor.shape[-2:]
    flat = turned.shaped((*turned.tensor.shape[:-2], rows * columns))
    count = call.shape[-1]
    first = k if k >= 0 else -k * columns
    places = first + np.arange(count) * (columns + 1)
    return flat.op("Gather", call.constant(places, np.int32), axis=flat.tensor.rank - 1)


def _pixel_shuffle(call: Call) -> Value:
    factor = int(call["upscale_factor"])
    return call.x.op("DepthToSpace", blocksize=factor, mode="CRD")


def _pixel_unshuffle(call: Call) -> Value:
    r, x = int(call["downscale_factor"]), call.x
    *outer, channels, height, width = x.tensor.shape
    k = len(outer)
    parts = x.shaped((*outer, channels, height // r, r, width // r, r))
    return transposed(parts, [*range(k), k, k + 2, k + 4, k + 1, k + 3]).shaped(call.shape)


def _channel_shuffle(call: Call) -> Value:
    x, groups = call.x, int(call["groups"])
    n, c, *rest = x.tensor.shape
    turned = x.shaped((n, groups, c // groups, *rest))
    return transposed(turned, [0, 2, 1, *range(3, turned.tensor.rank)]).shaped(call.shape)


def _same(call: Call) -> Value:
    return call.x.cast(call.dtype)


RULES: dict[str, Rule] = {
    "_reshape_alias": _shaped,
    "_unsafe_view": _shaped,
    "alias": _same,
    "as_strided": _elements,
    "cat": _cat,
    "channel_shuffle": _channel_shuffle,
    "constant_pad_nd": _pad,
    "detach": _same,
    "diagonal": _diagonal,
    "expand": _expand,
    "flatten": _shaped,
    "flip": lambda call: call.atleast_1d.op("Reverse", dimensions=call.axes("dims")),
    "lift_fresh": _same,
    "lift_fresh_copy": _same,
    "movedim": _movedim,
    "narrow": _narrow,
    "permute": lambda call: transposed(call.x, call.axes("dims")),
    "pixel_shuffle": _pixel_shuffle,
    "pixel_unshuffle": _pixel_unshuffle,
    **{f"reflection_pad{n}d": _edges("reflect") for n in (1, 2, 3)},
    "repeat": _repeat,
    "repeat_interleave": _repeat_interleave,
    **{f"replication_pad{n}d": _edges("edge") for n in (1, 2, 3)},
    "reshape": _shaped,
    "roll": _roll,
    "select": _select,
    "slice": _slice,
    "split": _split,
    "split_with_sizes": _split,
    "squeeze": _shaped,
    "stack": _stack,
    "t": _t,
    "transpose": _transpose,
    "tril": _triangle(0),
    "triu": _triangle(1),
    "unbind": _unbind,
    "unfold": _unfold,
    "unsafe_chunk": _split,
    "unsafe_split": _split,
    "unsafe_split_with_sizes": _split,
    "unsqueeze": _shaped,
    "view": _view,
}
