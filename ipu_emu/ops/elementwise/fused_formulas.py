"""Formulas: element-wise ops as terms that a fused kernel computes for each element."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ipu_emu.codegen.row_passes import Instruction
from ipu_emu.graph.op import GRAPHCORE

__all__ = ["ACTIVATIONS", "FORMULAS", "Formula", "FormulaBuilder"]


class FormulaBuilder:
    """Instructions under construction."""

    def __init__(self) -> None:
        self.instructions: list[Instruction] = []

    def __call__(self, function: str, *values: Any) -> int:
        """Append an instruction; the number of its value."""
        self.instructions.append((function, *values))
        return len(self.instructions) - 1


#: Writes the value of an op into a body, given its attributes and the values of its inputs.
Formula = Callable[[FormulaBuilder, Mapping[str, Any], list[int]], int]


@dataclass(frozen=True)
class _Term:
    """A value of a body; arithmetic on it appends instructions."""

    body: FormulaBuilder
    value: int

    def of(self, function: str, *others: _Term | float) -> _Term:
        """``function`` of this value and ``others``."""
        return _Term(self.body, self.body(function, self.value, *(self.like(other).value for other in others)))

    def like(self, other: _Term | float) -> _Term:
        if isinstance(other, _Term):
            return other
        return _Term(self.body, self.body("number", float(np.float32(other))))

    def __add__(self, other: _Term | float) -> _Term:
        return self.of("add", other)

    def __sub__(self, other: _Term | float) -> _Term:
        return self.of("sub", other)

    def __mul__(self, other: _Term | float) -> _Term:
        return self.of("mul", other)

    def __truediv__(self, other: _Term | float) -> _Term:
        return self.of("div", other)

    def __neg__(self) -> _Term:
        return self.of("neg")

    def where_positive(self, other: _Term) -> _Term:
        """This value where ``other`` is above 0, else 0."""
        return self.of("pass", other)

    def positive(self, yes: _Term | float, no: _Term | float) -> _Term:
        """``yes`` where this value is above 0, else ``no``."""
        return self.like(1.0).where_positive(self).of("choose", yes, no)


_Attributes = Mapping[str, Any]


def _plain(function: str) -> Formula:
    return lambda body, attributes, values: body(function, *values)


def _slope(function: str) -> Formula:
    """g times the slope at x."""
    return lambda body, attributes, values: body("mul", values[0], body(function, values[1]))


def _gelu(kind: str) -> Formula:
    def formula(body: FormulaBuilder, attributes: _Attributes, values: list[int]) -> int:
        form = "tanh" if attributes.get("approximate", "none") == "tanh" else "erf"
        return (_slope if kind else _plain)(f"gelu_{form}{kind}")(body, attributes, values)

    return formula


def _same(body: FormulaBuilder, attributes: _Attributes, values: list[int]) -> int:
    return values[0]


def _written(function: Callable[..., _Term], **numbers: float) -> Formula:
    """``function`` of the inputs and of the attributes named, with their defaults."""

    def formula(body: FormulaBuilder, attributes: _Attributes, values: list[int]) -> int:
        given = [np.float32(attributes.get(name, default)) for name, default in numbers.items()]
        return function(*(_Term(body, value) for value in values), *given).value

    return formula


def _down(x: _Term) -> _Term:
    """The smaller one of x and 0."""
    return -(-x).of("relu")


def _to_one(x: _Term) -> _Term:
    """x between 0 and 1."""
    return -(-x.of("relu")).of("max", -1.0)


def _elu(x: _Term, alpha: float) -> _Term:
    return x.positive(x, _down(x).of("expm1") * alpha)


def _elu_slope(x: _Term, alpha: float) -> _Term:
    return x.positive(1.0, _down(x).of("exp_falling") * alpha)


def _hard_sigmoid_grad(g: _Term, x: _Term, alpha: float, beta: float) -> _Term:
    line = x * alpha + beta
    return (g * alpha).where_positive(line).where_positive(-line + 1.0)


def _hard_swish_slope(x: _Term) -> _Term:
    return (-x + 3.0).positive((x * 2.0 + 3.0) / 6.0, 1.0).where_positive(x + 3.0)


def _shrink(x: _Term, limit: float, bias: float) -> _Term:
    return (x - limit).positive(x - bias, (x + bias).where_positive(-x - limit))


def _swish_slope(x: _Term, alpha: float) -> _Term:
    s = (x * alpha).of("sigmoid")
    return s + x * alpha * s * (-s + 1.0)


def _mish_slope(x: _Term) -> _Term:
    t = x.of("softplus").of("tanh")
    return t + x * (-(t * t) + 1.0) * x.of("sigmoid")


#: Activations: value at x, and gradient by that of the result and x.
ACTIVATIONS: Mapping[str, tuple[Formula, Formula]] = {
    "LeakyRelu": (
        _written(lambda x, a: (-x).positive(x * a, x), alpha=0.01),
        _written(lambda g, x, a: g * (-x).positive(a, 1.0), alpha=0.01),
    ),
    "ThresholdedRelu": (
        _written(lambda x, a: x.where_positive(x - a), alpha=1.0),
        _written(lambda g, x, a: g.where_positive(x - a), alpha=1.0),
    ),
    "Elu": (_written(_elu, alpha=1.0), _written(lambda g, x, a: g * _elu_slope(x, a), alpha=1.0)),
    "Selu": (
        _written(lambda x, a, c: _elu(x, a) * c, alpha=1.67326319217681884765625, gamma=1.05070102214813232421875),
        _written(
            lambda g, x, a, c: g * (_elu_slope(x, a) * c),
            alpha=1.67326319217681884765625,
            gamma=1.05070102214813232421875,
        ),
    ),
    "Celu": (
        _written(lambda x, a: x.of("relu") + (_down(x) / a).of("expm1") * a, alpha=1.0),
        _written(lambda g, x, a: g * (_down(x) / a).of("exp"), alpha=1.0),
    ),
    "HardSigmoid": (
        _written(lambda x, a, b: _to_one(x * a + b), alpha=0.2, beta=0.5),
        _written(_hard_sigmoid_grad, alpha=0.2, beta=0.5),
    ),
    "HardSwish": (
        _written(lambda x: x * _to_one(x / 6.0 + 0.5)),
        _written(lambda g, x: g * _hard_swish_slope(x)),
    ),
    "Shrink": (
        _written(_shrink, lambd=0.5, bias=0.0),
        _written(lambda g, x, limit: g.where_positive(x.of("abs") - limit), lambd=0.5),
    ),
    "Softsign": (
        _written(lambda x: x / (x.of("abs") + 1.0)),
        _written(lambda g, x: g / ((x.of("abs") + 1.0) * (x.of("abs") + 1.0))),
    ),
    "Softplus": (_plain("softplus"), _slope("sigmoid")),
    "Mish": (
        _written(lambda x: x * x.of("softplus").of("tanh")),
        _written(lambda g, x: g * _mish_slope(x)),
    ),
    "Swish": (
        _written(lambda x, a: x * (x * a).of("sigmoid"), alpha=1.0),
        _written(lambda g, x, a: g * _swish_slope(x, a), alpha=1.0),
    ),
}

#: (domain, type) of the ops that can be fused, their operands and results FLOAT or FLOAT16.
FORMULAS: Mapping[tuple[str, str], Formula] = {
    ("", "Add"): _plain("add"),
    ("", "Sub"): _plain("sub"),
    ("", "Mul"): _plain("mul"),
    ("", "Div"): _plain("div"),
    ("", "Neg"): _plain("neg"),
    ("", "Relu"): _plain("relu"),
    ("", "ReluGrad"): _plain("pass"),
    ("", "Sigmoid"): _plain("sigmoid"),
    ("", "Tanh"): _plain("tanh"),
    ("", "Exp"): _plain("exp"),
    ("", "Sqrt"): _plain("sqrt"),
    ("", "Abs"): _plain("abs"),
    ("", "Scale"): _written(lambda x, scale: x * scale, scale=1.0),
    (GRAPHCORE, "Scale"): _written(lambda x, scale: x * scale, scale=1.0),
    ("", "Cast"): _same,
    ("", "Gelu"): _gelu(""),
    ("", "GeluGrad"): _gelu("_slope"),
    ("", "GraphcoreGeluErfGrad"): _slope("gelu_erf_slope"),
    ("", "GraphcoreGeluGrad"): _slope("gelu_tanh_slope"),
    (GRAPHCORE, "GeluErf"): _plain("gelu_erf"),
    (GRAPHCORE, "Gelu"): _plain("gelu_tanh"),
    (GRAPHCORE, "Swish"): ACTIVATIONS["Swish"][0],
    ("", "GraphcoreSwishGrad"): ACTIVATIONS["Swish"][1],
    **{("", type): value for type, (value, _) in ACTIVATIONS.items()},
    **{("", f"{type}Grad"): grad for type, (_, grad) in ACTIVATIONS.items()},
}
