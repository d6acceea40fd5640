"""SIMD mathematics: the functions of kernels, for a float32 or a vector of them.

The functions here are polynomials with few branches, the same in every lane, so that a result does not depend on
where in an array its element lies. The largest distance from the exact value in units in the last place (ulp) of the
result, over all float32 numbers, denormals, infinities and NaN included:

    exp   1.1      log   0.83     tanh  1.3      erf   1.1      x^n by products   n - 1, for n >= 2
    sigmoid   2.5      softplus   3.1      for both 0 where the exact value is denormal
    GELU with erf   3 from -1 on, 64 from -6 to -1, and 0 below, where the exact value is at most 6e-9

All others are the functions of ``float64_math`` rounded once: 0.500001 ulp.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ipu_emu.ops.codegen.functions import float64_math
from ipu_emu.ops.codegen.functions.lane_values import Lanes, number
from ipu_emu.ops.codegen.llvm_builder import DOUBLE, FLOAT, HALF, I32, Emitter, vector_like

#: Appends instructions to a kernel and returns the value of the function.
Emit = Callable[..., Any]

#: Below it exp_falling is 0, as its results would be denormal; below the other, exp rounds to 0.
_LOW, _LEAST = -87.3365, -104.0


def _polynomial(k: Emitter, x: Any, coefficients: Sequence[float]) -> Any:
    """Horner's rule, highest power first."""
    total = number(coefficients[0], x)
    for coefficient in coefficients[1:]:
        total = k.intrinsic("fma", total, x, number(coefficient, x))
    return total


def _exp_reduced(k: Emitter, x: Any) -> tuple[Any, Any]:
    """(exp(r), n) with x = n log 2 + r."""
    b = k.b
    n = k.intrinsic("floor", k.intrinsic("fma", x, number(1.44269504088896341, x), number(0.5, x)))
    r = k.intrinsic("fma", n, number(-0.693359375, x), x)
    r = k.intrinsic("fma", n, number(2.12194440e-4, x), r)
    powers = (1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1)
    return b.fadd(k.intrinsic("fma", b.fmul(r, r), _polynomial(k, r, powers), r), number(1, x)), n


def _power_of_two(k: Emitter, n: Any) -> Any:
    b, integer = k.b, k.b.fptosi(n, vector_like(I32, n.type))
    biased = b.add(integer, number(127, integer))
    return b.bitcast(b.shl(biased, number(23, integer)), n.type)


def _exp(k: Emitter, x: Any) -> Any:
    b = k.b
    low, high = number(_LEAST, x), number(88.72284, x)
    bounded = b.select(b.fcmp_ordered("<", x, low), low, b.select(b.fcmp_ordered(">", x, high), high, x))
    y, n = _exp_reduced(k, bounded)
    # Multiply by the power of two in two halves: 2^128 is not a float32.
    half = k.intrinsic("floor", b.fmul(n, number(0.5, x)))
    for part in (half, b.fsub(n, half)):
        y = b.fmul(y, _power_of_two(k, part))
    y = b.select(b.fcmp_ordered("<", x, low), number(0, x), y)
    y = b.select(b.fcmp_ordered(">", x, high), number(float("inf"), x), y)
    return b.select(b.fcmp_unordered("uno", x, x), x, y)


def _exp_falling(k: Emitter, x: Any) -> Any:
    """exp(x) for x <= 0, with the same bits and two thirds of the work."""
    b, low = k.b, number(_LOW, x)
    small = b.fcmp_ordered("<", x, low)
    y, n = _exp_reduced(k, b.select(small, low, x))
    return b.select(small, number(0, x), b.fmul(y, _power_of_two(k, n)))


def _log(k: Emitter, value: Any) -> Any:
    """By the bits of x: 2^n (1 + f) with 1 + f between the roots of 1/2 and 2."""
    x = Lanes(k, value)
    tiny = x < 1.1754943508222875e-38
    bits = tiny.then(x * 2.0**24, x).bits()
    exponent = (bits + (0x3F800000 - 0x3F3504F3)) >> 23
    n = x.new(k.b.sitofp(exponent.value, value.type)) - tiny.then(x.like(151.0), 127.0)
    f = (bits - (exponent << 23) + (127 << 23)).as_float(FLOAT) - 1.0
    powers = (
        7.0376836292e-2, -1.1514610310e-1, 1.1676998740e-1, -1.2420140846e-1, 1.4249322787e-1, -1.6668057665e-1,
        2.0000714765e-1, -2.4999993993e-1, 3.3333331174e-1,
    )  # fmt: skip
    square = f * f
    rest = n.times_plus(-2.12194440e-4, square * f * f.polynomial(powers))
    y = n.times_plus(0.693359375, f + square.times_plus(-0.5, rest))
    y = (x < 0.0).then(x.like(float("nan")), x.equals(0.0).then(x.like(float("-inf")), y))
    return x.is_nan().then(x, x.equals(float("inf")).then(x, y)).value


def _tanh(k: Emitter, x: Any) -> Any:
    b = k.b
    size = k.intrinsic("fabs", x)
    square = b.fmul(x, x)
    powers = (-5.70498872745e-3, 2.06390887954e-2, -5.37397155531e-2, 1.33314422036e-1, -3.33332819422e-1)
    small = k.intrinsic("fma", b.fmul(_polynomial(k, square, powers), square), x, x)
    large = b.fsub(number(1, x), b.fdiv(number(2, x), b.fadd(_exp(k, b.fadd(size, size)), number(1, x))))
    return k.intrinsic("copysign", b.select(b.fcmp_unordered("<", size, number(0.625, x)), small, large), x)


def _erf(k: Emitter, x: Any) -> Any:
    """x + x p(x^2) near 0, else 1 - exp(-t + t q(t)) with t = |x|; p and q minimise the largest relative error."""
    b = k.b
    size, square, unit = k.intrinsic("fabs", x), b.fmul(x, x), number(1, x)
    near = (-5.99954627e-4, 4.99486318e-3, -2.67677475e-2, 1.12818472e-1, -3.76124978e-1, 1.28379151e-1)
    small = k.intrinsic("fma", _polynomial(k, square, near), x, x)
    far = (
        -1.08384056e-5, 3.18883570e-4, -3.62657313e-3, 2.37285867e-2, -1.06198169e-1, -6.35174632e-1, -1.28642783e-1,
    )  # fmt: skip
    most = number(4.2, x)  # erf is 1 from 3.92 on
    t = b.select(b.fcmp_ordered(">", size, most), most, size)
    power = k.intrinsic("fma", _polynomial(k, t, far), t, b.fneg(t))
    large = k.intrinsic("copysign", b.fsub(unit, _exp_falling(k, power)), x)
    return b.select(b.fcmp_unordered("<", size, number(0.92, x)), small, large)


def _sigmoid(k: Emitter, x: Any) -> Any:
    """1 / (1 + exp(-x)), as exp(-|x|) so that nothing overflows."""
    b, unit = k.b, number(1, x)
    small = _exp_falling(k, b.fneg(k.intrinsic("fabs", x)))
    top = b.select(b.fcmp_ordered(">=", x, number(0, x)), unit, small)
    return b.fdiv(top, b.fadd(unit, small))


def _expm1_falling(k: Emitter, x: Any) -> Any:
    """exp(x) - 1 for x <= 0, as 2 t / (1 - t) with t = tanh(x / 2): nothing cancels."""
    b, t = k.b, _tanh(k, k.b.fmul(number(0.5, x), x))
    return b.fdiv(b.fadd(t, t), b.fsub(number(1, x), t))


def _softplus(k: Emitter, x: Any) -> Any:
    """log(1 + exp(x)) = max(x, 0) + log(1 + u) with u = exp(-|x|), by the series of 2 artanh(u / (2 + u))."""
    b, zero = k.b, number(0, x)
    u = _exp_falling(k, b.fneg(k.intrinsic("fabs", x)))
    z = b.fdiv(u, b.fadd(number(2, x), u))
    series = _polynomial(k, b.fmul(z, z), [2 / n for n in (13, 11, 9, 7, 5, 3, 1)])
    return k.intrinsic("fma", z, series, b.select(b.fcmp_ordered("<", x, zero), zero, x))


def _tail(k: Emitter, x: Any) -> Any:
    """2 Phi(-|x|) = erfc(|x| / sqrt 2) as 2^(|x| p(|x|)), where p minimises the error of GELU; 0 from |x| = 6 on.

    One polynomial for the whole range, where erf has two, and no cancellation of 1 + erf(x) for negative x.
    """
    b, most = k.b, number(6, x)
    size = k.intrinsic("fabs", x)
    beyond = b.fcmp_ordered(">", size, most)
    size = b.select(beyond, most, size)
    logarithm = (
        -1.85442968e-8, 5.98125041e-7, -8.22497714e-6, 6.09540839e-5, -2.28683988e-4, -9.87474559e-5, 7.05615617e-3,
        -5.25054187e-2, -4.59203571e-1, -1.15110564,
    )  # fmt: skip
    power = b.fmul(_polynomial(k, size, logarithm), size)
    n = k.intrinsic("floor", b.fadd(power, number(0.5, x)))
    powers = (1.53532848e-4, 1.33988669e-3, 9.61843785e-3, 5.55033237e-2, 2.40226477e-1, 6.93147182e-1, 1.0)
    y = b.fmul(_polynomial(k, b.fsub(power, n), powers), _power_of_two(k, n))
    return b.select(beyond, number(0, x), y)


def _below(k: Emitter, x: Any) -> Any:
    """Phi(x), the cumulative distribution function of the normal distribution."""
    b, tail = k.b, _tail(k, x)
    other = b.fsub(number(2, x), tail)
    return b.fmul(number(0.5, x), b.select(b.fcmp_ordered("<", x, number(0, x)), tail, other))


def _gelu_erf_slope(k: Emitter, x: Any) -> Any:
    b = k.b
    bell = b.fmul(number(0.3989422804014327, x), _exp_falling(k, b.fmul(number(-0.5, x), b.fmul(x, x))))
    return k.intrinsic("fma", x, bell, _below(k, x))


_SCALE, _CUBE = 0.7978845608028654, 0.044715


def _gelu_share(k: Emitter, x: Any) -> Any:
    """(1 + tanh(u)) / 2 = sigmoid(2 u) with u = sqrt(2 / pi) (x + 0.044715 x^3): nothing cancels."""
    b = k.b
    line = k.intrinsic("fma", number(2 * _SCALE * _CUBE, x), b.fmul(x, x), number(2 * _SCALE, x))
    return _sigmoid(k, b.fmul(line, x))


def _gelu_tanh_slope(k: Emitter, x: Any) -> Any:
    b, unit, low, high = k.b, number(1, x), number(-10, x), number(10, x)
    x = b.select(b.fcmp_ordered("<", x, low), low, b.select(b.fcmp_ordered(">", x, high), high, x))
    share = _gelu_share(k, x)
    steep = k.intrinsic("fma", number(6 * _SCALE * _CUBE, x), b.fmul(x, x), number(2 * _SCALE, x))
    return k.intrinsic("fma", b.fmul(b.fmul(x, steep), share), b.fsub(unit, share), share)


def _rounded(k: Emitter, x: Any) -> Any:
    """``x`` rounded to half precision."""
    return k.b.fpext(k.b.fptrunc(x, vector_like(HALF, x.type)), x.type)


def _larger(k: Emitter, x: Any, y: Any) -> Any:
    """max(x, y); NaN if x is NaN."""
    return k.b.select(k.b.fcmp_ordered("<", x, y), y, x)


def _smaller(k: Emitter, x: Any, y: Any) -> Any:
    """min(x, y); NaN if x is NaN."""
    return k.b.select(k.b.fcmp_ordered("<", y, x), y, x)


def _passed(k: Emitter, g: Any, y: Any) -> Any:
    """g where y > 0, else 0."""
    return k.b.select(k.b.fcmp_ordered(">", y, number(0, y)), g, number(0, y))


def _in_float64(name: str) -> Emit:
    """The function of float64 numbers, rounded once to float32."""

    def emit(k: Emitter, *values: Any) -> Any:
        wide = [k.b.fpext(value, vector_like(DOUBLE, value.type)) for value in values]
        return k.b.fptrunc(DOUBLE_FUNCTIONS[name](k, *wide), values[0].type)

    return emit


def _of_lanes(function: Callable[..., Lanes]) -> Emit:
    return lambda k, *values: function(*(Lanes(k, value) for value in values)).value


#: Functions without a rounding of their own, of any type.
_EXACT: Mapping[str, Emit] = {
    "add": lambda k, x, y: k.b.fadd(x, y),
    "sub": lambda k, x, y: k.b.fsub(x, y),
    "mul": lambda k, x, y: k.b.fmul(x, y),
    "div": lambda k, x, y: k.b.fdiv(x, y),
    "neg": lambda k, x: k.b.fneg(x),
    "max": _larger,
    "min": _smaller,
    "where_equal": lambda k, g, x, y: k.b.select(k.b.fcmp_ordered("==", x, y), g, number(0, g)),
    "relu": lambda k, x: k.b.select(k.b.fcmp_ordered("<", x, number(0, x)), number(0, x), x),
    "pass": _passed,
    "sqrt": lambda k, x: k.intrinsic("sqrt", x),
    "abs": lambda k, x: k.intrinsic("fabs", x),
    "choose": lambda k, c, x, y: k.b.select(k.b.fcmp_unordered("!=", c, number(0, c)), x, y),
}

#: The functions of float64 numbers by name.
DOUBLE_FUNCTIONS: Mapping[str, Emit] = {
    **_EXACT,
    **{name: _of_lanes(function) for name, function in float64_math.FUNCTIONS.items()},
}

#: The functions of float32 numbers by name; those that are not here are computed in float64.
FUNCTIONS: Mapping[str, Emit] = {
    **{name: _in_float64(name) for name in float64_math.FUNCTIONS},
    **_EXACT,
    "pow": _in_float64("short_pow"),
    "exp": _exp,
    "exp_falling": _exp_falling,
    "log": _log,
    "tanh": _tanh,
    "erf": _erf,
    "expm1_falling": _expm1_falling,
    "sigmoid": _sigmoid,
    "softplus": _softplus,
    "gelu_erf": lambda k, x: k.b.fmul(x, _below(k, x)),
    "gelu_erf_slope": _gelu_erf_slope,
    "gelu_tanh": lambda k, x: k.b.fmul(x, _gelu_share(k, x)),
    "gelu_tanh_slope": _gelu_tanh_slope,
    "half": _rounded,
}
