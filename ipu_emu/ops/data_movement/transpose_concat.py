"""Transpose, Expand, Tile, Concat, Split: ops that move or copy elements without changing them."""

from __future__ import annotations

from functools import partial
from itertools import accumulate
from typing import Any

import numpy as np

from ipu_emu.errors import EmulatorError
from ipu_emu.ops.codegen.compiled_call import relocation, turned_relocation
from ipu_emu.ops.core import Adjoint, BoundOp, Call, Node, OpDef, OutputTypes, Value, call_chain, copy_cost, listed
from ipu_emu.ops.core.image_kernels import image_spread
from ipu_emu.ops.core.kernel_helpers import copy
from ipu_emu.ops.core.shape_rules import axis_of, shape_attribute

#: Types that ``relocation`` copies; it is faster than numpy where rows stay contiguous.
_RELOCATED = (np.float32, np.float16)

#: An array; numpy's stubs call most results Any.
_Array = Any


def _spread(bound: BoundOp) -> Call:
    return image_spread(bound.input(0), bound.outputs[0]) or copy(bound)


# Order of axes


def _permutation(node: Node) -> list[int]:
    rank = node.input(0).rank
    perm = list(node.attribute("perm", [])) or list(reversed(range(rank)))
    if len(perm) != rank:
        raise EmulatorError(
            f"Rank of permutation tensor {listed(perm)}, rank {len(perm)} must be equal to rank of input tensor, "
            f"shape {listed(node.input(0).shape)}, rank {rank}."
        )
    if sorted(perm) != list(range(rank)):
        raise node.fail(f"perm {perm} is not a permutation of the {rank} axes of {node.input(0)}")
    return perm


def _transpose_shape(node: Node) -> OutputTypes:
    x = node.input(0)
    return [(x.dtype, tuple(x.shape[axis] for axis in _permutation(node)))]


def _transpose(bound: BoundOp) -> Call:
    perm, y = _permutation(bound.node), bound.outputs[0]
    x = bound.input(0).transpose(perm)
    if y.dtype in _RELOCATED and 0 < y.ndim <= 4 and y.size and perm[-1] == y.ndim - 1:
        return relocation(x, y)
    return turned_relocation(x, y) or partial(np.copyto, y, x)


def _transpose_grad(d: Adjoint) -> Value:
    perm = _permutation(d.node)
    return d.g.op("Transpose", perm=[perm.index(axis) for axis in range(len(perm))])


# Copies


def _expand_shape(node: Node) -> OutputTypes:
    x, shape = node.input(0), tuple(node.attribute_or_constant("shape", 1))
    try:
        return [(x.dtype, np.broadcast_shapes(x.shape, shape))]
    except ValueError:
        raise EmulatorError(
            "Expand shape constraint: corresponding dimensions must have the same value or one of them must be 1",
            note=f"Op {node.op.label}: {x} does not broadcast to {list(shape)}",
        ) from None


def _repeats(node: Node) -> list[int]:
    """The repeats of each axis; opset 1 has one axis and its number of tiles instead."""
    if node.has_input(1) and "repeats" not in node.op.attributes and node.values[1] is None:
        raise EmulatorError(f"The 'Repeats' Tensor `{node.input(1).id}' must be of type Constant")
    repeats, x = list(node.attribute_or_constant("repeats", 1)), node.input(0)
    if len(repeats) != x.rank:
        raise EmulatorError(
            f"'Repeats' tensor `{''.join(node.op.inputs[1:2])}' should have one element for each dimension of the "
            "data tensor"
        )
    if min(repeats, default=0) < 0:
        raise node.fail(f"repeats {repeats} must be {x.rank} non-negative numbers")
    return repeats


def _tile_shape(node: Node) -> OutputTypes:
    x = node.input(0)
    return [(x.dtype, tuple(size * times for size, times in zip(x.shape, _repeats(node), strict=True)))]


def _tile_grad(d: Adjoint) -> Value:
    pairs = [n for pair in zip(_repeats(d.node), d.shape, strict=True) for n in pair]
    return d.g.shaped(tuple(pairs)).op("ReduceSum", axes=list(range(0, len(pairs), 2)), keepdims=0).shaped(d.shape)


# Joining and splitting


def _concat_shape(node: Node) -> OutputTypes:
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
    leading = (slice(None),) * axis
    return [array[(*leading, slice(end - size, end))] for size, end in zip(sizes, ends, strict=True)]


def _concat(bound: BoundOp) -> Call:
    axis = axis_of(bound.node, bound.node.attribute("axis", 0))
    inputs = [bound.input(index) for index in range(len(bound.inputs))]
    places = _parts(bound.outputs[0], [x.shape[axis] for x in inputs], axis)
    return call_chain(*(partial(np.copyto, place, x) for place, x in zip(places, inputs, strict=True)))


def _concat_grad(d: Adjoint) -> list[Value | None]:
    axis = axis_of(d.node, d.attribute("axis", 0))
    ends = list(accumulate(x.tensor.shape[axis] for x in d.inputs))
    return [
        d.g.op("Slice", starts=[end - x.tensor.shape[axis]], ends=[end], axes=[axis])
        for x, end in zip(d.inputs, ends, strict=True)
    ]


def _sizes(node: Node) -> list[int]:
    """Sizes of the parts of a split: as given, or equal, where the last part may be smaller."""
    x, axis, count = node.input(0), axis_of(node, node.attribute("axis", 0)), len(node.op.outputs)
    sizes = list(node.attribute_or_constant("split", 1) or [])
    count = count or int(node.attribute("num_outputs", len(sizes)))
    if not sizes:
        size = -(-x.shape[axis] // max(count, 1))
        sizes = [min(size, max(x.shape[axis] - size * i, 0)) for i in range(count)]
    if len(sizes) != count or sum(sizes) != x.shape[axis] or min(sizes) < 0:
        raise node.fail(f"cannot split {x} along axis {axis} into {count} parts of sizes {sizes}")
    return sizes


def _split_shape(node: Node) -> OutputTypes:
    x, axis = node.input(0), axis_of(node, node.attribute("axis", 0))
    return [(x.dtype, (*x.shape[:axis], size, *x.shape[axis + 1 :])) for size in _sizes(node)]


def _split(bound: BoundOp) -> Call:
    axis = axis_of(bound.node, bound.node.attribute("axis", 0))
    parts = _parts(bound.input(0), _sizes(bound.node), axis)
    return call_chain(*(partial(np.copyto, y, part) for y, part in zip(bound.outputs, parts, strict=True)))


def _split_grad(d: Adjoint) -> Value:
    first, *others = (d.gradient(index) for index in range(len(d.outputs)))
    return first.op("Concat", *others, axis=d.attribute("axis", 0))


def _tile(bound: BoundOp) -> Call:
    """Every axis of the result as (repeat, element); splitting an axis is a view of any array."""
    x, y, repeats = bound.input(0), bound.outputs[0], _repeats(bound.node)
    places = y.reshape([n for pair in zip(repeats, x.shape, strict=True) for n in pair])
    return partial(np.copyto, places, x.reshape([n for size in x.shape for n in (1, size)]))


OPS = [
    OpDef("Transpose", (1, 1), _transpose_shape, _transpose, copy_cost, _transpose_grad),
    OpDef("SpreadTo", (1, 1), shape_attribute, _spread, copy_cost, lambda d: d.g.summed_to(d.shape)),
    OpDef(
        "Expand",
        (2, 2),
        _expand_shape,
        copy,
        copy_cost,
        lambda d: [d.g.summed_to(d.shape)],
        constant_inputs={1: "shape"},
    ),
    OpDef("Tile", (2, 2), _tile_shape, _tile, copy_cost, lambda d: [_tile_grad(d)], constant_inputs={1: "repeats"}),
    OpDef("Concat", (1, None), _concat_shape, _concat, copy_cost, _concat_grad),
    OpDef("Split", (1, 2), _split_shape, _split, copy_cost, _split_grad, constant_inputs={1: "split"}),
]
