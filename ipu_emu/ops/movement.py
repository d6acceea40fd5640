"""Ops that move elements without changing them."""

from __future__ import annotations

from functools import partial
from itertools import accumulate
from typing import Any

import numpy as np

from ipu_emu.graph import Tensor
from ipu_emu.graph.dtype import dtype_numbered
from ipu_emu.graph.op import GRAPHCORE
from ipu_emu.ops.adjoint import Adjoint, Value
from ipu_emu.ops.arrays import chain, computed
from ipu_emu.ops.cost import moves
from ipu_emu.ops.node import Made, Node
from ipu_emu.ops.registry import Bound, OpDef, Step
from ipu_emu.ops.shapes import axis_of, same

__all__ = ["OPS"]

#: An array; numpy's stubs call most results Any.
_Array = Any


def _copy(bound: Bound) -> Step:
    return partial(np.copyto, bound.outputs[0], bound.input(0), casting="unsafe")


def _by_attribute(node: Node) -> Made:
    return [(node.input(0).dtype, tuple(node.attribute("shape", [])))]


# Order of axes


def _permutation(node: Node) -> list[int]:
    rank = node.input(0).rank
    perm = list(node.attribute("perm", [])) or list(reversed(range(rank)))
    if sorted(perm) != list(range(rank)):
        raise node.fail(f"perm {perm} is not an order of the {rank} axes of {node.input(0)}")
    return perm


def _transpose_shape(node: Node) -> Made:
    x = node.input(0)
    return [(x.dtype, tuple(x.shape[axis] for axis in _permutation(node)))]


def _transpose(bound: Bound) -> Step:
    return partial(np.copyto, bound.outputs[0], bound.input(0).transpose(_permutation(bound.node)))


def _transpose_grad(d: Adjoint) -> Value:
    perm = _permutation(d.node)
    return d.g.op("Transpose", perm=[perm.index(axis) for axis in range(len(perm))])


# Copies


def _expand_shape(node: Node) -> Made:
    x, asked = node.input(0), tuple(node.given("shape", 1))
    try:
        return [(x.dtype, np.broadcast_shapes(x.shape, asked))]
    except ValueError:
        raise node.fail(f"{x} does not expand to {list(asked)}") from None


def _repeats(node: Node) -> list[int]:
    """One number for each axis; opset 1 gave the axis instead."""
    repeats, x = list(node.given("repeats", 1)), node.input(0)
    if len(repeats) != x.rank or min(repeats, default=0) < 0:
        raise node.fail(f"repeats {repeats} were given; give {x.rank} numbers that are not negative")
    return repeats


def _tile_shape(node: Node) -> Made:
    x = node.input(0)
    return [(x.dtype, tuple(size * times for size, times in zip(x.shape, _repeats(node), strict=True)))]


def _tile_grad(d: Adjoint) -> Value:
    pairs = [n for pair in zip(_repeats(d.node), d.shape, strict=True) for n in pair]
    return d.g.shaped(tuple(pairs)).op("ReduceSum", axes=list(range(0, len(pairs), 2)), keepdims=0).shaped(d.shape)


# Joining and splitting


def _concat_shape(node: Node) -> Made:
    first, axis = node.input(0), axis_of(node, node.attribute("axis", 0))
    total = 0
    for index in range(len(node.inputs)):
        part = node.input(index)
        if part.dtype != first.dtype or part.rank != first.rank:
            raise node.fail(f"{part} cannot be joined to {first}")
        if part.shape[:axis] + part.shape[axis + 1 :] != first.shape[:axis] + first.shape[axis + 1 :]:
            raise node.fail(f"{part} cannot be joined to {first} along axis {axis}")
        total += part.shape[axis]
    return [(first.dtype, (*first.shape[:axis], total, *first.shape[axis + 1 :]))]


def _parts(array: _Array, sizes: list[int], axis: int) -> list[_Array]:
    """Views of ``array``, one after the other along ``axis``."""
    ends = list(accumulate(sizes))
    whole = (slice(None),) * axis
    return [array[(*whole, slice(end - size, end))] for size, end in zip(sizes, ends, strict=True)]


def _concat(bound: Bound) -> Step:
    axis = axis_of(bound.node, bound.node.attribute("axis", 0))
    inputs = [bound.input(index) for index in range(len(bound.inputs))]
    places = _parts(bound.outputs[0], [x.shape[axis] for x in inputs], axis)
    return chain(*(partial(np.copyto, place, x) for place, x in zip(places, inputs, strict=True)))


def _concat_grad(d: Adjoint) -> list[Value | None]:
    axis = axis_of(d.node, d.attribute("axis", 0))
    ends = list(accumulate(x.tensor.shape[axis] for x in d.inputs))
    return [
        d.g.op("Slice", starts=[end - x.tensor.shape[axis]], ends=[end], axes=[axis])
        for x, end in zip(d.inputs, ends, strict=True)
    ]


def _sizes(node: Node) -> list[int]:
    """Sizes of the parts of a split: given, or even, where the last may be smaller."""
    x, axis, count = node.input(0), axis_of(node, node.attribute("axis", 0)), len(node.op.outputs)
    sizes = list(node.given("split", 1) or [])
    count = count or int(node.attribute("num_outputs", len(sizes)))
    if not sizes:
        each = -(-x.shape[axis] // max(count, 1))
        sizes = [min(each, max(x.shape[axis] - each * i, 0)) for i in range(count)]
    if len(sizes) != count or sum(sizes) != x.shape[axis] or min(sizes) < 0:
        raise node.fail(f"cannot split {x} along axis {axis} into {count} parts of sizes {sizes}")
    return sizes


def _split_shape(node: Node) -> Made:
    x, axis = node.input(0), axis_of(node, node.attribute("axis", 0))
    return [(x.dtype, (*x.shape[:axis], size, *x.shape[axis + 1 :])) for size in _sizes(node)]


def _split(bound: Bound) -> Step:
    axis = axis_of(bound.node, bound.node.attribute("axis", 0))
    parts = _parts(bound.input(0), _sizes(bound.node), axis)
    return chain(*(partial(np.copyto, y, part) for y, part in zip(bound.outputs, parts, strict=True)))


def _split_grad(d: Adjoint) -> Value:
    first, *others = (d.gradient(index) for index in range(len(d.outputs)))
    return first.op("Concat", *others, axis=d.attribute("axis", 0))


# Slices


def _slices(node: Node) -> tuple[slice, ...]:
    """One slice for each axis, with bounds cut to the axis as ONNX says."""
    x = node.input(0)
    starts, ends = list(node.given("starts", 1)), list(node.given("ends", 2))
    axes = node.given("axes", 3) or list(range(len(starts)))
    steps = node.given("steps", 4) or [1] * len(starts)
    if not len(starts) == len(ends) == len(axes) == len(steps) or 0 in steps:
        raise node.fail(f"starts {starts}, ends {ends}, axes {axes} and steps {steps} do not belong together")
    made = [slice(None)] * x.rank
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        place = axis_of(node, axis)
        low, high, by = slice(start, end, step).indices(x.shape[place])
        made[place] = slice(low, high if high >= 0 else None, by)
        if step > 0:
            made[place] = slice(low, max(high, low), by)
    return tuple(made)


def _slice_shape(node: Node) -> Made:
    x = node.input(0)
    sizes = (len(range(*s.indices(size))) for s, size in zip(_slices(node), x.shape, strict=True))
    return [(x.dtype, tuple(sizes))]


def _slice(bound: Bound) -> Step:
    return partial(np.copyto, bound.outputs[0], bound.input(0)[_slices(bound.node)])


def _slice_grad(d: Adjoint) -> Value:
    slices = _slices(d.node)
    bounds = [s.indices(size) for s, size in zip(slices, d.shape, strict=True)]
    starts, ends, steps = ([bound[i] for bound in bounds] for i in range(3))
    return d.g.op("SliceInto", shape=list(d.shape), starts=starts, ends=ends, steps=steps)


def _slice_into(bound: Bound) -> Step:
    """Zeros, with the input in the places of a slice."""
    node, y = bound.node, bound.outputs[0]
    triples = zip(*(node.attribute(name, []) for name in ("starts", "ends", "steps")), strict=True)
    place = y[tuple(slice(a, b if b >= 0 else None, step) for a, b, step in triples)]
    return chain(partial(y.fill, 0), partial(np.copyto, place, bound.input(0)))


def _slice_into_grad(d: Adjoint) -> Value:
    ends = [end if end >= 0 else -(2**31) for end in d.attribute("ends", [])]
    return d.g.op("Slice", starts=d.attribute("starts", []), ends=ends, steps=d.attribute("steps", []))


def _subsample_slices(node: Node) -> tuple[slice, ...]:
    strides = list(node.attribute("strides", []))
    if len(strides) != node.input(0).rank or min(strides, default=1) < 1:
        raise node.fail(f"strides {strides} were given; give {node.input(0).rank} numbers of at least 1")
    return tuple(slice(None, None, stride) for stride in strides)


def _subsample_shape(node: Node) -> Made:
    x = node.input(0)
    return [(x.dtype, tuple(-(-n // s.step) for n, s in zip(x.shape, _subsample_slices(node), strict=True)))]


def _subsample(bound: Bound) -> Step:
    return partial(np.copyto, bound.outputs[0], bound.input(0)[_subsample_slices(bound.node)])


def _subsample_grad(d: Adjoint) -> Value:
    shape, strides = list(d.shape), [s.step for s in _subsample_slices(d.node)]
    return d.g.op("SliceInto", shape=shape, starts=[0] * len(shape), ends=shape, steps=strides)


def _reversed(node: Node) -> tuple[slice, ...]:
    axes = {axis_of(node, axis) for axis in node.attribute("dimensions", [])}
    return tuple(slice(None, None, -1 if axis in axes else 1) for axis in range(node.input(0).rank))


def _reverse(bound: Bound) -> Step:
    return partial(np.copyto, bound.outputs[0], bound.input(0)[_reversed(bound.node)])


# Padding


def _pads(node: Node) -> list[tuple[int, int]]:
    """(before, after) for each axis; negative ones cut."""
    x, pads = node.input(0), list(node.given("pads", 1))
    axes = [axis_of(node, axis) for axis in node.given("axes", 3) or range(x.rank)]
    if len(pads) != 2 * len(axes):
        raise node.fail(f"pads {pads} were given; give {2 * len(axes)} numbers: begins, then ends")
    made = [(0, 0)] * x.rank
    for index, axis in enumerate(axes):
        made[axis] = (pads[index], pads[index + len(axes)])
    return made


def _pad_shape(node: Node) -> Made:
    x = node.input(0)
    sizes = tuple(before + size + after for size, (before, after) in zip(x.shape, _pads(node), strict=True))
    if min(sizes, default=0) < 0:
        raise node.fail(f"pads {_pads(node)} leave nothing of {x}")
    if node.attribute("mode", "constant") not in ("constant", "edge", "reflect", "wrap"):
        raise node.fail(f"mode {node.attribute('mode', '')} is not one of constant, edge, reflect, wrap")
    return [(x.dtype, sizes)]


def _sources(node: Node) -> list[_Array]:
    """For each axis, the place that each element of the result comes from; -1 for the padding of mode constant."""
    x, mode, made = node.input(0), node.attribute("mode", "constant"), []
    for size, (before, after) in zip(x.shape, _pads(node), strict=True):
        at = np.arange(-before, size + after)
        if mode == "constant":
            at = np.where((at < 0) | (at >= size), -1, at)
        elif mode == "edge":
            at = np.clip(at, 0, max(size - 1, 0))
        elif mode == "wrap":
            at = at % max(size, 1)
        else:
            period = max(2 * (size - 1), 1)
            at = np.abs((at + size - 1) % period - (size - 1)) if size > 1 else at * 0
        made.append(at)
    return made


def _pad(bound: Bound) -> Step:
    node, x, y = bound.node, bound.input(0), bound.outputs[0]
    sources = _sources(node)
    if node.attribute("mode", "constant") != "constant":
        return lambda: np.copyto(y, x[np.ix_(*sources)])
    inside = [np.flatnonzero(at >= 0) for at in sources]
    target = y[tuple(slice(at[0], at[-1] + 1) if at.size else slice(0, 0) for at in inside)]
    taken = [at[at >= 0] for at in sources]
    source = x[tuple(slice(at[0], at[-1] + 1) if at.size else slice(0, 0) for at in taken)]
    value = bound.input(2) if node.has_input(2) else np.asarray(node.attribute("value", 0.0))
    return chain(lambda: np.copyto(y, value.reshape(()), "unsafe"), partial(np.copyto, target, source))


def _pad_grad(d: Adjoint) -> list[Value | None]:
    pads, mode = _pads(d.node), d.attribute("mode", "constant")
    flat = [before for before, _ in pads] + [after for _, after in pads]
    dx = d.g.op("PadGrad", shape=list(d.shape), pads=flat, mode=mode)
    if mode != "constant" or d.optional(2) is None:
        return [dx]
    outside = d.g.summed_to(()) - dx.summed_to(())
    return [dx, None, outside.shaped(d.input(2).tensor.shape)]


def _pad_back(node: Node, g: _Array) -> _Array:
    """Add each element to the place that it was taken from."""
    shape = tuple(node.attribute("shape", []))
    origin = Node(node.op, (Tensor("", node.input(0).dtype, shape),))
    out = np.zeros(shape, g.dtype)
    sources = _sources(origin)
    kept = [np.flatnonzero(at >= 0) for at in sources]
    places = [at[at >= 0] for at in sources]
    np.add.at(out, np.ix_(*places), g[np.ix_(*kept)])
    return out


# Blocks of pixels


def _blocks(node: Node) -> tuple[int, ...]:
    x, block = node.input(0), int(node.attribute("blocksize", 1))
    if x.rank != 4 or block < 1:
        raise node.fail(f"data [N, C, H, W] and a positive blocksize are needed, found {x} and {block}")
    return (*x.shape, block)


def _depth_shape(node: Node) -> Made:
    n, c, h, w, b = _blocks(node)
    if c % (b * b):
        raise node.fail(f"{c} channels cannot be spread over blocks of {b} by {b}")
    return [(node.input(0).dtype, (n, c // (b * b), h * b, w * b))]


def _depth_to_space(node: Node, x: _Array) -> _Array:
    n, c, h, w, b = _blocks(node)
    c //= b * b
    if node.attribute("mode", "DCR") == "DCR":
        return x.reshape(n, b, b, c, h, w).transpose(0, 3, 4, 1, 5, 2).reshape(n, c, h * b, w * b)
    return x.reshape(n, c, b, b, h, w).transpose(0, 1, 4, 2, 5, 3).reshape(n, c, h * b, w * b)


def _space_shape(node: Node) -> Made:
    n, c, h, w, b = _blocks(node)
    if h % b or w % b:
        raise node.fail(f"{node.input(0)} has no whole number of blocks of {b} by {b}")
    return [(node.input(0).dtype, (n, c * b * b, h // b, w // b))]


def _space_to_depth(node: Node, x: _Array) -> _Array:
    n, c, h, w, b = _blocks(node)
    parts = x.reshape(n, c, h // b, b, w // b, b)
    order = (0, 3, 5, 1, 2, 4) if node.attribute("mode", "DCR") == "DCR" else (0, 1, 3, 5, 2, 4)
    return parts.transpose(order).reshape(n, c * b * b, h // b, w // b)


def _inverse(type: str) -> Any:
    return lambda d: d.g.op(type, **d.node.op.attributes)


# Types


def _cast_shape(node: Node) -> Made:
    return [(dtype_numbered(node.attribute("to", 1)), node.input(0).shape)]


def _cast_grad(d: Adjoint) -> Value:
    return d.g.op("Cast", to=d.x.tensor.dtype.onnx)


def _cast_like(node: Node) -> Made:
    return [(node.input(1).dtype, node.input(0).shape)]


def _tile(node: Node, x: _Array) -> _Array:
    return np.tile(x, _repeats(node))


def _reverse_grad(d: Adjoint) -> Value:
    return d.g.op("Reversed", **d.node.op.attributes)


#: Inputs that were attributes before opset 10.
_SLICE = {1: "starts", 2: "ends", 3: "axes", 4: "steps"}

OPS = [
    OpDef("Transpose", (1, 1), _transpose_shape, _transpose, moves, _transpose_grad),
    OpDef("SpreadTo", (1, 1), _by_attribute, _copy, moves, lambda d: d.g.summed_to(d.shape)),
    OpDef("Expand", (2, 2), _expand_shape, _copy, moves, lambda d: [d.g.summed_to(d.shape)], given={1: "shape"}),
    OpDef("Tile", (2, 2), _tile_shape, computed(_tile), moves, lambda d: [_tile_grad(d)], given={1: "repeats"}),
    OpDef("Concat", (1, None), _concat_shape, _concat, moves, _concat_grad),
    OpDef("Split", (1, 2), _split_shape, _split, moves, _split_grad, given={1: "split"}),
    OpDef("Slice", (1, 5), _slice_shape, _slice, moves, _slice_grad, given=_SLICE),
    OpDef("Slice", (1, 1), _slice_shape, _slice, moves, _slice_grad, domain=GRAPHCORE),
    # SliceInto(g; shape, starts, ends, steps): the gradient of a slice.
    OpDef("SliceInto", (1, 1), _by_attribute, _slice_into, moves, _slice_into_grad),
    OpDef("Subsample", (1, 1), _subsample_shape, _subsample, moves, _subsample_grad, domain=GRAPHCORE),
    OpDef("Reverse", (1, 1), same, _reverse, moves, _reverse_grad, domain=GRAPHCORE),
    OpDef("Reversed", (1, 1), same, _reverse, moves, _reverse_grad),
    OpDef("Pad", (1, 4), _pad_shape, _pad, moves, _pad_grad, given={1: "pads", 3: "axes"}),
    OpDef("PadGrad", (1, 1), _by_attribute, computed(_pad_back), moves),
    OpDef("DepthToSpace", (1, 1), _depth_shape, computed(_depth_to_space), moves, _inverse("SpaceToDepth")),
    OpDef(
        "DepthToSpace",
        (1, 1),
        _depth_shape,
        computed(_depth_to_space),
        moves,
        _inverse("SpaceToDepth"),
        domain=GRAPHCORE,
    ),
    OpDef("SpaceToDepth", (1, 1), _space_shape, computed(_space_to_depth), moves, _inverse("DepthToSpace")),
    OpDef("Cast", (1, 1), _cast_shape, _copy, moves, _cast_grad),
    OpDef("CastLike", (2, 2), _cast_like, _copy, moves, lambda d: [_cast_grad(d)]),
]
