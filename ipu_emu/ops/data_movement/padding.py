"""Padding and masking: adds elements around a tensor, or sets those on one side of a diagonal to 0 (Trilu)."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from ipu_emu.errors import EmulatorError
from ipu_emu.graph import Tensor
from ipu_emu.ops.core import Adjoint, Node, OutputTypes, Rewrite, Value, call_chain, copy_cost
from ipu_emu.ops.core.op_definition import BoundOp, Call, OpDef, expanded_op
from ipu_emu.ops.core.shape_rules import axis_of, shape_attribute
from popdist_py.messages.suggestion import did_you_mean

#: An array; numpy's stubs call most results Any.
_Array = Any


def _pads(node: Node) -> list[tuple[int, int]]:
    """(before, after) for each axis; negative numbers remove elements."""
    x, pads = node.input(0), list(node.attribute_or_constant("pads", 1))
    axes = [axis_of(node, axis) for axis in node.attribute_or_constant("axes", 3) or range(x.rank)]
    if len(pads) != 2 * len(axes):
        raise EmulatorError(
            f"Padding vector (length {len(pads)}) doesn't contain 2 entries per input dimension {len(axes)}"
        )
    pairs = [(0, 0)] * x.rank
    for index, axis in enumerate(axes):
        pairs[axis] = (pads[index], pads[index + len(axes)])
    return pairs


def _pad_shape(node: Node) -> OutputTypes:
    x = node.input(0)
    sizes = tuple(before + size + after for size, (before, after) in zip(x.shape, _pads(node), strict=True))
    if min(sizes, default=0) < 0:
        raise node.fail(f"pads {_pads(node)} remove more elements than {x} has")
    mode, modes = node.attribute("mode", "constant"), ("constant", "edge", "reflect", "wrap")
    if mode not in modes:
        raise node.fail(f"mode {mode} is not one of {', '.join(modes)}{did_you_mean(mode, modes)}")
    return [(x.dtype, sizes)]


def _sources(node: Node) -> list[_Array]:
    """For each axis, the input index of each output element; -1 for the padding of mode constant."""
    x, mode, sources = node.input(0), node.attribute("mode", "constant"), []
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
        sources.append(at)
    return sources


def _pad(bound: BoundOp) -> Call:
    node, x, y = bound.node, bound.input(0), bound.outputs[0]
    sources = _sources(node)
    if node.attribute("mode", "constant") != "constant":
        return lambda: np.copyto(y, x[np.ix_(*sources)])
    inner, outer = _inside(sources)
    value = bound.input(2) if node.has_input(2) else np.asarray(node.attribute("value", 0.0))
    return call_chain(lambda: np.copyto(y, value.reshape(()), "unsafe"), partial(np.copyto, y[outer], x[inner]))


def _pad_grad(d: Adjoint) -> list[Value | None]:
    pads, mode = _pads(d.node), d.attribute("mode", "constant")
    flat = [before for before, _ in pads] + [after for _, after in pads]
    dx = d.g.op("PadGrad", shape=list(d.shape), pads=flat, mode=mode)
    if mode != "constant" or d.optional(2) is None:
        return [dx]
    outside = d.g.summed_to(()) - dx.summed_to(())
    return [dx, None, outside.shaped(d.input(2).tensor.shape)]


def _pad_back(bound: BoundOp) -> Call:
    """Add each element of the gradient to the input element that it was copied from."""
    node, g, dx = bound.node, bound.input(0), bound.outputs[0]
    sources = _sources(Node(node.op, (Tensor("", node.input(0).dtype, dx.shape),)))
    if node.attribute("mode", "constant") == "constant":
        inner, outer = _inside(sources)
        return call_chain(partial(dx.fill, 0), partial(np.copyto, dx[inner], g[outer]))
    return call_chain(partial(dx.fill, 0), lambda: np.add.at(dx, np.ix_(*sources), g))


def _inside(sources: list[_Array]) -> tuple[tuple[slice, ...], tuple[slice, ...]]:
    """The slices of the input that the padded tensor contains, and their slices in the padded tensor."""
    inner, outer = [], []
    for at in sources:
        (there,) = np.nonzero(at >= 0)
        first, last = (there[0], there[-1]) if there.size else (0, -1)
        outer.append(slice(first, last + 1))
        inner.append(slice(at[first], at[last] + 1) if there.size else slice(0, 0))
    return tuple(inner), tuple(outer)


def _matrices(node: Node) -> OutputTypes:
    x = node.input(0)
    if x.rank < 2:
        raise node.fail(f"the input must be matrices [..., rows, columns], found {x}")
    return [(x.dtype, x.shape)]


def _one_side(rewrite: Rewrite, node: Node) -> None:
    """Select on one side of a diagonal, which may be computed in the step."""
    x, upper = node.input(0), bool(node.attribute("upper", 1))
    rows, columns = np.indices(x.shape[-2:])
    zero = rewrite.constant(np.zeros((), x.dtype.numpy))
    if node.has_input(1) and node.values[1] is None:
        k = rewrite.op("ReshapeTo", node.op.inputs[1], shape=[])
        distance = rewrite.constant((columns - rows).astype(node.input(1).dtype.numpy))
        outside = rewrite.op("Less" if upper else "Greater", distance, k)
        rewrite.op("Where", outside, zero, node.op.inputs[0], into=node.op.outputs[0])
        return
    k0 = int(np.asarray(node.values[1]).reshape(())) if node.has_input(1) else 0
    mask = columns - rows >= k0 if upper else columns - rows <= k0
    rewrite.op("Where", rewrite.constant(mask), node.op.inputs[0], zero, into=node.op.outputs[0])


OPS = [
    OpDef("Pad", (1, 4), _pad_shape, _pad, copy_cost, _pad_grad, constant_inputs={1: "pads", 3: "axes"}),
    OpDef("PadGrad", (1, 1), shape_attribute, _pad_back, copy_cost),
    expanded_op("Trilu", (1, 2), _matrices, _one_side, copy_cost),
]
