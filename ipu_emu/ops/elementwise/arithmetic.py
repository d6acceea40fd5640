"""Arithmetic: the four operations, scaling, remainders, and sums and extremes of many operands."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ipu_emu.graph import Tensor
from ipu_emu.graph.dtype import FLOAT, FLOAT16
from ipu_emu.graph.op import GRAPHCORE
from ipu_emu.ops.core import Adjoint, GradRule, Node, OutputTypes, Value, call_chain, per_element
from ipu_emu.ops.core.formulas import Formula, named
from ipu_emu.ops.core.image_kernels import image_spread
from ipu_emu.ops.core.kernel_helpers import aligned, allocating_kernel, formula_kernel, scalar, ufunc, view
from ipu_emu.ops.core.op_definition import BoundOp, Call, Kernel, OpDef
from ipu_emu.ops.core.shape_rules import aligned_shape, broadcast, broadcast_all, same

#: An array; numpy's stubs call most results Any.
_Array = Any


# The four operations, and scaling


def _operation(type: str, function: Callable[..., Any], grad: GradRule) -> OpDef:
    kernel, formula = aligned(function), named(type.lower())
    return OpDef(type, (2, 2), broadcast, kernel, per_element(1), grad, elementwise=True, formula=formula)


def _second(d: Adjoint) -> Value:
    """The second operand, reshaped to the axes of the first that old opsets name."""
    return d.input(1).shaped(aligned_shape(d.node))


def _pair(d: Adjoint, first: Value, second: Value) -> list[Value | None]:
    """Gradients of two operands, summed over the axes in which each was broadcast."""
    a, b = d.x.tensor.shape, d.input(1).tensor.shape
    return [first.summed_to(a), second.summed_to(aligned_shape(d.node)).shaped(b)]


def _multiply(bound: BoundOp) -> Call:
    """The product; a number for each image, as of a gate, takes a kernel of its own."""
    a, b, y = bound.input(0), bound.input(1), bound.outputs[0]
    for factor, numbers in ((a, b), (b, a)):
        if factor.shape == y.shape != numbers.shape:
            call = image_spread(numbers, y, factor)
            if call is not None:
                return call
    return aligned(np.multiply)(bound)


def _divide(a: NDArray[Any], b: NDArray[Any], out: NDArray[Any]) -> None:
    """out = a / b; quotients of integers round towards 0."""
    if out.dtype.kind == "f":
        np.divide(a, b, out)
        return
    wide = np.int64 if out.dtype.kind == "i" else np.uint64
    quotient = np.abs(a.astype(wide)) // np.abs(b.astype(wide))
    np.copyto(out, np.where((a < 0) != (b < 0), -quotient, quotient) if wide is np.int64 else quotient, "unsafe")


def _scale(bound: BoundOp) -> Call:
    factor = scalar(bound.node.attribute("scale", 1.0))
    return partial(np.multiply, bound.input(0), factor, bound.outputs[0], casting="unsafe")


_SCALE = Formula(lambda x, scale: x * scale, scale=1.0)


def _scaling(domain: str) -> OpDef:
    return OpDef(
        "Scale",
        (1, 1),
        same,
        _scale,
        per_element(1),
        lambda d: d.g.scaled(d.attribute("scale", 1.0)),
        elementwise=True,
        domain=domain,
        formula=_SCALE,
    )


# Remainders


def _modulo(node: Node, a: _Array, b: _Array) -> _Array:
    return np.fmod(a, b) if node.attribute("fmod", 0) else np.mod(a, b)


def _remainder_grad(d: Adjoint) -> list[Value | None]:
    """a mod b = a - b floor(a / b)"""
    a, b = d.x, d.input(1)
    quotient = (a - d.y) / b
    return [d.g.summed_to(a.tensor.shape), (-(d.g * quotient)).summed_to(b.tensor.shape)]


def _atan2_grad(d: Adjoint) -> list[Value | None]:
    y, x = d.x, d.input(1)
    size = y * y + x * x
    size = size.op("Equal", size.like(0)).op("Where", size.like(1), size)  # at the origin the gradient is 0
    return [(d.g * x / size).summed_to(y.tensor.shape), (-(d.g * y / size)).summed_to(x.tensor.shape)]


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
    """Every operand that equals the result gets the whole gradient, or an equal share of it."""
    zero, equals = d.g.like(0.0), [x.op("Equal", d.y) for x in d.inputs]
    g = d.g
    if d.attribute("shared", 0):
        first, *others = (equal.cast(g.tensor.dtype) for equal in equals)
        g = g / sum(others, first)
    return [equal.op("Where", g, zero).summed_to(x.tensor.shape) for equal, x in zip(equals, d.inputs, strict=True)]


def _many(type: str, kernel: Any, grad: Any) -> OpDef:
    return OpDef(type, (1, None), broadcast_all, kernel, per_element(1), grad, elementwise=True)


# aiGraphcore


def _scaled_add(bound: BoundOp) -> Call:
    a, b, y = bound.input(0), bound.input(1), bound.outputs[0]
    inputs = [bound.input(index) for index in range(2, len(bound.inputs))]
    numbers = [a.dtype.type(bound.node.attribute(name, 1.0)) for name in ("scale0", "scale1")]
    scales = [*inputs, *numbers[len(inputs) :]]
    part = view(bound.scratch[0].view(a.dtype)[: b.size], b.shape)
    return call_chain(
        partial(np.multiply, b, scales[1], part), partial(np.multiply, a, scales[0], y), partial(np.add, y, part, y)
    )


def _scaled_add_grad(d: Adjoint) -> list[Value | None]:
    if len(d.operands) > 2:
        return [d.g * d.input(2), d.g * d.input(3) if len(d.operands) > 3 else d.g]
    return [d.g.scaled(d.attribute("scale0", 1.0)), d.g.scaled(d.attribute("scale1", 1.0))]


def _increment_mod(node: Node, x: _Array) -> _Array:
    """The remainder has the sign of the sum."""
    increment, modulus = (np.asarray(node.attribute(name, 1)).astype(x.dtype) for name in ("increment", "modulus"))
    remainder: _Array = np.fmod(x + increment, modulus)
    return remainder


def _function_of_two(type: str, kernel: Kernel, grad: GradRule, formula: Formula | None = None) -> OpDef:
    cost = per_element(8)
    return OpDef(type, (2, 2), broadcast, kernel, cost, grad, elementwise=True, domain=GRAPHCORE, formula=formula)


def _is_mixed(a: Tensor, b: Tensor) -> bool:
    """Whether one operand is FLOAT16 and the other a single FLOAT."""
    return any(x.dtype is FLOAT16 and y.dtype is FLOAT and y.nelms == 1 for x, y in ((a, b), (b, a)))


def _product_shape(node: Node) -> OutputTypes:
    """Two operands of one type, or FLOAT16 times a single FLOAT, which gives FLOAT16."""
    a, b = node.input(0), node.input(1)
    if not _is_mixed(a, b):
        return broadcast(node)
    alike = (replace(a, dtype=FLOAT16), replace(b, dtype=FLOAT16))
    return broadcast(replace(node, inputs=alike))


def _product_grad(d: Adjoint) -> list[Value | None]:
    first, second = _pair(d, d.g * _second(d), d.g * d.x)
    operands = (d.x, d.input(1))
    return [g and g.cast(x.tensor.dtype) for g, x in zip((first, second), operands, strict=True)]


OPS = [
    _operation("Add", np.add, lambda d: _pair(d, d.g, d.g)),
    _operation("Sub", np.subtract, lambda d: _pair(d, d.g, -d.g)),
    replace(_operation("Mul", np.multiply, _product_grad), shape=_product_shape, kernel=_multiply),
    _operation("Div", _divide, lambda d: _pair(d, d.g / _second(d), -(d.g * d.y / _second(d)))),
    OpDef(
        "Neg",
        (1, 1),
        same,
        ufunc(np.negative),
        per_element(1),
        lambda d: -d.g,
        elementwise=True,
        formula=named("neg"),
    ),
    _scaling(GRAPHCORE),
    _scaling(""),  # for gradients of any opset
    OpDef("Mod", (2, 2), broadcast, allocating_kernel(_modulo), per_element(8), _remainder_grad, elementwise=True),
    _function_of_two("Fmod", ufunc(np.fmod), _remainder_grad),
    _function_of_two("Remainder", ufunc(np.mod), _remainder_grad),
    _function_of_two("Atan2", formula_kernel(named("atan2")), _atan2_grad, named("atan2")),
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
        lambda node: [-(-node.input(1).nelms * max(node.input(1).dtype.itemsize, 4) // 4)],
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
