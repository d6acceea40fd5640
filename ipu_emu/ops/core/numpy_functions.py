"""Numpy functions: the functions of formulas on arrays."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import erf
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gcl.kernels.jit import jit

__all__ = ["apply"]

#: An array; numpy's stubs call most results Any.
_Array = Any

#: sqrt(2 / pi) and the factor of the cube in the tanh form of GELU.
_GELU_SCALE, _GELU_CUBE = np.float32(0.7978845608028654), np.float32(0.044715)
#: sqrt(1 / 2) and 1 / sqrt(2 pi).
_ROOT_HALF, _BELL = np.float32(0.7071067811865476), np.float32(0.3989422804014327)


@jit
def error_function(x: NDArray[Any], out: NDArray[Any]) -> None:
    """out = erf(x), both [n]."""
    for i in range(out.size):
        out[i] = erf(x[i])


def _erf(x: _Array) -> _Array:
    out = np.empty(x.size, x.dtype)
    error_function(np.ascontiguousarray(x).reshape(-1), out)
    return out.reshape(x.shape)


def _sigmoid(x: _Array) -> _Array:
    """1 / (1 + exp(-x)) without overflow."""
    small = np.exp(-np.abs(x))
    return np.where(x >= 0, np.float32(1), small) / (1 + small)


def _softplus(x: _Array) -> _Array:
    return np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))


def _gelu_tanh(x: _Array) -> _Array:
    return np.float32(0.5) * x * (1 + np.tanh(_GELU_SCALE * (x + _GELU_CUBE * x * x * x)))


def _gelu_tanh_slope(x: _Array) -> _Array:
    t = np.tanh(_GELU_SCALE * (x + _GELU_CUBE * x * x * x))
    return np.float32(0.5) * (1 + t + x * (1 - t * t) * _GELU_SCALE * (1 + 3 * _GELU_CUBE * x * x))


def _gelu_erf(x: _Array) -> _Array:
    return np.float32(0.5) * x * (1 + _erf(x * _ROOT_HALF))


def _gelu_erf_slope(x: _Array) -> _Array:
    return np.float32(0.5) * (1 + _erf(x * _ROOT_HALF)) + x * _BELL * np.exp(np.float32(-0.5) * x * x)


#: The functions of ``codegen.simd_math`` under the same names, and those that a fused kernel composes of them.
_FUNCTIONS: Mapping[str, Callable[..., _Array]] = {
    "number": lambda value: value,
    "add": lambda x, y: x + y,
    "sub": lambda x, y: x - y,
    "mul": lambda x, y: x * y,
    "div": lambda x, y: x / y,
    "neg": lambda x: -x,
    "abs": np.abs,
    "max": np.maximum,
    "min": np.minimum,
    "where_equal": lambda g, x, y: np.where(x == y, g, 0.0),
    "relu": lambda x: np.maximum(x, 0),
    "pass": lambda x, test: np.where(test > 0, x, 0.0),
    "if_positive": lambda test, yes, no: np.where(test > 0, yes, no),
    "negative_part": lambda x: np.minimum(x, 0),
    "clip_to_unit": lambda x: np.clip(x, 0, 1),
    "exp": np.exp,
    "exp_falling": np.exp,
    "expm1": np.expm1,
    "tanh": np.tanh,
    "erf": _erf,
    "sqrt": np.sqrt,
    "sigmoid": _sigmoid,
    "softplus": _softplus,
    "log_add_exp": np.logaddexp,
    "gelu_tanh": _gelu_tanh,
    "gelu_tanh_slope": _gelu_tanh_slope,
    "gelu_erf": _gelu_erf,
    "gelu_erf_slope": _gelu_erf_slope,
}


def apply(function: str, *values: Any) -> _Array:
    """The backend of formulas that computes with arrays at once."""
    return _FUNCTIONS[function](*values)
