"""Gate functions: the activation functions of recurrent networks, with slopes in terms of the value."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ipu_emu.ops.core.array_functions import ArrayFunction
from ipu_emu.ops.core.formulas import Formula, Term, named
from ipu_emu.ops.elementwise.activations import ACTIVATIONS

_Array = Any


@dataclass(frozen=True)
class GateFunction:
    """``value(x)`` and, for y = value(x), ``slope(y)``."""

    value: Callable[[_Array], _Array]
    slope: Callable[[_Array], _Array]


def _activation(type: str) -> Formula:
    return ACTIVATIONS["", type].value


def _softsign_slope(y: Term) -> Term:
    rest = -y.of("abs") + 1.0
    return rest * rest


#: ONNX's name in lower case: (formula of the value, slope in terms of the value and of the formula's parameters).
#: All are monotonic, so the value determines the slope.
FUNCTIONS: dict[str, tuple[Formula, Callable[..., Term]]] = {
    "sigmoid": (named("sigmoid"), lambda y: y * (-y + 1.0)),
    "tanh": (named("tanh"), lambda y: -(y * y) + 1.0),
    "relu": (named("relu"), lambda y: y.if_positive(1.0, 0.0)),
    "affine": (Formula(lambda x, a, b: x * a + b, alpha=1.0, beta=0.0), lambda y, a, b: y.like(a)),
    "leakyrelu": (_activation("LeakyRelu"), lambda y, a: (-y).if_positive(a, 1.0)),
    "thresholdedrelu": (_activation("ThresholdedRelu"), lambda y, a: y.if_positive(1.0, 0.0)),
    "scaledtanh": (
        Formula(lambda x, a, b: (x * b).of("tanh") * a, alpha=1.0, beta=1.0),
        lambda y, a, b: (-(y * y) / a + a) * b,
    ),
    "hardsigmoid": (_activation("HardSigmoid"), lambda y, a, b: y.like(a).where_positive(y).where_positive(-y + 1.0)),
    "elu": (_activation("Elu"), lambda y, a: (-y).if_positive(y + a, 1.0)),
    "softsign": (_activation("Softsign"), _softsign_slope),
    "softplus": (named("softplus"), lambda y: -(-y).of("expm1_falling")),
}


def gate_functions(
    names: Sequence[str], alphas: Sequence[float], betas: Sequence[float], clip: float
) -> list[GateFunction]:
    """The functions of these names; each with an alpha or a beta takes the next value of the list, or its default.

    Arguments are clamped to [-clip, clip] (0: no limit).
    """
    left, functions = {"alpha": list(alphas), "beta": list(betas)}, []
    for name in names:
        formula, slope = FUNCTIONS[name]
        numbers = [left[key].pop(0) if left[key] else default for key, default in formula.parameters.items()]
        functions.append(_clipped(_with(formula, slope, numbers), clip))
    return functions


def _with(formula: Formula, slope: Callable[..., Term], numbers: Sequence[Any]) -> GateFunction:
    return GateFunction(ArrayFunction(formula, numbers), ArrayFunction(Formula(slope), numbers))


def _clipped(function: GateFunction, clip: float) -> GateFunction:
    if not clip:
        return function
    bound = np.float32(clip)
    low, high = function.value(-bound), function.value(bound)
    return GateFunction(
        lambda x: function.value(np.clip(x, -bound, bound)),
        lambda y: function.slope(y) * ((y > low) & (y < high)),
    )
