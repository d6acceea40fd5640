"""Activations: each defined once, by the formulas of its value and of its gradient.

A formula makes both the numpy kernel of an op and its part of a fused kernel. The gradient of ``T`` is the internal
op ``TGrad(g, x)``, or ``GraphcoreTGrad`` in the domain of aiGraphcore. Relu, Sigmoid and PRelu have kernels of their
own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gcl.kernels.jit import jit
from ipu_emu.graph.op import GRAPHCORE
from ipu_emu.ops.core import Adjoint, BoundOp, Call, Node, OpDef, OutputTypes, Value, call_chain, per_element
from ipu_emu.ops.core.formulas import Formula, Term, named
from ipu_emu.ops.core.kernel_helpers import flat, formula_op
from ipu_emu.ops.core.shape_rules import broadcasts_to, same

#: alpha and gamma of SELU.
_SELU = {"alpha": 1.67326319217681884765625, "gamma": 1.05070102214813232421875}


@dataclass(frozen=True)
class Activation:
    """``value`` of x and ``gradient`` of (g, x), g being the gradient of the result; operations per element."""

    value: Formula
    gradient: Formula
    operations: int


def _elu(x: Term, alpha: float) -> Term:
    return x.if_positive(x, x.of("negative_part").of("expm1_falling") * alpha)


def _elu_slope(x: Term, alpha: float) -> Term:
    return x.if_positive(1.0, x.of("negative_part").of("exp_falling") * alpha)


def _celu(x: Term, alpha: float) -> Term:
    return x.of("relu") + (x.of("negative_part") / alpha).of("expm1_falling" if alpha > 0 else "expm1") * alpha


def _hard_sigmoid_gradient(g: Term, x: Term, alpha: float, beta: float) -> Term:
    line = x * alpha + beta
    return (g * alpha).where_positive(line).where_positive(-line + 1.0)


def _hard_swish_slope(x: Term) -> Term:
    """0 up to -3, 1 from 3 on; NaN stays NaN."""
    return (-x.of("abs") + 3.0).if_positive((x * 2.0 + 3.0) / 6.0, x.of("clip_to_unit"))


def _shrink(x: Term, limit: float, bias: float) -> Term:
    return (x - limit).if_positive(x - bias, (x + bias).where_positive(-x - limit))


def _swish_slope(x: Term, alpha: float) -> Term:
    s = (x * alpha).of("sigmoid")
    return s + x * alpha * s * (-s + 1.0)


def _mish_slope(x: Term) -> Term:
    t = x.of("softplus").of("tanh")
    return t + x * (-(t * t) + 1.0) * x.of("sigmoid")


def _gelu(x: Term, approximate: str) -> Term:
    return x.of("gelu_tanh" if approximate == "tanh" else "gelu_erf")


def _gelu_gradient(g: Term, x: Term, approximate: str) -> Term:
    return g * x.of("gelu_tanh_slope" if approximate == "tanh" else "gelu_erf_slope")


_SWISH = Activation(
    Formula(lambda x, a: x * (x * a).of("sigmoid"), alpha=1.0),
    Formula(lambda g, x, a: g * _swish_slope(x, a), alpha=1.0),
    12,
)

#: Activations by (domain, type).
ACTIVATIONS = {
    ("", "LeakyRelu"): Activation(
        Formula(lambda x, a: (-x).if_positive(x * a, x), alpha=0.01),
        Formula(lambda g, x, a: g * x.if_positive(1.0, a), alpha=0.01),
        2,
    ),
    ("", "ThresholdedRelu"): Activation(
        Formula(lambda x, a: x.where_positive(x - a), alpha=1.0),
        Formula(lambda g, x, a: g.where_positive(x - a), alpha=1.0),
        1,
    ),
    ("", "Elu"): Activation(
        Formula(_elu, alpha=1.0),
        Formula(lambda g, x, a: g * _elu_slope(x, a), alpha=1.0),
        10,
    ),
    ("", "Selu"): Activation(
        Formula(lambda x, a, c: _elu(x, a) * c, **_SELU),
        Formula(lambda g, x, a, c: g * (_elu_slope(x, a) * c), **_SELU),
        11,
    ),
    ("", "Celu"): Activation(
        Formula(_celu, alpha=1.0),
        Formula(lambda g, x, a: g * (x.of("negative_part") / a).of("exp"), alpha=1.0),
        12,
    ),
    ("", "HardSigmoid"): Activation(
        Formula(lambda x, a, b: (x * a + b).of("clip_to_unit"), alpha=0.2, beta=0.5),
        Formula(_hard_sigmoid_gradient, alpha=0.2, beta=0.5),
        4,
    ),
    ("", "HardSwish"): Activation(
        Formula(lambda x: x * (x / 6.0 + 0.5).of("clip_to_unit")),
        Formula(lambda g, x: g * _hard_swish_slope(x)),
        5,
    ),
    ("", "Shrink"): Activation(
        Formula(_shrink, lambd=0.5, bias=0.0),
        Formula(lambda g, x, limit: g.where_positive(x.of("abs") - limit), lambd=0.5),
        3,
    ),
    ("", "Softsign"): Activation(
        Formula(lambda x: x / (x.of("abs") + 1.0)),
        Formula(lambda g, x: g / ((x.of("abs") + 1.0) * (x.of("abs") + 1.0))),
        3,
    ),
    ("", "Softplus"): Activation(
        named("softplus"),
        Formula(lambda g, x: g * x.of("sigmoid")),
        20,
    ),
    ("", "Mish"): Activation(
        Formula(lambda x: x * x.of("softplus").of("tanh")),
        Formula(lambda g, x: g * _mish_slope(x)),
        35,
    ),
    ("", "Swish"): _SWISH,
    (GRAPHCORE, "Swish"): _SWISH,
    ("", "Gelu"): Activation(
        Formula(_gelu, approximate="none"),
        Formula(_gelu_gradient, approximate="none"),
        20,
    ),
    (GRAPHCORE, "Gelu"): Activation(
        named("gelu_tanh"),
        Formula(lambda g, x: g * x.of("gelu_tanh_slope")),
        18,
    ),
    (GRAPHCORE, "GeluErf"): Activation(
        named("gelu_erf"),
        Formula(lambda g, x: g * x.of("gelu_erf_slope")),
        20,
    ),
}


def _entries(domain: str, type: str, activation: Activation) -> list[OpDef]:
    """The entries of the op and of its gradient op."""
    internal, count = f"{'Graphcore' if domain else ''}{type}Grad", activation.operations

    def rule(d: Adjoint) -> Value:
        return d.g.op(internal, d.x, **d.node.op.attributes)

    value = formula_op(type, 1, activation.value, count, rule, domain)
    return [value, formula_op(internal, 2, activation.gradient, count, None)]


# Relu and Sigmoid, whose kernels allocate nothing


@jit
def relu(x: NDArray[Any], out: NDArray[Any]) -> None:
    """out = max(x, 0), both [n]; NaN stays NaN."""
    zero = x.dtype.type(0)
    for i in range(out.size):
        out[i] = zero if x[i] < 0 else x[i]


@jit
def relu_grad(g: NDArray[Any], y: NDArray[Any], out: NDArray[Any]) -> None:
    """out = g where y > 0, else 0 (all [n], float32)."""
    for i in range(out.size):
        out[i] = g[i] if y[i] > 0 else np.float32(0)


def _relu_grad(bound: BoundOp) -> Call:
    return partial(relu_grad, *flat(bound.input(0), bound.input(1), bound.outputs[0]))


# PRelu


def _slope_shape(node: Node) -> tuple[int, ...]:
    """The shape in which the slope broadcasts; in opset 6 a vector has one slope per channel."""
    x, slope = node.input(0), node.input(1)
    if node.op.version < 7 and slope.rank == 1 and x.rank > 1 and slope.nelms == x.shape[1]:
        return (*slope.shape, *(1 for _ in x.shape[2:]))
    return slope.shape


def _prelu_shape(node: Node) -> OutputTypes:
    x = node.input(0)
    if not broadcasts_to(_slope_shape(node), x.shape):
        raise node.fail(f"the slope {node.input(1)} does not broadcast to {x}")
    return same(node)


def _prelu(bound: BoundOp) -> Call:
    x, slope, y = bound.input(0), bound.input(1).reshape(_slope_shape(bound.node)), bound.outputs[0]
    above = bound.scratch[0].view(bool)[: x.size].reshape(x.shape)
    return call_chain(
        partial(np.multiply, x, slope, y),
        partial(np.greater_equal, x, 0, above),
        partial(np.copyto, y, x, where=above),
    )


def _byte_per_element(node: Node) -> list[int]:
    return [-(-node.input(0).nelms // 4)]


def _prelu_grad(d: Adjoint) -> Sequence[Value | None]:
    x, slope, zero = d.x, d.input(1).shaped(_slope_shape(d.node)), d.x.like(0.0)
    above = x.op("Greater", zero)
    return [
        above.op("Where", d.g, d.g * slope),
        above.op("Where", zero, d.g * x).summed_to(slope.tensor.shape).shaped(d.input(1).tensor.shape),
    ]


OPS = [
    OpDef(
        "Relu",
        (1, 1),
        same,
        lambda bound: partial(relu, *flat(bound.input(0), bound.outputs[0])),
        per_element(1),
        lambda d: d.g.op("ReluGrad", d.y),
        elementwise=True,
        formula=named("relu"),
    ),
    # ReluGrad(g, y): y > 0 exactly where the input was not clipped.
    OpDef("ReluGrad", (2, 2), same, _relu_grad, per_element(1), elementwise=True, formula=named("pass")),
    formula_op("Sigmoid", 1, named("sigmoid"), 10, lambda d: d.g * (d.y * (1 - d.y))),
    OpDef("PRelu", (2, 2), _prelu_shape, _prelu, per_element(2), _prelu_grad, _byte_per_element, elementwise=True),
    *(entry for (domain, type), activation in ACTIVATIONS.items() for entry in _entries(domain, type, activation)),
]
