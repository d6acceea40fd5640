"""Element-wise ops."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gcl.kernels.jit import jit
from ipu_emu.graph.op import GRAPHCORE
from ipu_emu.ops.core.adjoint import Adjoint, Value
from ipu_emu.ops.core.call_chain import call_chain
from ipu_emu.ops.core.cost import per_element
from ipu_emu.ops.core.kernel_helpers import flat, scalar, ufunc
from ipu_emu.ops.core.op_definition import BoundOp, Call, GradRule, Kernel, OpDef
from ipu_emu.ops.core.shape_rules import aligned_shape, broadcast, same

__all__ = ["OPS"]


def _unary(type: str, kernel: Kernel, grad: GradRule, flops: int, domain: str = "") -> OpDef:
    return OpDef(type, (1, 1), same, kernel, per_element(flops), grad, elementwise=True, domain=domain)


def _binary(type: str, kernel: Kernel, grad: GradRule) -> OpDef:
    return OpDef(type, (2, 2), broadcast, kernel, per_element(1), grad, elementwise=True)


def _second(d: Adjoint) -> Value:
    """The second operand, where old opsets say to which axes of the first its own belong."""
    return d.input(1).shaped(aligned_shape(d.node))


def _pair(d: Adjoint, first: Value, second: Value) -> list[Value | None]:
    """Gradients of two operands, summed over the axes in which each was broadcast."""
    a, b = d.x.tensor.shape, d.input(1).tensor.shape
    return [first.summed_to(a), second.summed_to(aligned_shape(d.node)).shaped(b)]


def _with_axis(function: Callable[..., Any]) -> Kernel:
    """``function(a, b, out)``, b in line with the axes of a that old opsets say."""

    def kernel(bound: BoundOp) -> Call:
        a, b = bound.input(0), bound.input(1)
        return partial(function, a, b.reshape(aligned_shape(bound.node)), bound.outputs[0])

    return kernel


def _divide(a: NDArray[Any], b: NDArray[Any], out: NDArray[Any]) -> None:
    """Quotients of integers are cut towards 0."""
    if out.dtype.kind == "f":
        np.divide(a, b, out)
        return
    wide = np.int64 if out.dtype.kind == "i" else np.uint64
    quotient = np.abs(a.astype(wide)) // np.abs(b.astype(wide))
    np.copyto(out, np.where((a < 0) != (b < 0), -quotient, quotient) if wide is np.int64 else quotient, "unsafe")


@jit
def relu(x: NDArray[Any], out: NDArray[Any]) -> None:
    """out = x, or 0 where x is below it (both [n]); NaN stays NaN."""
    zero = x.dtype.type(0)
    for i in range(out.size):
        out[i] = zero if x[i] < 0 else x[i]


def _relu(bound: BoundOp) -> Call:
    return partial(relu, *flat(bound.input(0), bound.outputs[0]))


def _sigmoid(bound: BoundOp) -> Call:
    y, one = bound.outputs[0], scalar(1)
    return call_chain(
        partial(np.negative, bound.input(0), y),
        partial(np.exp, y, y),
        partial(np.add, y, one, y),
        partial(np.divide, one, y, y),
    )


def _scale(bound: BoundOp) -> Call:
    factor = scalar(bound.node.attribute("scale", 1.0))
    return partial(np.multiply, bound.input(0), factor, bound.outputs[0], casting="unsafe")


@jit
def relu_grad(g: NDArray[Any], y: NDArray[Any], out: NDArray[Any]) -> None:
    """Pass ``g`` where the forward result was above zero (all [n], float32)."""
    for i in range(out.size):
        out[i] = g[i] if y[i] > 0 else np.float32(0)


def _relu_grad(bound: BoundOp) -> Call:
    return partial(relu_grad, *flat(bound.input(0), bound.input(1), bound.outputs[0]))


def _scale_grad(d: Adjoint) -> Value:
    return d.g.scaled(d.attribute("scale", 1.0))


OPS = [
    _unary("Relu", _relu, lambda d: d.g.op("ReluGrad", d.y), 1),
    _unary("Sigmoid", _sigmoid, lambda d: d.g * (d.y * (1 - d.y)), 10),
    _unary("Tanh", ufunc(np.tanh), lambda d: d.g * (1 - d.y * d.y), 10),
    _unary("Exp", ufunc(np.exp), lambda d: d.g * d.y, 8),
    _unary("Log", ufunc(np.log), lambda d: d.g / d.x, 8),
    _unary("Sqrt", ufunc(np.sqrt), lambda d: d.g / (d.y * 2.0), 4),
    _unary("Neg", ufunc(np.negative), lambda d: -d.g, 1),
    _unary("Scale", _scale, _scale_grad, 1, GRAPHCORE),
    _unary("Scale", _scale, _scale_grad, 1),  # what gradients multiply by
    _binary("Add", _with_axis(np.add), lambda d: _pair(d, d.g, d.g)),
    _binary("Sub", _with_axis(np.subtract), lambda d: _pair(d, d.g, -d.g)),
    _binary("Mul", _with_axis(np.multiply), lambda d: _pair(d, d.g * _second(d), d.g * d.x)),
    _binary("Div", _with_axis(_divide), lambda d: _pair(d, d.g / _second(d), -(d.g * d.y / _second(d)))),
    # ReluGrad(g, y): where y > 0 there was no clipping.
    OpDef("ReluGrad", (2, 2), same, _relu_grad, per_element(1), elementwise=True),
]
