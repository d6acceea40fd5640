"""Element-wise ops: arithmetic, functions, comparisons and choices."""

from __future__ import annotations

from math import log, pi
from typing import Any

import numpy as np
import torch

from ipu_emu.graph.dtype import BOOL, FLOAT, INT32
from ipu_emu.ops import Value
from ipu_emu.poptorch.aten.call import Call, Rule, cast, finite

__all__ = ["RULES"]


def _function(type: str) -> Rule:
    return lambda call: cast(call.x, call.dtype).op(type)


def _binary(type: str) -> Rule:
    def rule(call: Call) -> Value:
        a, b = call.common(*list(call.arguments)[:2])
        return a.op(type, b)

    return rule


def _x(call: Call) -> Value:
    return cast(call.x, call.dtype)


def _add(call: Call, sign: int = 1) -> Value:
    a, b = call.common("self", "other")
    alpha = call.get("alpha", 1) * sign
    if a.tensor.dtype is BOOL:
        return a.op("Or", b)
    if alpha == -1:
        return a - b
    return a + (b if alpha == 1 else b * call.number(alpha, b))


def _rsub(call: Call) -> Value:
    a, b = call.common("self", "other")
    alpha = call.get("alpha", 1)
    return b - (a if alpha == 1 else a * call.number(alpha, a))


def _mul(call: Call) -> Value:
    a, b = call.common("self", "other")
    return a.op("And", b) if a.tensor.dtype is BOOL else a * b


def _div(call: Call) -> Value:
    mode = call.get("rounding_mode")
    if mode is None:
        a, b = (call.as_type(call[name], call.dtype) for name in ("self", "other"))
        return a / b
    a, b = call.common("self", "other")
    whole = a.tensor.dtype.is_integer
    quotient = cast(a, FLOAT) / cast(b, FLOAT) if whole else a / b
    return cast(_floored(quotient) if mode == "floor" else _truncated(quotient), call.dtype)


def _floored(x: Value) -> Value:
    return x.op("Floor")


def _truncated(x: Value) -> Value:
    return x.op("Sign") * x.op("Abs").op("Floor")


def _floor_divide(call: Call) -> Value:
    a, b = call.common("self", "other")
    return cast(_floored(cast(a, FLOAT) / cast(b, FLOAT)), call.dtype)


def _remainder(call: Call) -> Value:
    a, b = call.common("self", "other")
    return a.op("Mod", b) if a.tensor.dtype.is_integer else a - _floored(a / b) * b


def _fmod(call: Call) -> Value:
    a, b = call.common("self", "other")
    return a.op("Mod", b, fmod=1)


def _pow(call: Call) -> Value:
    base, exponent = call["self"], call["exponent"]
    if isinstance(exponent, int | float) and not isinstance(exponent, bool):
        x = call.as_type(base, call.dtype)
        if exponent == 2:
            return x * x
        if exponent == 0.5:
            return x.op("Sqrt")
        if exponent == 1:
            return x.op("Identity")
        if exponent == 3:
            return x * x * x
        if exponent == -1:
            return x.op("Reciprocal")
        if exponent == -0.5:
            return x.op("Sqrt").op("Reciprocal")
        return x.op("Pow", call.number(exponent, x))
    return call.as_type(base, call.dtype).op("Pow", call.as_type(exponent, call.dtype))


def _clamp(call: Call) -> Value:
    x = _x(call)
    for name, type in (("min", "Max"), ("max", "Min")):
        limit = call.get(name)
        if limit is not None:
            x = x.op(type, call.as_type(limit, call.dtype))
    return x


def _where(call: Call) -> Value:
    condition = cast(call.value("condition"), BOOL)
    a, b = (call.as_type(call[name], call.dtype) for name in ("self", "other"))
    return condition.op("Where", a, b)


def _masked_fill(call: Call) -> Value:
    x = call.x
    return cast(call.value("mask"), BOOL).op("Where", call.as_type(call["value"], x.tensor.dtype), x)


def _compare(type: str, *, negated: bool = False) -> Rule:
    def rule(call: Call) -> Value:
        a, b = call.common("self", "other")
        if type in ("Greater", "Less", "GreaterOrEqual", "LessOrEqual") and a.tensor.dtype is BOOL:
            a, b = cast(a, INT32), cast(b, INT32)
        made = a.op(type, b)
        return made.op("Not") if negated else made

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


def _not(call: Call) -> Value:
    return call.x.op("Not" if call.x.tensor.dtype is BOOL else "BitwiseNot")


def _addcmul(call: Call) -> Value:
    x, a, b = (call.as_type(call[name], call.dtype) for name in ("self", "tensor1", "tensor2"))
    value = call.get("value", 1)
    product = a * b if call.name == "addcmul" else a / b
    return x + (product if value == 1 else product * call.number(value, x))


def _lerp(call: Call) -> Value:
    x, end, weight = (call.as_type(call[name], call.dtype) for name in ("self", "end", "weight"))
    return x + (end - x) * weight


def _rsqrt(call: Call) -> Value:
    return _x(call).op("Sqrt").op("Reciprocal")


def _log_of(base: float) -> Rule:
    return lambda call: _x(call).op("Log").scaled(1 / log(base))


def _atan2(call: Call) -> Value:
    """Computed by arctangents, which have a gradient: pi is added or subtracted left of the origin."""
    y, x = (call.as_type(call[name], call.dtype) for name in ("self", "other"))
    zero = x.like(0)
    angle = (y / x).op("Atan")
    half = y.op("Less", zero).op("Where", x.like(-pi), x.like(pi))
    turned = x.op("Less", zero).op("Where", angle + half, angle)
    upright = y.op("Sign").scaled(pi / 2)
    return x.op("Equal", zero).op("Where", upright, turned)


def _isnan(call: Call) -> Value:
    return call.x.op("IsNaN")


def _isinf(call: Call) -> Value:
    return call.x.op("IsInf")


def _isfinite(call: Call) -> Value:
    x = call.x
    return x.op("IsNaN").op("Or", x.op("IsInf")).op("Not")


def _signbit(call: Call) -> Value:
    return call.x.op("Less", call.x.like(0))


def _erfc(call: Call) -> Value:
    x = _x(call)
    return 1.0 - x.op("Erf")


def _square(call: Call) -> Value:
    return call.x * call.x


def _frac(call: Call) -> Value:
    return call.x - _truncated(call.x)


def _trunc(call: Call) -> Value:
    return call.x if call.x.tensor.dtype.is_integer else _truncated(call.x)


def _rounding(type: str) -> Rule:
    return lambda call: call.x if call.x.tensor.dtype.is_integer else call.x.op(type)


def _round(call: Call) -> Value:
    """Round to ``decimals``, the last of several equally near numbers being even."""
    decimals = int(call.get("decimals", 0))
    x = call.x
    if x.tensor.dtype.is_integer:
        if decimals < 0:
            raise call.refuse("decimals < 0 of integers is not supported; convert them to floating point")
        return x
    if not decimals:
        return x.op("NearbyInt")
    power = call.number(10.0 ** abs(decimals), x)
    return (x * power).op("NearbyInt") / power if decimals > 0 else (x / power).op("NearbyInt") * power


def _sgn(call: Call) -> Value:
    return call.x.op("Sign")


def _copysign(call: Call) -> Value:
    a, b = (call.as_type(call[name], call.dtype) for name in ("self", "other"))
    size = a.op("Abs")
    return b.op("Less", b.like(0)).op("Where", -size, size)


def _nan_to_num(call: Call) -> Value:
    x = call.x
    limits = np.finfo(x.tensor.dtype.numpy)
    x = x.op("IsNaN").op("Where", x.like(call.get("nan", 0.0)), x)
    for name, sign, limit in (("posinf", 1, limits.max), ("neginf", -1, limits.min)):
        bound = call.number(sign * np.inf, x)
        x = x.op("Equal", bound).op("Where", call.number(call.get(name, float(limit)), x), x)
    return x


def _to(call: Call) -> Value:
    return cast(call.x, call.dtype)


def _copy(call: Call) -> Value:
    source = cast(call.of(call["src"]), call.type_of(call.first))
    return source.spread_to(tuple(call.first.shape))


def _filled(call: Call) -> Value:
    return call.as_type(call["value"], call.type_of(call.first)).spread_to(tuple(call.first.shape))


def _constantly(number: float | None) -> Rule:
    """Return the rule of a tensor filled with ``number``, in the shape of the result."""

    def rule(call: Call) -> Value:
        value = call["fill_value"] if number is None else number
        return call.as_type(value, call.dtype).spread_to(call.shape)

    return rule


def _zero(call: Call) -> Value:
    tensor: torch.Tensor = call.first
    return call.constant(np.zeros((), call.type_of(tensor).numpy)).spread_to(tuple(tensor.shape))


def _same(call: Call) -> Any:
    return call.x


def _xlogy(call: Call) -> Value:
    x, y = (call.as_type(call[name], call.dtype) for name in ("self", "other"))
    zero = x.op("Equal", x.like(0))
    return zero.op("Where", x.like(0).spread_to(call.shape), x * zero.op("Where", y.like(1), y).op("Log"))


def _logaddexp(call: Call) -> Value:
    a, b = (call.as_type(call[name], call.dtype) for name in ("self", "other"))
    high = finite(a.op("Max", b).op("Detach"))
    return high + ((a - high).op("Exp") + (b - high).op("Exp")).op("Log")


def _hypot(call: Call) -> Value:
    a, b = (call.as_type(call[name], call.dtype) for name in ("self", "other"))
    return (a * a + b * b).op("Sqrt")


_NAMES = {
    "abs": "Abs", "acos": "Acos", "acosh": "Acosh", "asin": "Asin", "asinh": "Asinh", "atan": "Atan",
    "atanh": "Atanh", "cos": "Cos", "cosh": "Cosh", "erf": "Erf", "exp": "Exp", "expm1": "Expm1", "log": "Log",
    "log1p": "Log1p", "neg": "Neg", "reciprocal": "Reciprocal", "sin": "Sin", "sinh": "Sinh", "sqrt": "Sqrt",
    "tan": "Tan", "tanh": "Tanh", "sigmoid": "Sigmoid",
}  # fmt: skip

RULES: dict[str, Rule] = {
    **{name: _function(type) for name, type in _NAMES.items()},
    "_to_copy": _to,
    "add": _add,
    "addcdiv": _addcmul,
    "addcmul": _addcmul,
    "atan2": _atan2,
    "bitwise_and": _bitwise("And", "BitwiseAnd"),
    "bitwise_not": _not,
    "bitwise_or": _bitwise("Or", "BitwiseOr"),
    "bitwise_xor": _bitwise("Xor", "BitwiseXor"),
    "ceil": _rounding("Ceil"),
    "clamp": _clamp,
    "clamp_max": _clamp,
    "clamp_min": _clamp,
    "clone": _same,
    "contiguous": _same,
    "copy": _copy,
    "copysign": _copysign,
    "deg2rad": lambda call: _x(call).scaled(pi / 180),
    "div": _div,
    "eq": _compare("Equal"),
    "erfc": _erfc,
    "exp2": lambda call: _x(call).scaled(log(2)).op("Exp"),
    "fill": _filled,
    "floor": _rounding("Floor"),
    "floor_divide": _floor_divide,
    "fmod": _fmod,
    "frac": _frac,
    "full_like": _constantly(None),
    "ge": _compare("GreaterOrEqual"),
    "gt": _compare("Greater"),
    "hypot": _hypot,
    "isfinite": _isfinite,
    "isinf": _isinf,
    "isnan": _isnan,
    "le": _compare("LessOrEqual"),
    "lerp": _lerp,
    "log10": _log_of(10),
    "log2": _log_of(2),
    "logaddexp": _logaddexp,
    "logical_and": _logical("And"),
    "logical_not": lambda call: cast(call.x, BOOL).op("Not"),
    "logical_or": _logical("Or"),
    "logical_xor": _logical("Xor"),
    "lt": _compare("Less"),
    "masked_fill": _masked_fill,
    "maximum": _binary("Max"),
    "minimum": _binary("Min"),
    "fmax": _binary("Max"),
    "fmin": _binary("Min"),
    "mul": _mul,
    "nan_to_num": _nan_to_num,
    "ne": _compare("Equal", negated=True),
    "new_full": _constantly(None),
    "new_ones": _constantly(1),
    "new_zeros": _constantly(0),
    "ones_like": _constantly(1),
    "pow": _pow,
    "rad2deg": lambda call: _x(call).scaled(180 / pi),
    "remainder": _remainder,
    "round": _round,
    "rsqrt": _rsqrt,
    "rsub": _rsub,
    "sgn": _sgn,
    "sign": _sgn,
    "signbit": _signbit,
    "sinc": lambda call: _sinc(_x(call)),
    "square": _square,
    "sub": lambda call: _add(call, -1),
    "trunc": _trunc,
    "where": _where,
    "xlogy": _xlogy,
    "zero": _zero,
    "zeros_like": _constantly(0),
}


def _sinc(x: Value) -> Value:
    zero = x.op("Equal", x.like(0))
    angle = zero.op("Where", x.like(1), x.scaled(pi))
    return zero.op("Where", x.like(1), angle.op("Sin") / angle)
