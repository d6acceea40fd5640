"""Arithmetic beyond the four operations: powers, remainders, clipping, and sums and extremes of many operands."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from ipu_emu.graph.op import GRAPHCORE
from ipu_emu.ops.core.adjoint import Adjoint, Value
from ipu_emu.ops.core.call_chain import call_chain
from ipu_emu.ops.core.cost import per_element
from ipu_emu.ops.core.kernel_helpers import allocating_kernel, ufunc, view
from ipu_emu.ops.core.node import Node, OutputTypes
from ipu_emu.ops.core.op_definition import BoundOp, Call, OpDef
from ipu_emu.ops.core.shape_rules import aligned_shape, broadcast, broadcast_all, same

__all__ = ["OPS"]

#: An array; numpy's stubs call most results Any.
_Array = Any


# Powers and remainders


def _power_shape(node: Node) -> OutputTypes:
    """The exponent may have a type of its own; the result has that of the base."""
    a, b = node.input(0), node.input(1)
    try:
        return [(a.dtype, np.broadcast_shapes(a.shape, aligned_shape(node)))]
    except ValueError:
        raise node.fail(f"shapes of {a} and {b} do not broadcast") from None


def _power(bound: BoundOp) -> Call:
    x, e, y = bound.input(0), bound.input(1), bound.outputs[0]
    e = e.reshape(aligned_shape(bound.node))
    if x.dtype == e.dtype and x.dtype.kind == "f":
        return partial(np.power, x, e, y)
    return lambda: np.copyto(y, np.power(x, e.astype(np.float64)), "unsafe")


def _power_grad(d: Adjoint) -> list[Value | None]:
    """x^e: e x^(e - 1) and y log x"""
    x, e = d.x, d.input(1)
    shape = e.tensor.shape
    if e.tensor.dtype is not x.tensor.dtype:
        e = e.op("Cast", to=x.tensor.dtype.onnx)
    e = e.shaped(aligned_shape(d.node))
    dx = (d.g * e * x.op("Pow", e - 1.0)).summed_to(d.shape)
    if not d.input(1).tensor.dtype.is_float:
        return [dx, None]
    return [dx, (d.g * d.y * x.op("Log")).summed_to(aligned_shape(d.node)).shaped(shape)]


def _modulo(node: Node, a: _Array, b: _Array) -> _Array:
    return np.fmod(a, b) if node.attribute("fmod", 0) else np.mod(a, b)


def _remainder_grad(d: Adjoint) -> list[Value | None]:
    """a mod b = a - b floor(a / b)"""
    a, b = d.x, d.input(1)
    whole = (a - d.y) / b
    return [d.g.summed_to(a.tensor.shape), (-(d.g * whole)).summed_to(b.tensor.shape)]


def _atan2_grad(d: Adjoint) -> list[Value | None]:
    y, x = d.x, d.input(1)
    size = y * y + x * x
    return [(d.g * x / size).summed_to(y.tensor.shape), (-(d.g * y / size)).summed_to(x.tensor.shape)]


def _binary(type: str, function: Callable[..., Any], grad: Any, domain: str = GRAPHCORE) -> OpDef:
    return OpDef(type, (2, 2), broadcast, ufunc(function), per_element(8), grad, elementwise=True, domain=domain)


def _slope(node: Node) -> tuple[int, ...]:
    """Shape of the slope as it broadcasts; opset 6 has one for each channel."""
    x, slope = node.input(0), node.input(1)
    if node.op.version < 7 and slope.rank == 1 and x.rank > 1 and slope.nelms == x.shape[1]:
        return (*slope.shape, *(1 for _ in x.shape[2:]))
    return slope.shape


def _prelu_grad(d: Adjoint) -> list[Value | None]:
    x, slope, zero = d.x, d.input(1).shaped(_slope(d.node)), d.x.like(0.0)
    below = x.op("Less", zero)
    return [
        below.op("Where", d.g * slope, d.g),
        below.op("Where", d.g * x, zero).summed_to(slope.tensor.shape).shaped(d.input(1).tensor.shape),
    ]


def _prelu(bound: BoundOp) -> Call:
    x, slope, y = bound.input(0), bound.input(1).reshape(_slope(bound.node)), bound.outputs[0]
    above = bound.scratch[0].view(bool)[: x.size].reshape(x.shape)
    return call_chain(
        partial(np.multiply, x, slope, y),
        partial(np.greater_equal, x, 0, above),
        partial(np.copyto, y, x, where=above),
    )


def _bit_per_element(node: Node) -> list[int]:
    return [-(-node.input(0).nelms // 4)]


def _prelu_shape(node: Node) -> OutputTypes:
    x = node.input(0)
    try:
        fits = np.broadcast_shapes(x.shape, _slope(node)) == x.shape
    except ValueError:
        fits = False
    if not fits:
        raise node.fail(f"the slope {node.input(1)} does not broadcast to {x}")
    return same(node)


# Clipping


def _clip_shape(node: Node) -> OutputTypes:
    for index in range(1, len(node.inputs)):
        if node.has_input(index) and node.input(index).nelms != 1:
            raise node.fail(f"a bound must be one number, found {node.input(index)}")
    return same(node)


def _clip(bound: BoundOp) -> Call:
    x, y = bound.input(0), bound.outputs[0]
    least, most = (bound.inputs[i] if bound.node.has_input(i) else None for i in (1, 2))
    attributes = bound.node.op.attributes
    low = x.dtype.type(attributes["min"]) if "min" in attributes else least
    high = x.dtype.type(attributes["max"]) if "max" in attributes else most
    steps: list[Call] = [partial(np.copyto, y, x)]
    if low is not None:
        steps.append(partial(np.maximum, y, low, out=y))
    if high is not None:
        steps.append(partial(np.minimum, y, high, out=y))
    return call_chain(*steps)


def _clip_grad(d: Adjoint) -> Value:
    """What was not changed passes."""
    zero = d.g.like(0.0)
    return d.x.op("Equal", d.y).op("Where", d.g, zero)


# Many operands


def _fold(function: Callable[..., Any]) -> Any:
    """``function`` over all operands from left to right."""

    def kernel(bound: BoundOp) -> Call:
        y = bound.outputs[0]
        steps: list[Call] = [partial(np.copyto, y, bound.input(0))]
        for index in range(1, len(bound.inputs)):
            steps.append(partial(function, y, bound.input(index), out=y))
        return call_chain(*steps)

    return kernel


def _mean(bound: BoundOp) -> Call:
    y, count = bound.outputs[0], np.float32(len(bound.inputs))
    return call_chain(_fold(np.add)(bound), partial(np.divide, y, count, y))


def _shares(d: Adjoint, factor: float) -> list[Value | None]:
    g = d.g.scaled(factor)
    return [g.summed_to(x.tensor.shape) for x in d.inputs]


def _extreme_grad(d: Adjoint) -> list[Value | None]:
    """All operands that equal the result get its gradient."""
    zero = d.g.like(0.0)
    return [x.op("Equal", d.y).op("Where", d.g, zero).summed_to(x.tensor.shape) for x in d.inputs]


def _many(type: str, kernel: Any, grad: Any) -> OpDef:
    return OpDef(type, (1, None), broadcast_all, kernel, per_element(1), grad, elementwise=True)


# aiGraphcore


def _scaled_add(bound: BoundOp) -> Call:
    a, b, y = bound.input(0), bound.input(1), bound.outputs[0]
    given = [bound.input(index) for index in range(2, len(bound.inputs))]
    numbers = [a.dtype.type(bound.node.attribute(name, 1.0)) for name in ("scale0", "scale1")]
    scales = [*given, *numbers[len(given) :]]
    part = view(bound.scratch[0].view(a.dtype)[: b.size], b.shape)
    return call_chain(
        partial(np.multiply, b, scales[1], part), partial(np.multiply, a, scales[0], y), partial(np.add, y, part, y)
    )


def _second(node: Node) -> list[int]:
    return [-(-node.input(1).nelms * max(node.input(1).dtype.itemsize, 4) // 4)]


def _scaled_add_grad(d: Adjoint) -> list[Value | None]:
    if len(d.operands) > 2:
        return [d.g * d.input(2), d.g * d.input(3) if len(d.operands) > 3 else d.g]
    return [d.g.scaled(d.attribute("scale0", 1.0)), d.g.scaled(d.attribute("scale1", 1.0))]


def _increment_mod(node: Node, x: _Array) -> _Array:
    made: _Array = np.mod(
        x + x.dtype.type(node.attribute("increment", 1)), x.dtype.type(node.attribute("modulus", 1))
    )
    return made


OPS = [
    OpDef("Pow", (2, 2), _power_shape, _power, per_element(20), _power_grad, elementwise=True),
    OpDef("Mod", (2, 2), broadcast, allocating_kernel(_modulo), per_element(8), _remainder_grad, elementwise=True),
    _binary("Fmod", np.fmod, _remainder_grad),
    _binary("Remainder", np.mod, _remainder_grad),
    _binary("Atan2", np.arctan2, _atan2_grad),
    OpDef("PRelu", (2, 2), _prelu_shape, _prelu, per_element(2), _prelu_grad, _bit_per_element, elementwise=True),
    OpDef("Clip", (1, 3), _clip_shape, _clip, per_element(2), _clip_grad, elementwise=True),
    _many("Sum", _fold(np.add), lambda d: _shares(d, 1)),
    _many("Mean", _mean, lambda d: _shares(d, 1 / len(d.operands))),
    _many("Max", _fold(np.maximum), _extreme_grad),
    _many("Min", _fold(np.minimum), _extreme_grad),
    OpDef(
        "ScaledAdd",
        (2, 4),
        same,
        _scaled_add,
        per_element(3),
        _scaled_add_grad,
        _second,
        elementwise=True,
        domain=GRAPHCORE,
    ),
    OpDef(
        "IncrementMod",
        (1, 1),
        same,
        allocating_kernel(_increment_mod),
        per_element(2),
        elementwise=True,
        domain=GRAPHCORE,
    ),
]
