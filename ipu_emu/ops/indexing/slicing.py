"""Slicing: parts of a tensor at constant bounds, and reversed axes."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from ipu_emu.errors import EmulatorError
from ipu_emu.graph.op import GRAPHCORE
from ipu_emu.ops.core import Adjoint, BoundOp, Call, Node, OpDef, OutputTypes, Value, call_chain, copy_cost
from ipu_emu.ops.core.shape_rules import axis_of, same, shape_attribute

#: An array; numpy's stubs call most results Any.
_Array = Any


def _slices(node: Node) -> tuple[slice, ...]:
    """One slice for each axis, with bounds clamped as ONNX specifies."""
    x = node.input(0)
    starts, ends = list(node.attribute_or_constant("starts", 1)), list(node.attribute_or_constant("ends", 2))
    axes = node.attribute_or_constant("axes", 3) or list(range(len(starts)))
    steps = node.attribute_or_constant("steps", 4) or [1] * len(starts)
    if not len(starts) == len(ends) == len(axes) == len(steps) or 0 in steps:
        raise node.fail(f"starts {starts}, ends {ends}, axes {axes} and steps {steps} must have equal lengths")
    slices = [slice(None)] * x.rank
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        place = axis_of(node, axis)
        low, high, by = slice(start, end, step).indices(x.shape[place])
        slices[place] = slice(low, high if high >= 0 else None, by)
        if step > 0:
            slices[place] = slice(low, max(high, low), by)
    return tuple(slices)


def _slice_shape(node: Node) -> OutputTypes:
    x = node.input(0)
    sizes = (len(range(*s.indices(size))) for s, size in zip(_slices(node), x.shape, strict=True))
    return [(x.dtype, tuple(sizes))]


def _slice(bound: BoundOp) -> Call:
    return partial(np.copyto, bound.outputs[0], bound.input(0)[_slices(bound.node)])


def _slice_grad(d: Adjoint) -> Value:
    slices = _slices(d.node)
    bounds = [s.indices(size) for s, size in zip(slices, d.shape, strict=True)]
    starts, ends, steps = ([bound[i] for bound in bounds] for i in range(3))
    return d.g.op("SliceInto", shape=list(d.shape), starts=starts, ends=ends, steps=steps)


def _slice_into(bound: BoundOp) -> Call:
    """Fill the output with zeros, then copy the input to a slice of it."""
    node, y = bound.node, bound.outputs[0]
    triples = zip(*(node.attribute(name, []) for name in ("starts", "ends", "steps")), strict=True)
    place = y[tuple(slice(a, b if b >= 0 else None, step) for a, b, step in triples)]
    return call_chain(partial(y.fill, 0), partial(np.copyto, place, bound.input(0)))


def _slice_into_grad(d: Adjoint) -> Value:
    ends = [end if end >= 0 else -(2**31) for end in d.attribute("ends", [])]
    return d.g.op("Slice", starts=d.attribute("starts", []), ends=ends, steps=d.attribute("steps", []))


def _subsample_slices(node: Node) -> tuple[slice, ...]:
    strides = list(node.attribute("strides", []))
    if 0 in strides:
        raise EmulatorError(f"Strides invalid. 0 stride at index {strides.index(0)}")
    if len(strides) != node.input(0).rank or min(strides, default=1) < 1:
        raise node.fail(f"strides {strides} must be {node.input(0).rank} numbers of at least 1")
    return tuple(slice(None, None, stride) for stride in strides)


def _subsample_shape(node: Node) -> OutputTypes:
    x = node.input(0)
    return [(x.dtype, tuple(-(-n // s.step) for n, s in zip(x.shape, _subsample_slices(node), strict=True)))]


def _subsample(bound: BoundOp) -> Call:
    return partial(np.copyto, bound.outputs[0], bound.input(0)[_subsample_slices(bound.node)])


def _subsample_grad(d: Adjoint) -> Value:
    shape, strides = list(d.shape), [s.step for s in _subsample_slices(d.node)]
    return d.g.op("SliceInto", shape=shape, starts=[0] * len(shape), ends=shape, steps=strides)


def _reversed(node: Node) -> tuple[slice, ...]:
    axes = {axis_of(node, axis) for axis in node.attribute("dimensions", [])}
    return tuple(slice(None, None, -1 if axis in axes else 1) for axis in range(node.input(0).rank))


def _reverse(bound: BoundOp) -> Call:
    return partial(np.copyto, bound.outputs[0], bound.input(0)[_reversed(bound.node)])


def _reverse_grad(d: Adjoint) -> Value:
    return d.g.op("Reversed", **d.node.op.attributes)


#: Inputs that were attributes before opset 10.
_SLICE = {1: "starts", 2: "ends", 3: "axes", 4: "steps"}

OPS = [
    OpDef("Slice", (1, 5), _slice_shape, _slice, copy_cost, _slice_grad, constant_inputs=_SLICE),
    OpDef("Slice", (1, 1), _slice_shape, _slice, copy_cost, _slice_grad, domain=GRAPHCORE),
    # SliceInto(g; shape, starts, ends, steps): the gradient of a slice.
    OpDef("SliceInto", (1, 1), shape_attribute, _slice_into, copy_cost, _slice_into_grad),
    OpDef("Subsample", (1, 1), _subsample_shape, _subsample, copy_cost, _subsample_grad, domain=GRAPHCORE),
    OpDef("Reverse", (1, 1), same, _reverse, copy_cost, _reverse_grad, domain=GRAPHCORE),
    OpDef("Reversed", (1, 1), same, _reverse, copy_cost, _reverse_grad),
]
