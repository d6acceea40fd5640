"""Activations."""

from __future__ import annotations

import numpy as np

from ipu_emu.ops import Value
from ipu_emu.poptorch.aten.call import Call, Rule, in_float


def _plain(type: str) -> Rule:
    return lambda call: call.x.op(type)


def _gelu(call: Call) -> Value:
    return call.x.op("Gelu", approximate="tanh" if call.get("approximate", "none") == "tanh" else "none")


def _elu(call: Call) -> Value:
    alpha, scale, inner = (float(call.get(name, 1)) for name in ("alpha", "scale", "input_scale"))
    if inner == 1 and scale == 1:
        return call.x.op("Elu", alpha=alpha)
    x = call.in_float().x
    low = x.op("Min", x.like(0)).scaled(inner)
    return x.op("Relu").scaled(scale) + low.op("Expm1").scaled(alpha * scale)


def _rrelu(call: Call) -> Value:
    low, high = float(call.get("lower", 1 / 8)), float(call.get("upper", 1 / 3))
    x = call.x
    if not call.get("training", False):
        return x.op("LeakyRelu", alpha=(low + high) / 2)
    slope = call.writer.random("RandomUniforms", x.tensor.shape, x.tensor.dtype.onnx, (low, high))
    return x.op("Relu") + slope * x.op("Min", x.like(0))


def _prelu(call: Call) -> Value:
    x, weight = call.x, call.value("weight")
    if weight.tensor.nelms > 1 and weight.tensor.rank == 1:
        weight = weight.shaped((-1, *[1] * (x.tensor.rank - 2)))
    return x.op("PRelu", weight)


def _between(x: Value, low: float, high: float) -> Value:
    """``x`` between limits, at which the gradient is 0."""
    if x.tensor.dtype.is_float:
        return x.op("ClipBetween", low=float(low), high=float(high), open=1)
    return x.op("Max", x.like(low)).op("Min", x.like(high))


def _hardshrink(call: Call) -> Value:
    x, limit = call.x, float(call.get("lambd", 0.5))
    return x.op("Abs").op("LessOrEqual", x.like(limit)).op("Where", x.like(0), x)


def _softshrink(call: Call) -> Value:
    """ONNX's Shrink, except that NaN stays NaN."""
    x, limit = call.x, float(call.get("lambd", 0.5))
    return x.op("IsNaN").op("Where", x, x.op("Shrink", lambd=limit, bias=limit))


def _softplus(call: Call) -> Value:
    beta, threshold = float(call.get("beta", 1)), float(call.get("threshold", 20))
    x = call.x
    scaled = x.scaled(beta)
    linear = scaled.op("Greater", x.like(threshold))
    return linear.op("Where", x, scaled.op("Softplus").scaled(1 / beta))


def _threshold(call: Call) -> Value:
    x = call.x
    return x.op("LessOrEqual", call.number(call["threshold"], x)).op("Where", call.number(call["value"], x), x)


def _glu(call: Call) -> Value:
    axis, x = call.axis("dim", -1), call.x
    half = x.tensor.shape[axis] // 2
    a, b = (call.sliced(x, [start], [start + half], [axis]) for start in (0, half))
    return a * b.op("Sigmoid")


def _softmax(type: str) -> Rule:
    def rule(call: Call) -> Value:
        return call.atleast_1d.cast(call.dtype).op(type, axis=call.axis())

    return rule


def _safe_softmax(call: Call) -> Value:
    """Rows that are entirely minus infinity give zeros."""
    x, axis = call.atleast_1d.cast(call.dtype), call.axis()
    empty = x.op("ReduceMax", axes=[axis], keepdims=1).op("Equal", call.number(-np.inf, x))
    usual = empty.op("Where", x.like(0), x)
    return empty.op("Where", x.like(0), usual.op("Softmax", axis=axis))


RULES: dict[str, Rule] = {
    "_log_softmax": _softmax("LogSoftmax"),
    "_safe_softmax": _safe_softmax,
    "_softmax": _softmax("Softmax"),
    "celu": lambda call: call.x.op("Celu", alpha=float(call.get("alpha", 1))),
    "elu": _elu,
    "gelu": _gelu,
    "glu": in_float(_glu),
    "hardshrink": _hardshrink,
    "hardsigmoid": lambda call: call.x.op("HardSigmoid", alpha=1 / 6, beta=0.5),
    "hardswish": _plain("HardSwish"),
    "hardtanh": lambda call: _between(call.x, call.get("min_val", -1), call.get("max_val", 1)),
    "leaky_relu": lambda call: call.x.op("LeakyRelu", alpha=float(call.get("negative_slope", 0.01))),
    "log_sigmoid_forward": lambda call: -(-call.x).op("Softplus"),
    "log_softmax": _softmax("LogSoftmax"),
    "mish": _plain("Mish"),
    "prelu": _prelu,
    "_prelu_kernel": _prelu,
    "relu": _plain("Relu"),
    "relu6": lambda call: _between(call.x, 0, 6),
    "rrelu": _rrelu,
    "rrelu_with_noise": _rrelu,
    "selu": _plain("Selu"),
    "silu": _plain("Swish"),
    "softmax": _softmax("Softmax"),
    "softplus": _softplus,
    "softshrink": _softshrink,
    "threshold": _threshold,
}
