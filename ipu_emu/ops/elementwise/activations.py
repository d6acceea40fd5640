"""Activations: element-wise functions with a slope that is written beside them.

A row is (type, value of x, slope at x, operations); both are given the node for its attributes. The gradient of
``T`` is the internal op ``TGrad(g, x) = g * slope(x)``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ipu_emu.graph.op import GRAPHCORE
from ipu_emu.ops.core.adjoint import Adjoint, Value
from ipu_emu.ops.core.cost import per_element
from ipu_emu.ops.core.kernel_helpers import allocating_kernel
from ipu_emu.ops.core.node import Node
from ipu_emu.ops.core.op_definition import OpDef
from ipu_emu.ops.core.shape_rules import same
from ipu_emu.ops.elementwise.math_functions import error_function

__all__ = ["OPS"]

#: An array; numpy's stubs call most results Any.
_Array = Any
_Formula = Callable[[Node, _Array], _Array]

#: sqrt(2 / pi) and the factor of the cube in the tanh form of GELU.
_GELU_SCALE, _GELU_CUBE = np.float32(0.7978845608028654), np.float32(0.044715)
#: alpha and gamma of SELU.
_SELU = (1.67326319217681884765625, 1.05070102214813232421875)
_ROOT_HALF, _BELL = np.float32(0.7071067811865476), np.float32(0.3989422804014327)


def _number(node: Node, name: str, default: float) -> np.float32:
    return np.float32(node.attribute(name, default))


def _sigmoid(x: _Array) -> _Array:
    """1 / (1 + exp(-x)) without overflow."""
    small = np.exp(-np.abs(x))
    return np.where(x >= 0, np.float32(1), small) / (1 + small)


def _softplus(x: _Array) -> _Array:
    return np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))


def _erf(x: _Array) -> _Array:
    out = np.empty(x.size, np.float32)
    error_function(np.ascontiguousarray(x, np.float32).reshape(-1), out)
    return out.reshape(x.shape)


def _gelu_tanh(node: Node, x: _Array) -> _Array:
    return np.float32(0.5) * x * (1 + np.tanh(_GELU_SCALE * (x + _GELU_CUBE * x * x * x)))


def _gelu_tanh_slope(node: Node, x: _Array) -> _Array:
    t = np.tanh(_GELU_SCALE * (x + _GELU_CUBE * x * x * x))
    return np.float32(0.5) * (1 + t + x * (1 - t * t) * _GELU_SCALE * (1 + 3 * _GELU_CUBE * x * x))


def _gelu_erf(node: Node, x: _Array) -> _Array:
    return np.float32(0.5) * x * (1 + _erf(x * _ROOT_HALF))


def _gelu_erf_slope(node: Node, x: _Array) -> _Array:
    return np.float32(0.5) * (1 + _erf(x * _ROOT_HALF)) + x * _BELL * np.exp(np.float32(-0.5) * x * x)


def _gelu(node: Node, x: _Array) -> _Array:
    return (_gelu_tanh if node.attribute("approximate", "none") == "tanh" else _gelu_erf)(node, x)


def _gelu_slope(node: Node, x: _Array) -> _Array:
    return (_gelu_tanh_slope if node.attribute("approximate", "none") == "tanh" else _gelu_erf_slope)(node, x)


def _elu(x: _Array, alpha: np.float32) -> _Array:
    return np.where(x > 0, x, alpha * np.expm1(np.minimum(x, 0)))


def _elu_slope(x: _Array, alpha: np.float32) -> _Array:
    return np.where(x > 0, np.float32(1), alpha * np.exp(np.minimum(x, 0)))


def _selu(node: Node, x: _Array) -> _Array:
    return _number(node, "gamma", _SELU[1]) * _elu(x, _number(node, "alpha", _SELU[0]))


def _selu_slope(node: Node, x: _Array) -> _Array:
    gamma, alpha = _number(node, "gamma", _SELU[1]), _number(node, "alpha", _SELU[0])
    return gamma * _elu_slope(x, alpha)


def _celu(node: Node, x: _Array) -> _Array:
    alpha = _number(node, "alpha", 1.0)
    return np.maximum(x, 0) + alpha * np.expm1(np.minimum(x, 0) / alpha)


def _celu_slope(node: Node, x: _Array) -> _Array:
    return np.exp(np.minimum(x, 0) / _number(node, "alpha", 1.0))


def _hard_sigmoid(node: Node, x: _Array) -> _Array:
    return np.clip(_number(node, "alpha", 0.2) * x + _number(node, "beta", 0.5), 0, 1)


def _hard_sigmoid_slope(node: Node, x: _Array) -> _Array:
    alpha = _number(node, "alpha", 0.2)
    line = alpha * x + _number(node, "beta", 0.5)
    return np.where((line > 0) & (line < 1), alpha, np.float32(0))


def _leaky(node: Node, x: _Array) -> _Array:
    return np.where(x < 0, _number(node, "alpha", 0.01) * x, x)


def _leaky_slope(node: Node, x: _Array) -> _Array:
    return np.where(x < 0, _number(node, "alpha", 0.01), np.float32(1))


def _threshold(node: Node, x: _Array) -> _Array:
    return np.where(x > _number(node, "alpha", 1.0), x, np.float32(0))


def _threshold_slope(node: Node, x: _Array) -> _Array:
    return (x > _number(node, "alpha", 1.0)).astype(np.float32)


def _shrink(node: Node, x: _Array) -> _Array:
    limit, bias = node.attribute("lambd", 0.5), node.attribute("bias", 0.0)
    return np.where(x > limit, x - bias, np.where(x < -limit, x + bias, 0))


def _shrink_slope(node: Node, x: _Array) -> _Array:
    return (np.abs(x) > node.attribute("lambd", 0.5)).astype(np.float32)


def _softsign(node: Node, x: _Array) -> _Array:
    return x / (1 + np.abs(x))


def _softsign_slope(node: Node, x: _Array) -> _Array:
    return 1 / np.square(1 + np.abs(x))


def _mish(node: Node, x: _Array) -> _Array:
    return x * np.tanh(_softplus(x))


def _mish_slope(node: Node, x: _Array) -> _Array:
    t = np.tanh(_softplus(x))
    return t + x * (1 - t * t) * _sigmoid(x)


def _swish(node: Node, x: _Array) -> _Array:
    return x * _sigmoid(_number(node, "alpha", 1.0) * x)


def _swish_slope(node: Node, x: _Array) -> _Array:
    alpha = _number(node, "alpha", 1.0)
    s = _sigmoid(alpha * x)
    return s + alpha * x * s * (1 - s)


def _hard_swish(node: Node, x: _Array) -> _Array:
    return x * np.clip(x / np.float32(6) + np.float32(0.5), 0, 1)


def _hard_swish_slope(node: Node, x: _Array) -> _Array:
    return np.where(x <= -3, np.float32(0), np.where(x >= 3, np.float32(1), (2 * x + 3) / np.float32(6)))


def _activation(type: str, value: _Formula, slope: _Formula, operations: int, domain: str = "") -> list[OpDef]:
    internal = f"{'Graphcore' if domain else ''}{type}Grad"

    def rule(d: Adjoint) -> Value:
        return d.g.op(internal, d.x, **d.node.op.attributes)

    def grad(node: Node, g: _Array, x: _Array) -> _Array:
        return g * slope(node, x)

    cost = per_element(operations)
    return [
        OpDef(type, (1, 1), same, allocating_kernel(value), cost, rule, elementwise=True, domain=domain),
        OpDef(internal, (2, 2), same, allocating_kernel(grad), cost, elementwise=True),
    ]


def _softplus_value(node: Node, x: _Array) -> _Array:
    return _softplus(x)


def _softplus_slope(node: Node, x: _Array) -> _Array:
    return _sigmoid(x)


def _elu_value(node: Node, x: _Array) -> _Array:
    return _elu(x, _number(node, "alpha", 1.0))


def _elu_derivative(node: Node, x: _Array) -> _Array:
    return _elu_slope(x, _number(node, "alpha", 1.0))


_ROWS: list[tuple[str, _Formula, _Formula, int, str]] = [
    ("Softplus", _softplus_value, _softplus_slope, 20, ""),
    ("Softsign", _softsign, _softsign_slope, 3, ""),
    ("LeakyRelu", _leaky, _leaky_slope, 2, ""),
    ("Elu", _elu_value, _elu_derivative, 10, ""),
    ("Selu", _selu, _selu_slope, 11, ""),
    ("Celu", _celu, _celu_slope, 12, ""),
    ("HardSigmoid", _hard_sigmoid, _hard_sigmoid_slope, 4, ""),
    ("HardSwish", _hard_swish, _hard_swish_slope, 5, ""),
    ("ThresholdedRelu", _threshold, _threshold_slope, 1, ""),
    ("Shrink", _shrink, _shrink_slope, 3, ""),
    ("Mish", _mish, _mish_slope, 35, ""),
    ("Swish", _swish, _swish_slope, 12, ""),
    ("Swish", _swish, _swish_slope, 12, GRAPHCORE),
    ("Gelu", _gelu, _gelu_slope, 20, ""),
    ("Gelu", _gelu_tanh, _gelu_tanh_slope, 18, GRAPHCORE),
    ("GeluErf", _gelu_erf, _gelu_erf_slope, 20, GRAPHCORE),
]

OPS = [entry for row in _ROWS for entry in _activation(*row)]
