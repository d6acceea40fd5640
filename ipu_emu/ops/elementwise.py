"""Element-wise ops."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gcl.jit import jit
from ipu_emu.graph.op import GRAPHCORE
from ipu_emu.ops.adjoint import Adjoint, Value
from ipu_emu.ops.arrays import chain, flat, scalar, ufunc
from ipu_emu.ops.cost import per_element
from ipu_emu.ops.node import Made, Node
from ipu_emu.ops.registry import Bound, GradRule, Kernel, OpDef, Step
from ipu_emu.ops.shapes import broadcast, same

__all__ = ["OPS"]


def _unary(type: str, kernel: Kernel, grad: GradRule, flops: int, domain: str = "") -> OpDef:
    return OpDef(type, (1, 1), same, kernel, per_element(flops), grad, elementwise=True, domain=domain)


def _binary(type: str, kernel: Kernel, grad: GradRule) -> OpDef:
    return OpDef(type, (2, 2), broadcast, kernel, per_element(1), grad, elementwise=True)


def _pair(d: Adjoint, first: Value, second: Value) -> list[Value | None]:
    """Gradients of two operands, summed over the axes in which each was broadcast."""
    a, b = (value.tensor.shape for value in d.inputs)
    return [first.summed_to(a), second.summed_to(b)]


@jit
def relu(x: NDArray[Any], out: NDArray[Any]) -> None:
    """out = x, or 0 where x is below it (both [n]); NaN stays NaN."""
    zero = x.dtype.type(0)
    for i in range(out.size):
        out[i] = zero if x[i] < 0 else x[i]


def _relu(bound: Bound) -> Step:
    return partial(relu, *flat(bound.input(0), bound.outputs[0]))


def _sigmoid(bound: Bound) -> Step:
    y, one = bound.outputs[0], scalar(1)
    return chain(
        partial(np.negative, bound.input(0), y),
        partial(np.exp, y, y),
        partial(np.add, y, one, y),
        partial(np.divide, one, y, y),
    )


def _scale(bound: Bound) -> Step:
    factor = scalar(bound.node.attribute("scale", 1.0))
    return partial(np.multiply, bound.input(0), factor, bound.outputs[0])


def _divisible(node: Node) -> Made:
    made = broadcast(node)
    if not made[0][0].is_float:
        raise node.fail(f"division of {made[0][0]} is not supported; cast to FLOAT")
    return made


@jit
def relu_grad(g: NDArray[Any], y: NDArray[Any], out: NDArray[Any]) -> None:
    """Pass ``g`` where the forward result was above zero (all [n], float32)."""
    for i in range(out.size):
        out[i] = g[i] if y[i] > 0 else np.float32(0)


def _relu_grad(bound: Bound) -> Step:
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
    _binary("Add", ufunc(np.add), lambda d: _pair(d, d.g, d.g)),
    _binary("Sub", ufunc(np.subtract), lambda d: _pair(d, d.g, -d.g)),
    _binary("Mul", ufunc(np.multiply), lambda d: _pair(d, d.g * d.inputs[1], d.g * d.inputs[0])),
    OpDef(
        "Div",
        (2, 2),
        _divisible,
        ufunc(np.divide),
        per_element(1),
        lambda d: _pair(d, d.g / d.inputs[1], -(d.g * d.y / d.inputs[1])),
        elementwise=True,
    ),
    # ReluGrad(g, y): where y > 0 there was no clipping.
    OpDef("ReluGrad", (2, 2), same, _relu_grad, per_element(1), elementwise=True),
]
