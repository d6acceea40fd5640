"""Ops that move elements without changing them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from math import prod

import numpy as np

from ipu_emu.graph.dtype import dtype_numbered
from ipu_emu.graph.op import GRAPHCORE
from ipu_emu.ops.adjoint import Adjoint, Value
from ipu_emu.ops.arrays import chain, view
from ipu_emu.ops.cost import moves
from ipu_emu.ops.node import Made, Node
from ipu_emu.ops.registry import Bound, GradRule, Kernel, OpDef, ShapeRule, Step
from ipu_emu.ops.shapes import inferred, same

__all__ = ["OPS"]


def _copy(bound: Bound) -> Step:
    return partial(np.copyto, bound.outputs[0], bound.input(0), casting="unsafe")


def _reshape(bound: Bound) -> Step:
    """Copy through a buffer in logical order, as the storage orders do not agree."""
    x, y = bound.input(0), bound.outputs[0]
    between = bound.scratch[0].view(x.dtype)[: x.size]
    return chain(partial(np.copyto, view(between, x.shape), x), partial(np.copyto, y, view(between, y.shape)))


def _whole_input(node: Node) -> list[int]:
    return [-(-node.input(0).nelms * max(node.input(0).dtype.itemsize, 4) // 4)]


def _reshape_by_input(node: Node) -> Made:
    return [(node.input(0).dtype, inferred(node, node.given("shape", 1)))]


def _reshape_by_attribute(node: Node) -> Made:
    return [(node.input(0).dtype, inferred(node, node.attribute("shape", [])))]


def _flatten(node: Node) -> Made:
    x, axis = node.input(0), node.attribute("axis", 1)
    if not -x.rank <= axis <= x.rank:
        raise node.fail(f"axis {axis} was asked for; {x} allows {-x.rank} to {x.rank}")
    axis = axis + x.rank if axis < 0 else axis
    return [(x.dtype, (prod(x.shape[:axis]), prod(x.shape[axis:])))]


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


def _spread_shape(node: Node) -> Made:
    return [(node.input(0).dtype, tuple(node.attribute("shape", [])))]


def _cast_shape(node: Node) -> Made:
    return [(dtype_numbered(node.attribute("to", 1)), node.input(0).shape)]


def _view(
    type: str,
    shape: ShapeRule,
    grad: GradRule | None,
    *,
    domain: str = "",
    inputs: tuple[int, int] = (1, 1),
    kernel: Kernel = _reshape,
    given: Mapping[int, str] | None = None,
) -> OpDef:
    return OpDef(type, inputs, shape, kernel, moves, grad, _whole_input, view_of=0, domain=domain, given=given or {})


def _back(d: Adjoint) -> Value:
    return d.g.shaped(d.shape)


def _pass(d: Adjoint) -> Value:
    return d.g


OPS = [
    _view("Identity", same, _pass, kernel=_copy),
    _view("Nop", same, _pass, kernel=_copy, domain=GRAPHCORE),
    _view("Detach", same, None, kernel=_copy, domain=GRAPHCORE),
    _view("Reshape", _reshape_by_input, _back, inputs=(2, 2), given={1: "shape"}),
    _view("Reshape", _reshape_by_attribute, _back, domain=GRAPHCORE),
    _view("ReshapeTo", _reshape_by_attribute, _back),
    _view("Flatten", _flatten, _back),
    OpDef("Transpose", (1, 1), _transpose_shape, _transpose, moves, _transpose_grad),
    OpDef("SpreadTo", (1, 1), _spread_shape, _copy, moves, lambda d: d.g.summed_to(d.shape)),
    OpDef("Cast", (1, 1), _cast_shape, _copy, moves, lambda d: d.g.op("Cast", to=d.x.tensor.dtype.onnx)),
]
