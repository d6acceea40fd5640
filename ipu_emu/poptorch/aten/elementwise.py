"""Element-wise ops: arithmetic, functions, comparisons and choices."""

from __future__ import annotations

from collections.abc import Callable
from math import pi
from typing import Any

import numpy as np
import torch

from ipu_emu.graph.dtype import BOOL, INT32
from ipu_emu.ops import Value
from ipu_emu.poptorch.aten.call import Call, Rule, in_float


def _function(type: str) -> Rule:
    return lambda call: call.x.cast(call.dtype).op(type)


def _x(call: Call) -> Value:
    return call.x.cast(call.dtype)


def _add(call: Call, first: str = "self", second: str = "other", sign: int = 1) -> Value:
    a, b = call.common(first, second)
    alpha = call.get("alpha", 1) * sign
    if a.tensor.dtype is BOOL:
        return a.op("Or", b)
    if alpha == -1:
        return a - b
    return a + (b if alpha == 1 else b * call.number(alpha, b))


def _mul(call: Call) -> Value:
    a, b = call.common("self", "other")
    return a.op("And", b) if a.tensor.dtype is BOOL else a * b


def _div(call: Call) -> Value:
    mode = call.get("rounding_mode")
    if mode is None:
        a, b = call.in_result_type("self", "other")
        return a / b
    if mode == "floor":
        return _floor_divide(call.in_float())
    a, b = (x.op("Detach") for x in call.in_float().common("self", "other"))
    return a / b if a.tensor.dtype.is_integer else _truncated(a / b)


def _truncated(x: Value) -> Value:
    """``x`` rounded towards 0."""
    return x.op("Less", x.like(0)).op("Where", x.op("Ceil"), x.op("Floor"))


def _floored_quotient(a: Value, b: Value) -> Value:
    """The quotient rounded down, from the remainder: the rounding of a / b never reaches the next integer."""
    zero, rest = a.like(0), a.op("Mod", b, fmod=1)
    crosses = rest.op("Equal", zero).op("Not").op("And", rest.op("Less", zero).op("Xor", b.op("Less", zero)))
    if a.tensor.dtype.is_integer:
        return a / b - crosses.cast(a.tensor.dtype)
    quotient = ((a - rest) / b - crosses.cast(a.tensor.dtype)).op("NearbyInt")
    return b.op("Equal", zero).op("Where", a / b, quotient)


def _floor_divide(call: Call) -> Value:
    return _floored_quotient(*(x.op("Detach") for x in call.common("self", "other")))


def _binary(type: str, **attributes: int) -> Rule:
    """Return the rule of an op of two operands."""

    def rule(call: Call) -> Value:
        a, b = call.common("self", "other")
        return a.op(type, b, **attributes)

    return rule


def _numeric_extreme(comparison: str) -> Rule:
    """Return the rule of a maximum or minimum that is NaN only where both operands are."""

    def rule(call: Call) -> Value:
        a, b = call.common("self", "other")
        first = a.op(comparison, b)
        return (first.op("Or", b.op("IsNaN")) if b.tensor.dtype.is_float else first).op("Where", a, b)

    return rule


_POWERS: dict[float, Callable[[Value], Value]] = {
    2: lambda x: x * x,
    1: lambda x: x.op("Identity"),
    0.5: lambda x: x.op("Sqrt"),
    -0.5: lambda x: x.op("Sqrt").op("Reciprocal"),
    -1: lambda x: x.op("Reciprocal"),
}


def _pow(call: Call) -> Value:
    base, exponent = call["self"], call["exponent"]
    if isinstance(exponent, int | float) and not isinstance(exponent, bool):
        x = call.as_type(base, call.dtype)
        power = _POWERS.get(exponent)
        return x.op("Pow", call.number(exponent, x)) if power is None else power(x)
    a, b = call.common("self", "exponent")
    return a.op("Pow", b)


def _clamp(call: Call) -> Value:
    """Between limits; a tensor of limits gets a gradient only where it is the result and differs from ``x``."""
    x = _x(call)
    for name, type, beyond in (("min", "Max", "Less"), ("max", "Min", "Greater")):
        bound = call.get(name)
        if bound is None:
            continue
        limit = call.as_type(bound, call.dtype)
        if isinstance(bound, torch.Tensor) and limit.tensor.dtype.is_float:
            x = x.op(beyond, limit).op("Or", limit.op("IsNaN")).op("Where", limit, x)
        else:
            x = x.op(type, limit)
    return x


def _where(call: Call) -> Value:
    condition = call.value("condition").cast(BOOL)
    return condition.op("Where", *call.in_result_type("self", "other"))


def _masked_fill(call: Call) -> Value:
    x = call.x
    return call.value("mask").cast(BOOL).op("Where", call.as_type(call["value"], x.tensor.dtype), x)


def _compare(type: str, *, negated: bool = False) -> Rule:
    def rule(call: Call) -> Value:
        a, b = call.common("self", "other")
        if type in ("Greater", "Less", "GreaterOrEqual", "LessOrEqual") and a.tensor.dtype is BOOL:
            a, b = a.cast(INT32), b.cast(INT32)
        result = a.op(type, b)
        return result.op("Not") if negated else result

    return rule


def _logical(type: str) -> Rule:
    def rule(call: Call) -> Value:
        a, b = (call.as_type(call[name], BOOL) for name in ("self", "other"))
        return a.op(type, b)

    return rule


def _bitwise(logical: str, bits: str) -> Rule:
    def rule(call: Call) -> Value:
        a, b = call.common("self", "other")
        return a.op(logical if a.tensor.dtype is BOOL else bits, b)

    return rule


def _addcmul(call: Call) -> Value:
    x, a, b = call.in_result_type("self", "tensor1", "tensor2")
    value = call.get("value", 1)
    a = a if value == 1 else a * call.number(value, a)
    return x + (a * b if call.name == "addcmul" else a / b)


def _lerp(call: Call) -> Value:
    """Start from the nearer end, so that weight 1 gives ``end`` itself."""
    x, end, weight = call.in_result_type("self", "end", "weight")
    if not isinstance(call["weight"], torch.Tensor) and abs(call["weight"]) < 0.5:
        return x + (end - x) * weight
    far = end - (end - x) * (1.0 - weight)
    if not isinstance(call["weight"], torch.Tensor):
        return far
    return weight.op("Abs").op("Less", weight.like(0.5)).op("Where", x + (end - x) * weight, far)


def _atan2(call: Call) -> Value:
    y, x = call.in_result_type("self", "other")
    return y.op("Atan2", x)


def _isfinite(call: Call) -> Value:
    x = call.x
    return x.op("IsNaN").op("Or", x.op("IsInf")).op("Not")


def _is_negative(x: Value) -> Value:
    """Whether the sign is set, also that of -0.0, whose direction in the plane is -pi."""
    if x.tensor.dtype is BOOL:
        return x.op("And", x.op("Not"))
    return (x.op("Atan2", x.like(-1)) if x.tensor.dtype.is_float else x).op("Less", x.like(0))


def _unless_integer(function: Callable[[Value], Value]) -> Rule:
    """Return the rule of a function that leaves integers and truth values as they are."""
    return lambda call: function(call.x) if call.x.tensor.dtype.is_float else call.x


def _round(call: Call) -> Value:
    """Round to ``decimals``, the last of several equally near numbers being even."""
    decimals = int(call.get("decimals", 0))
    x = call.x
    if not x.tensor.dtype.is_float:
        if decimals < 0:
            raise call.refuse("decimals < 0 of integers is not supported; convert them to floating point")
        return x
    if not decimals:
        return x.op("NearbyInt")
    power = call.number(10.0 ** abs(decimals), x)
    return (x * power).op("NearbyInt") / power if decimals > 0 else (x / power).op("NearbyInt") * power


def _sgn(call: Call) -> Value:
    """The sign; that of NaN is 0."""
    x = call.x
    if x.tensor.dtype is BOOL:
        return x
    return x.op("IsNaN").op("Where", x.like(0), x.op("Sign")) if x.tensor.dtype.is_float else x.op("Sign")


def _copysign(call: Call) -> Value:
    a, b = call.in_result_type("self", "other")
    size = a.op("Abs")
    return _is_negative(b).op("Where", -size, size)


def _nan_to_num(call: Call) -> Value:
    y = x = call.x
    nan, high, low = call.get("nan", 0.0), call.get("posinf"), call.get("neginf")
    if not x.tensor.dtype.is_float:
        return x
    limits = np.finfo(x.tensor.dtype.numpy)
    for bound, number in (
        (np.inf, limits.max if high is None else high),
        (-np.inf, limits.min if low is None else low),
    ):
        y = x.op("Equal", call.number(bound, x)).op("Where", call.number(number, x), y)
    return x.op("IsNaN").op("Where", call.number(nan, x), y)


def _constantly(number: float | None) -> Rule:
    """Return the rule of a tensor filled with ``number``, in the shape of the result."""

    def rule(call: Call) -> Value:
        value = call["fill_value"] if number is None else number
        return call.as_type(value, call.dtype).spread_to(call.shape)

    return rule


def _filled(call: Call, number: Any) -> Value:
    """``number`` in the shape and type of the first argument, whose elements it replaces."""
    return call.as_type(number, call.type_of(call.first)).spread_to(tuple(call.first.shape))


def _same(call: Call) -> Any:
    return call.x


def _xlogy(call: Call) -> Value:
    """x log y, and 0 where x is 0 and log y has no finite value; its slope in x is log y everywhere else."""
    x, y = call.in_result_type("self", "other")
    endless = y.op("LessOrEqual", y.like(0)).op("Or", y.op("IsInf"))
    zero = x.op("Equal", x.like(0)).op("And", endless)
    return zero.op("Where", x.like(0), x * zero.op("Where", y.like(1), y).op("Log"))


def _logaddexp(call: Call) -> Value:
    a, b = call.in_result_type("self", "other")
    distance = a.op("Equal", b).op("Where", a.like(0), a - b).op("Abs")
    return a.op("Max", b, shared=1) + (-distance).op("Softplus")


def _hypot(call: Call) -> Value:
    """Scaled by the larger operand, so that no square overflows or vanishes."""
    a, b = call.in_result_type("self", "other")
    high = a.op("Abs").op("Max", b.op("Abs")).op("Detach")
    usual = high.op("Greater", high.like(0)).op("And", high.op("IsInf").op("Not"))
    size = usual.op("Where", high, high.like(1))
    a, b, infinite = a / size, b / size, a.op("IsInf").op("Or", b.op("IsInf"))
    return infinite.op("Where", size.like(np.inf), size * (a * a + b * b).op("Sqrt"))


_NAMES = {
    "abs": "Abs", "acos": "Acos", "acosh": "Acosh", "asin": "Asin", "asinh": "Asinh", "atan": "Atan",
    "atanh": "Atanh", "cos": "Cos", "cosh": "Cosh", "erf": "Erf", "erfc": "Erfc", "exp": "Exp", "expm1": "Expm1",
    "log": "Log", "log10": "Log10", "log1p": "Log1p", "log2": "Log2", "neg": "Neg", "reciprocal": "Reciprocal",
    "sin": "Sin", "sinh": "Sinh", "sqrt": "Sqrt", "tan": "Tan", "tanh": "Tanh", "sigmoid": "Sigmoid",
}  # fmt: skip

RULES: dict[str, Rule] = {
    **{name: _function(type) for name, type in _NAMES.items()},
    "_to_copy": lambda call: call.x.cast(call.dtype),
    "add": _add,
    "addcdiv": in_float(_addcmul),
    "addcmul": in_float(_addcmul),
    "atan2": _atan2,
    "bitwise_and": _bitwise("And", "BitwiseAnd"),
    "bitwise_not": lambda call: call.x.op("Not" if call.x.tensor.dtype is BOOL else "BitwiseNot"),
    "bitwise_or": _bitwise("Or", "BitwiseOr"),
    "bitwise_xor": _bitwise("Xor", "BitwiseXor"),
    "ceil": _unless_integer(lambda x: x.op("Ceil")),
    "clamp": _clamp,
    "clamp_max": _clamp,
    "clamp_min": _clamp,
    "clone": _same,
    "contiguous": _same,
    "copy": lambda call: _filled(call, call["src"]),
    "copysign": _copysign,
    "deg2rad": lambda call: _x(call).scaled(pi / 180),
    "div": _div,
    "eq": _compare("Equal"),
    "exp2": lambda call: call.number(2, _x(call)).op("Pow", _x(call)),
    "fill": lambda call: _filled(call, call["value"]),
    "floor": _unless_integer(lambda x: x.op("Floor")),
    "floor_divide": in_float(_floor_divide),
    "fmod": _binary("Mod", fmod=1),
    "frac": lambda call: call.x - _truncated(call.x),
    "full_like": _constantly(None),
    "ge": _compare("GreaterOrEqual"),
    "gt": _compare("Greater"),
    "hypot": in_float(_hypot),
    "isfinite": _isfinite,
    "isinf": lambda call: call.x.op("IsInf"),
    "isnan": lambda call: call.x.op("IsNaN"),
    "le": _compare("LessOrEqual"),
    "lerp": in_float(_lerp),
    "logaddexp": in_float(_logaddexp),
    "logical_and": _logical("And"),
    "logical_not": lambda call: call.x.cast(BOOL).op("Not"),
    "logical_or": _logical("Or"),
    "logical_xor": _logical("Xor"),
    "lt": _compare("Less"),
    "masked_fill": _masked_fill,
    "maximum": _binary("Max", shared=1),  # equal operands share the gradient
    "minimum": _binary("Min", shared=1),
    "fmax": _numeric_extreme("GreaterOrEqual"),
    "fmin": _numeric_extreme("LessOrEqual"),
    "mul": _mul,
    "nan_to_num": _nan_to_num,
    "ne": _compare("Equal", negated=True),
    "new_full": _constantly(None),
    "new_ones": _constantly(1),
    "new_zeros": _constantly(0),
    "ones_like": _constantly(1),
    "pow": _pow,
    "rad2deg": lambda call: _x(call).scaled(180 / pi),
    "remainder": _binary("Mod"),
    "round": in_float(_round),
    "rsqrt": lambda call: _x(call).op("Sqrt").op("Reciprocal"),
    "rsub": lambda call: _add(call, "other", "self", -1),
    "sgn": _sgn,
    "sign": _sgn,
    "signbit": lambda call: _is_negative(call.x),
    "sinc": in_float(lambda call: _sinc(_x(call))),
    "square": lambda call: call.x * call.x,
    "sub": lambda call: _add(call, sign=-1),
    "trunc": _unless_integer(_truncated),
    "where": _where,
    "xlogy": in_float(_xlogy),
    "zero": lambda call: _filled(call, 0),
    "zeros_like": _constantly(0),
}


def _sinc(x: Value) -> Value:
    """sin(pi x) / (pi x), which is 1 where the square of x vanishes in its slope."""
    zero = x.op("Abs").op("Less", x.like(1e-12))
    angle = zero.op("Where", x.like(1), x.scaled(pi))
    return zero.op("Where", x.like(1), angle.op("Sin") / angle)
