"""Gate functions: what recurrent networks apply to their gates, with slopes in terms of the value."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

__all__ = ["FUNCTIONS", "GateFunction", "gate_functions"]

_Array = Any
_Function = Callable[[_Array, float, float], _Array]


@dataclass(frozen=True)
class GateFunction:
    """``value(x)`` and, for y = value(x), ``slope(y)``."""

    value: Callable[[_Array], _Array]
    slope: Callable[[_Array], _Array]


def _sigmoid(x: _Array, a: float, b: float) -> _Array:
    return 1 / (1 + np.exp(-x))


def _where(test: _Array, yes: Any, no: Any) -> _Array:
    return np.where(test, yes, no)


#: ONNX's name in lower case: (value, slope in terms of the value, alpha, beta); None where it takes no such number.
#: All of them rise, so that the value tells on which side of a bend it lies.
FUNCTIONS: dict[str, tuple[_Function, _Function, float | None, float | None]] = {
    "sigmoid": (_sigmoid, lambda y, a, b: y * (1 - y), None, None),
    "tanh": (lambda x, a, b: np.tanh(x), lambda y, a, b: 1 - y * y, None, None),
    "relu": (lambda x, a, b: np.maximum(x, 0), lambda y, a, b: _where(y > 0, 1, 0), None, None),
    "affine": (lambda x, a, b: a * x + b, lambda y, a, b: a, 1.0, 0.0),
    "leakyrelu": (lambda x, a, b: _where(x >= 0, x, a * x), lambda y, a, b: _where(y >= 0, 1, a), 0.01, None),
    "thresholdedrelu": (lambda x, a, b: _where(x > a, x, 0), lambda y, a, b: _where(y > 0, 1, 0), 1.0, None),
    "scaledtanh": (lambda x, a, b: a * np.tanh(b * x), lambda y, a, b: b * (a - y * y / a), 1.0, 1.0),
    "hardsigmoid": (
        lambda x, a, b: np.clip(a * x + b, 0, 1),
        lambda y, a, b: _where((y > 0) & (y < 1), a, 0),
        0.2,
        0.5,
    ),
    "elu": (
        lambda x, a, b: _where(x >= 0, x, a * np.expm1(np.minimum(x, 0))),
        lambda y, a, b: _where(y >= 0, 1, y + a),
        1.0,
        None,
    ),
    "softsign": (lambda x, a, b: x / (1 + np.abs(x)), lambda y, a, b: (1 - np.abs(y)) ** 2, None, None),
    "softplus": (lambda x, a, b: np.logaddexp(x, 0), lambda y, a, b: -np.expm1(-y), None, None),
}


def gate_functions(
    names: Sequence[str], alphas: Sequence[float], betas: Sequence[float], clip: float
) -> list[GateFunction]:
    """The functions of these names; each that takes an alpha or a beta takes the next one, or its default.

    What is beyond ``clip`` counts as ``clip`` (0: all of it counts).
    """
    left_a, left_b, made = list(alphas), list(betas), []
    for name in names:
        value, slope, alpha, beta = FUNCTIONS[name]
        a = 0.0 if alpha is None else left_a.pop(0) if left_a else alpha
        b = 0.0 if beta is None else left_b.pop(0) if left_b else beta
        made.append(_clipped(_with(value, slope, a, b), clip))
    return made


def _with(value: _Function, slope: _Function, a: float, b: float) -> GateFunction:
    return GateFunction(lambda x: value(x, a, b), lambda y: slope(y, a, b))


def _clipped(function: GateFunction, clip: float) -> GateFunction:
    if not clip:
        return function
    bound = np.float32(clip)
    low, high = function.value(-bound), function.value(bound)
    return GateFunction(
        lambda x: function.value(np.clip(x, -bound, bound)),
        lambda y: function.slope(y) * ((y > low) & (y < high)),
    )
