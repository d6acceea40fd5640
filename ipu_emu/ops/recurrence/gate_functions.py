"""Gate functions: the activation functions of recurrent networks, with slopes in terms of the value."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ipu_emu.ops.core.formulas import Formula, Term, named
from ipu_emu.ops.core.numpy_functions import apply
from ipu_emu.ops.elementwise.activations import ACTIVATIONS

__all__ = ["FUNCTIONS", "GateFunction", "gate_functions"]

_Array = Any


@dataclass(frozen=True)
class GateFunction:
    """``value(x)`` and, for y = value(x), ``slope(y)``."""

    value: Callable[[_Array], _Array]
    slope: Callable[[_Array], _Array]


def _sigmoid(x: Term) -> Term:
    """1 / (1 + exp(-x)); an overflow of exp gives the correct 0, at half the calls of a form without overflow."""
    return x.like(1.0) / ((-x).of("exp") + 1.0)


def _activation(type: str) -> Formula:
    return ACTIVATIONS["", type].value


#: ONNX's name in lower case: (formula of the value, slope in terms of the value and of the formula's parameters).
#: All are monotonic, so the value determines the slope.
FUNCTIONS: dict[str, tuple[Formula, Callable[..., _Array]]] = {
    "sigmoid": (Formula(_sigmoid), lambda y: y * (1 - y)),
    "tanh": (named("tanh"), lambda y: 1 - y * y),
    "relu": (named("relu"), lambda y: np.where(y > 0, 1, 0)),
    "affine": (Formula(lambda x, a, b: x * a + b, alpha=1.0, beta=0.0), lambda y, a, b: a),
    "leakyrelu": (_activation("LeakyRelu"), lambda y, a: np.where(y >= 0, 1, a)),
    "thresholdedrelu": (_activation("ThresholdedRelu"), lambda y, a: np.where(y > 0, 1, 0)),
    "scaledtanh": (
        Formula(lambda x, a, b: (x * b).of("tanh") * a, alpha=1.0, beta=1.0),
        lambda y, a, b: b * (a - y * y / a),
    ),
    "hardsigmoid": (_activation("HardSigmoid"), lambda y, a, b: np.where((y > 0) & (y < 1), a, 0)),
    "elu": (_activation("Elu"), lambda y, a: np.where(y >= 0, 1, y + a)),
    "softsign": (_activation("Softsign"), lambda y: (1 - np.abs(y)) ** 2),
    "softplus": (Formula(lambda x: x.of("log_add_exp", 0)), lambda y: -np.expm1(-y)),
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


def _with(formula: Formula, slope: Callable[..., _Array], numbers: Sequence[Any]) -> GateFunction:
    return GateFunction(lambda x: formula.apply(apply, [x], numbers), lambda y: slope(y, *numbers))


def _clipped(function: GateFunction, clip: float) -> GateFunction:
    if not clip:
        return function
    bound = np.float32(clip)
    low, high = function.value(-bound), function.value(bound)
    return GateFunction(
        lambda x: function.value(np.clip(x, -bound, bound)),
        lambda y: function.slope(y) * ((y > low) & (y < high)),
    )
