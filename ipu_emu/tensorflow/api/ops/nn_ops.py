"""Activations and dense ops of neural networks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tensorflow.python.framework import ops
from tensorflow.python.ops import math_ops
from tensorflow.python.ops import nn_ops as tf_nn

from ipu_emu.session.options.without_effect import without_effect

__all__ = ["gelu", "gelu_erf", "hard_sigmoid", "multi_conv", "softmax", "swish"]


def gelu(x: Any, approximate: bool = True, name: str | None = None) -> Any:
    """The Gaussian error linear unit, by default its approximation by tanh."""
    return tf_nn.gelu(ops.convert_to_tensor(x), approximate, name)


def gelu_erf(x: Any, name: str | None = None) -> Any:
    """The Gaussian error linear unit by its definition."""
    return tf_nn.gelu(ops.convert_to_tensor(x), False, name)


def hard_sigmoid(x: Any, name: str | None = None) -> Any:
    """0.2 x + 0.5, limited to 0 and 1."""
    return math_ops.minimum(math_ops.maximum(0.2 * x + 0.5, 0.0), 1.0, name)


def swish(x: Any, name: str | None = None) -> Any:
    """x sigmoid(x)"""
    return math_ops.multiply(x, math_ops.sigmoid(x), name)


def softmax(x: Any, stable: bool = False, name: str | None = None) -> Any:
    """The softmax of the last axis, which is always computed in the stable way."""
    return tf_nn.softmax(x, name=name)


@without_effect("options")
def multi_conv(func: Callable[..., Any] | None = None, options: Any = None) -> Any:
    """Decorate a function whose convolutions may run at the same time; results do not depend on it."""
    return (lambda function: function) if func is None else func
