"""Comparison: comparisons, logic, bitwise operations, and Where."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ipu_emu.graph.dtype import BOOL
from ipu_emu.graph.op import GRAPHCORE
from ipu_emu.ops.core import Adjoint, BoundOp, Call, Node, OpDef, OutputTypes, Value, per_element
from ipu_emu.ops.core.kernel_helpers import aligned, allocating_kernel, ufunc
from ipu_emu.ops.core.shape_rules import broadcast, same


def _comparison(type: str, function: Callable[..., Any]) -> OpDef:
    def shape(node: Node) -> OutputTypes:
        return [(BOOL, broadcast(node)[0][1])]

    return OpDef(type, (2, 2), shape, aligned(function), per_element(1), elementwise=True)


def _logic(type: str, function: Callable[..., Any]) -> OpDef:
    entry = _comparison(type, function)

    def shape(node: Node) -> OutputTypes:
        for index in range(2):
            if node.input(index).dtype is not BOOL:
                raise node.fail(f"input {index} must be BOOL, found {node.input(index)}; compare or cast it")
        return entry.shape(node)

    return OpDef(type, (2, 2), shape, entry.kernel, per_element(1), elementwise=True)


def _integers(node: Node) -> OutputTypes:
    for tensor in node.inputs:
        if tensor is not None and tensor.dtype.is_float:
            raise node.fail(f"inputs must be integers, found {tensor}")
    return broadcast(node) if len(node.inputs) > 1 else same(node)


def _bits(type: str, function: Callable[..., Any], domain: str = "") -> OpDef:
    inputs = (1, 1) if function is np.invert else (2, 2)
    return OpDef(type, inputs, _integers, ufunc(function), per_element(1), elementwise=True, domain=domain)


def _xnor(a: NDArray[Any], b: NDArray[Any], out: NDArray[Any]) -> None:
    np.bitwise_xor(a, b, out)
    np.invert(out, out)


def _shift(node: Node, a: Any, b: Any) -> Any:
    """Shift bits; a shift by the width of the type or more gives 0, or -1 for a negative number shifted right."""
    width = a.dtype.type(8 * a.dtype.itemsize - 1)
    if node.attribute("direction", "LEFT") != "LEFT":
        rest = np.where(a < 0, a.dtype.type(-1), a.dtype.type(0)) if a.dtype.kind == "i" else a.dtype.type(0)
        return np.where(b > width, rest, np.right_shift(a, np.minimum(b, width)))
    return np.where(b > width, a.dtype.type(0), np.left_shift(a, np.minimum(b, width)))


def _where_shape(node: Node) -> OutputTypes:
    condition, x, y = (node.input(index) for index in range(3))
    if condition.dtype is not BOOL:
        raise node.fail(f"the condition must be a BOOL, found {condition}")
    if x.dtype != y.dtype:
        raise node.fail(f"inputs have different types, {x} and {y}; cast one of them")
    try:
        return [(x.dtype, np.broadcast_shapes(condition.shape, x.shape, y.shape))]
    except ValueError:
        raise node.fail(f"shapes of {condition}, {x} and {y} do not broadcast") from None


def _where(bound: BoundOp) -> Call:
    condition, x, y, out = bound.input(0), bound.input(1), bound.input(2), bound.outputs[0]

    def run() -> None:
        np.copyto(out, y)
        np.copyto(out, x, where=condition)

    return run


def _where_grad(d: Adjoint) -> list[Value | None]:
    condition, zero = d.x, d.g.like(0.0)
    x, y = (d.input(index).tensor.shape for index in (1, 2))
    return [None, condition.op("Where", d.g, zero).summed_to(x), condition.op("Where", zero, d.g).summed_to(y)]


OPS = [
    _comparison("Equal", np.equal),
    _comparison("Greater", np.greater),
    _comparison("GreaterOrEqual", np.greater_equal),
    _comparison("Less", np.less),
    _comparison("LessOrEqual", np.less_equal),
    _logic("And", np.logical_and),
    _logic("Or", np.logical_or),
    _logic("Xor", np.logical_xor),
    OpDef("Not", (1, 1), same, ufunc(np.logical_not), per_element(1), elementwise=True),
    OpDef("Where", (3, 3), _where_shape, _where, per_element(1), _where_grad, elementwise=True),
    _bits("BitwiseAnd", np.bitwise_and),
    _bits("BitwiseOr", np.bitwise_or),
    _bits("BitwiseXor", np.bitwise_xor),
    _bits("BitwiseNot", np.invert),
    _bits("BitwiseAnd", np.bitwise_and, GRAPHCORE),
    _bits("BitwiseOr", np.bitwise_or, GRAPHCORE),
    _bits("BitwiseXor", np.bitwise_xor, GRAPHCORE),
    _bits("BitwiseXnor", _xnor, GRAPHCORE),
    _bits("BitwiseNot", np.invert, GRAPHCORE),
    OpDef("BitShift", (2, 2), _integers, allocating_kernel(_shift), per_element(1), elementwise=True),
]
