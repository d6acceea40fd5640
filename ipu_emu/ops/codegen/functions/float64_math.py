"""float64 mathematics: the functions of DOUBLE tensors, and those of float32 that have no faster form of their own.

Coefficients that are written as numbers minimise the largest relative error; other polynomials are Taylor series. The
largest distance from the exact value in units in the last place (ulp), over random numbers of all sizes:

    1     exp  log  log1p  pow  sin  cos           1.5   cosh  erf  softplus
    2     expm1  acosh  asinh  atanh  atan  tan    2.5   sinh  tanh  asin  acos  atan2  sigmoid
    4     GELU with erf, from -37 on

Special values, NaN and signs of zeros are those of C's functions of these names.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import factorial

from ipu_emu.ops.codegen.functions.argument_reduction import quarter_turns
from ipu_emu.ops.codegen.functions.lane_values import Lanes
from ipu_emu.ops.codegen.llvm_builder import DOUBLE

_INF, _NAN = float("inf"), float("nan")
#: log 2 as a number of 33 bits and the rest, and as the nearest number and the rest.
_LOG2_SHORT, _LOG2_REST = 6.93147180369123816490e-01, 1.90821492927058770002e-10
_LOG2, _LOG2_ERROR = 0.6931471805599453, 2.3190468138462996e-17
_HALF_PI, _HALF_PI_ERROR = 1.5707963267948966, 6.123233995736766e-17
#: The sum with 1.5 * 2^52 has an integer in its lowest bits.
_SHIFT = 6755399441055744.0


# Exponentials


_EXP = [1 / factorial(n) for n in range(13, 1, -1)]


def _sum(high: Lanes, low: Lanes) -> tuple[Lanes, Lanes]:
    """high + low as a number and its error; ``high`` is 0 or the larger."""
    total = high + low
    return total, low - (total - high)


def _power_of_two(n: Lanes) -> Lanes:
    """2^n for whole n from -1022 to 1023."""
    return (((n + _SHIFT).bits() + 1023) << 52).as_float(DOUBLE)


def _reduced(x: Lanes) -> tuple[Lanes, Lanes]:
    """(n, r) with x = n log 2 + r."""
    n = (x * 1.4426950408889634).intrinsic("rint")
    return n, n.times_plus(-_LOG2_ERROR, n.times_plus(-_LOG2, x))


def _expm1_near(r: Lanes) -> Lanes:
    """exp(r) - 1 for |r| <= 0.35."""
    return (r * r).times_plus(r.polynomial(_EXP), r)


def _scaled(y: Lanes, n: Lanes) -> Lanes:
    """y 2^n, in two steps, as 2^n need not be a float64."""
    half = (n * 0.5).intrinsic("floor")
    return y * _power_of_two(half) * _power_of_two(n - half)


def _clamped(x: Lanes, low: float, high: float) -> Lanes:
    return (x < low).then(x.like(low), (x > high).then(x.like(high), x))


def _exp(x: Lanes, *, shift: float = 0.0, error: Lanes | None = None) -> Lanes:
    """exp(x + error) 2^shift, where ``error`` is tiny."""
    n, r = _reduced(_clamped(x, -800.0, 800.0))
    total, low = _sum(x.like(1.0), r)
    rest = r * r * r.polynomial(_EXP)
    low = low if error is None else low + error * (total + rest)
    return _scaled(total + (rest + low), n + shift)


def _expm1(x: Lanes) -> Lanes:
    n, r = _reduced(_clamped(x, -40.0, 800.0))
    scale = _power_of_two(_clamped(n - 1.0, -100.0, 1023.0))
    y = scale.times_plus(_expm1_near(r), scale - 0.5) * 2.0
    return (x > 710.0).then(x.like(_INF), x.equals(0.0).then(x, y))


# Logarithms


def _log_reduced(x: Lanes) -> tuple[Lanes, Lanes]:
    """(k, m) with x = 2^k m and m between the roots of 1/2 and 2, for positive finite x."""
    tiny = x < 2.2250738585072014e-308
    bits = tiny.then(x * 2.0**54, x).bits()
    exponent = (bits + (0x3FF0000000000000 - 0x3FE6A09E667F3BCD)) >> 52
    k = (exponent | 0x4330000000000000).as_float(DOUBLE) - 4503599627370496.0
    m = (bits - (exponent << 52) + (1023 << 52)).as_float(DOUBLE)
    return k - tiny.then(x.like(1077.0), 1023.0), m


def _log_of(k: Lanes, f: Lanes, error: Lanes | float = 0.0) -> Lanes:
    """k log 2 + log(1 + f) + error, by the series of 2 artanh(f / (2 + f))."""
    s = f / (f + 2.0)
    z, half = s * s, f * f * 0.5
    series = z.polynomial([2 / n for n in range(21, 1, -2)]) * z
    low = k.times_plus(_LOG2_REST, error)
    return k * _LOG2_SHORT - ((half - (s * (half + series) + low)) - f)


def _of_domain(x: Lanes, y: Lanes, least: float) -> Lanes:
    """``y``, a function with a logarithm's pole at ``least``."""
    y = (x < least).then(x.like(_NAN), x.equals(least).then(x.like(-_INF), y))
    return x.is_nan().then(x, x.equals(_INF).then(x, y))


def _log(x: Lanes) -> Lanes:
    k, m = _log_reduced(x)
    return _of_domain(x, _log_of(k, m - 1.0), 0.0)


def _log1p(x: Lanes) -> Lanes:
    total = x + 1.0
    change = total - 1.0
    error = ((1.0 - (total - change)) + (x - change)) / total
    k, m = _log_reduced(total)
    near = k.equals(0.0)
    y = _log_of(k, near.then(x, m - 1.0), near.then(x.like(0.0), error))
    return _of_domain(x, x.equals(0.0).then(x, y), -1.0)


# Trigonometric functions


_SIN = [(-1) ** (n // 2) / factorial(n) for n in range(17, 1, -2)]
_COS = [(-1) ** (n // 2) / factorial(n) for n in range(16, 2, -2)]


def _sin_near(r: Lanes, error: Lanes | float) -> Lanes:
    """sin(r + error) for |r| <= pi / 4, where ``error`` is tiny."""
    z = r * r
    cubic = z * r
    rest = (z * -0.5 + 1.0).times_plus(error, cubic * z.polynomial(_SIN))
    return r + rest


def _cos_near(r: Lanes, error: Lanes | float) -> Lanes:
    z = r * r
    half = z * 0.5
    top = 1.0 - half
    rest = (z * z).times_plus(z.polynomial(_COS), -(r * error))
    return top + (((1.0 - top) - half) + rest)


def _turned(n: Lanes, even: Lanes, odd: Lanes) -> Lanes:
    """``even`` or ``odd``, as n is, with the other sign where n modulo 4 is 2 or 3."""
    bits = (n + _SHIFT).bits()
    value = (bits & 1).is_set().then(odd, even)
    return (value.bits() ^ ((bits >> 1) << 63)).as_float(DOUBLE)


def _sin(x: Lanes) -> Lanes:
    n, r, error = quarter_turns(x)
    return x.equals(0.0).then(x, _turned(n, _sin_near(r, error), _cos_near(r, error)))


def _cos(x: Lanes) -> Lanes:
    n, r, error = quarter_turns(x)
    return _turned(n + 1.0, _sin_near(r, error), _cos_near(r, error))


def _tan(x: Lanes) -> Lanes:
    n, r, error = quarter_turns(x)
    sin, cos = _sin_near(r, error), _cos_near(r, error)
    odd = ((n + _SHIFT).bits() & 1).is_set()
    return x.equals(0.0).then(x, odd.then(-cos, sin) / odd.then(sin, cos))


def _cos_of_turns(x: Lanes) -> Lanes:
    """cos(2 pi x)"""
    n = (x * 4.0).intrinsic("rint")
    r = n.times_plus(-0.25, x) * (4 * _HALF_PI)
    return _turned(n + 1.0, _sin_near(r, 0.0), _cos_near(r, 0.0))


# Inverse trigonometric functions


_ATAN = (
    0.016284375050043393, -0.03456931506332609, 0.045515447340221615, -0.05230443640686948, 0.05878927554473807,
    -0.0666642476020052, 0.07692296368042296, -0.09090908753259112, 0.11111111105150588, -0.14285714285659779,
    0.19999999999999804, -0.3333333333333333,
)  # fmt: skip


def _atan(x: Lanes) -> Lanes:
    """By the arc of -1 / x beyond tan(3 pi / 8), of (x - 1) / (x + 1) beyond tan(pi / 8)."""
    size = abs(x)
    large, middle = size > 2.414213562373095, size > 0.41421356237309503
    top = large.then(x.like(-1.0), middle.then(size - 1.0, size))
    t = top / large.then(size, middle.then(size + 1.0, 1.0))
    z = t * t
    share = large.then(x.like(1.0), middle.then(x.like(0.5), 0.0))
    rest = (t * z).times_plus(z.polynomial(_ATAN), share * _HALF_PI_ERROR)
    return (share * _HALF_PI + (t + rest)).signed_as(x)


def _atan2(y: Lanes, x: Lanes) -> Lanes:
    """The angle of the point (x, y); zeros and infinities as C has them."""
    width, height = abs(x), abs(y)
    steep = height > width
    low, high = steep.then(width, height), steep.then(height, width)
    ratio = low.equals(high).then(low.like(1.0), low / high)
    near = _atan(low.equals(0.0).then(low, ratio))
    angle = steep.then(_HALF_PI - (near - _HALF_PI_ERROR), near)
    left = x.has_sign()
    angle = left.then(2 * _HALF_PI - (angle - 2 * _HALF_PI_ERROR), angle)
    angle = x.is_nan().then(x, y.is_nan().then(y, angle))
    return angle.signed_as(y)


# Hyperbolic functions


def _sinh(x: Lanes) -> Lanes:
    size = abs(x)
    t, half = _expm1(size), _exp(size, shift=-1.0)
    y = (size < 1.0).then((t + t / (t + 1.0)) * 0.5, half - 0.25 / half)
    return y.signed_as(x)


def _cosh(x: Lanes) -> Lanes:
    half = _exp(abs(x), shift=-1.0)
    return half + 0.25 / half


def _tanh(x: Lanes) -> Lanes:
    t = _expm1(_clamped(abs(x), 0.0, 20.0) * 2.0)
    return x.is_nan().then(x, (t / (t + 2.0)).signed_as(x))


def _asinh(x: Lanes) -> Lanes:
    size = abs(x)
    square = size * size
    near = _log1p(size + square / ((square + 1.0).intrinsic("sqrt") + 1.0))
    return (size > 2.0**28).then(_log(size) + _LOG2, near).signed_as(x)


def _acosh(x: Lanes) -> Lanes:
    t = x - 1.0
    near = _log1p(t + (t * (x + 1.0)).intrinsic("sqrt"))
    y = (x > 2.0**28).then(_log(x) + _LOG2, near)
    return (x < 1.0).then(x.like(_NAN), y)


def _atanh(x: Lanes) -> Lanes:
    size = abs(x)
    return (_log1p(size * 2.0 / (1.0 - size)) * 0.5).signed_as(x)


# Powers


def _exact_log(x: Lanes) -> tuple[Lanes, Lanes]:
    """log(x) with its error, to 68 bits: the series of 2 artanh(f / (2 + f)) with twice the digits at its start."""
    k, m = _log_reduced(x)
    f = m - 1.0
    bottom = m + 1.0
    s = f / bottom
    s_low = (s.times_plus(-bottom, f) - s * (m - (bottom - 1.0))) / bottom
    z = s * s
    z_low = s.times_plus(s, -z) + s * s_low * 2.0
    factor, factor_low = _sum(x.like(2 / 3), z * z.polynomial([2 / n for n in range(23, 3, -2)]))
    factor_low = factor_low + 3.700743415417188e-17
    cube = s * z
    cube_low = s.times_plus(z, -cube) + (s * z_low + s_low * z)
    term = cube * factor
    term_low = cube.times_plus(factor, -term) + (cube * factor_low + cube_low * factor)
    total, error = _sum(k * _LOG2_SHORT, s * 2.0)
    total, more = _sum(total, term)
    return _sum(total, error + (more + (s_low * 2.0 + term_low + k * _LOG2_REST)))


def _power_of(x: Lanes, y: Lanes, magnitude: Lanes) -> Lanes:
    """x^y from |x|^y, as C has it."""
    negative = x.has_sign()
    integral, half = y.intrinsic("floor").equals(y), y * 0.5
    odd = integral & ~half.intrinsic("floor").equals(half)
    value = (odd & negative).then(-magnitude, magnitude)
    value = ((x < 0.0) & (x > -_INF) & ~integral).then(x.like(_NAN), value)
    value = x.is_nan().then(x, y.is_nan().then(y, value))
    unit = x.equals(1.0) | y.equals(0.0) | (x.equals(-1.0) & abs(y).equals(_INF))
    return unit.then(x.like(1.0), value)


def _pow(x: Lanes, y: Lanes) -> Lanes:
    size = abs(x)
    logarithm, error = _exact_log(size)
    product = y * logarithm
    rest = y.times_plus(logarithm, -product) + y * error
    bounded = abs(product) < 800.0
    usual = _exp(product, error=bounded.then(rest, 0.0))
    return _power_of(x, y, (size.equals(0.0) | size.equals(_INF)).then(_exp(y * _log(size)), usual))


def _short_pow(x: Lanes, y: Lanes) -> Lanes:
    """For numbers that came from float32: the logarithm has digits enough."""
    return _power_of(x, y, _exp(y * _log(abs(x))))


# The normal distribution

_ROOT_HALF = 0.7071067811865476
_ERF = (
    -8.493614638206203e-10, 1.4051319281278355e-08, -1.627649674520215e-07, 1.645532564924694e-06,
    -1.4925307337159171e-05, 0.00012055321374349772, -0.000854832676425319, 0.005223977621766896, -0.0268661706448234,
    0.11283791670953792, -0.3761263890318373, 0.1283791670955126,
)  # fmt: skip
_TAIL = (
    -6.184193696017593e-09, -1.601440567239257e-08, 9.618367379047898e-08, 7.530940249935539e-08,
    -8.133914846050707e-07, 2.917993730726046e-07, 5.7035784122167e-06, -1.1220676682580852e-05,
    -2.4397223686513387e-05, 0.000150621203586566, -0.00019925711093291104, -0.0007577731921086962,
    0.0050319700335802, -0.016197734069523118, 0.0371675155329566, -0.06633036581140543, 0.0937328349985542,
    -0.10103906603633295, 0.06809705425468841, 0.015379652102620135, -0.1396211168405625, 1.2329951186255526,
)  # fmt: skip


def _erf_near(x: Lanes) -> Lanes:
    return x.times_plus((x * x).polynomial(_ERF), x)


def _tail(t: Lanes, x: Lanes, factor: float) -> Lanes:
    """erfc(t) for t = x sqrt(factor) from 0.9 to 28, by exp(t^2) erfc(t) (1 + 2 t) in (t - 4) / (t + 4)."""
    square = x * x
    error = x.times_plus(x, -square)
    share = ((t - 4.0) / (t + 4.0)).polynomial(_TAIL) / (t * 2.0 + 1.0)
    return _exp(square * -factor, error=error * -factor) * share


def _erf(x: Lanes) -> Lanes:
    t = _clamped(abs(x), 0.9, 28.0)
    far = (1.0 - _tail(t, t, 1.0)).signed_as(x)
    return x.is_nan().then(x, (abs(x) < 0.9).then(_erf_near(x), far))


def _erfc(x: Lanes) -> Lanes:
    t = _clamped(abs(x), 0.9, 28.0)
    tail = _tail(t, t, 1.0)
    return x.is_nan().then(x, (abs(x) < 0.9).then(1.0 - _erf_near(x), (x < 0.0).then(2.0 - tail, tail)))


def _below(x: Lanes) -> Lanes:
    """The cumulative distribution function of the normal distribution: erfc(-x / sqrt 2) / 2."""
    size = _clamped(abs(x), 1.272, 39.5)
    tail = _tail(size * _ROOT_HALF, size, 0.5)
    far = (x < 0.0).then(tail, 2.0 - tail)
    near = 1.0 - _erf_near(x * -_ROOT_HALF)
    return x.is_nan().then(x, (abs(x) < 1.272).then(near, far) * 0.5)


def _gelu_erf(x: Lanes) -> Lanes:
    x = (x < -40.0).then(x.like(-40.0), x)
    return x * _below(x)


def _gelu_erf_slope(x: Lanes) -> Lanes:
    bounded = _clamped(x, -40.0, 40.0)
    return bounded.times_plus(_exp(bounded * bounded * -0.5) * 0.3989422804014327, _below(x))


_SCALE, _CUBE = 0.7978845608028654, 0.044715


def _gelu_share(x: Lanes) -> Lanes:
    """(1 + tanh(u)) / 2 = sigmoid(2 u) with u = sqrt(2 / pi) (x + 0.044715 x^3)"""
    return _sigmoid((x * x * _CUBE + 1.0) * x * (2 * _SCALE))


def _gelu_tanh_slope(x: Lanes) -> Lanes:
    x = _clamped(x, -30.0, 30.0)
    share = _gelu_share(x)
    steep = (x * x * (3 * _CUBE) + 1.0) * (2 * _SCALE)
    return (x * steep * share).times_plus(1.0 - share, share)


def _sigmoid(x: Lanes) -> Lanes:
    """1 / (1 + exp(-x)), as exp(-|x|) so that nothing overflows."""
    small = _exp(-abs(x))
    return (x < 0.0).then(small, 1.0) / (small + 1.0)


def _softplus(x: Lanes) -> Lanes:
    """log(1 + exp(x))"""
    return (x < 0.0).then(x.like(0.0), x) + _log1p(_exp(-abs(x)))


#: By the names that ``float32_math`` uses.
FUNCTIONS: Mapping[str, Callable[..., Lanes]] = {
    "acos": lambda x: _atan(((1.0 - x) / (x + 1.0)).intrinsic("sqrt")) * 2.0,
    "acosh": _acosh,
    "asin": lambda x: _atan(x / ((1.0 - x) * (x + 1.0)).intrinsic("sqrt")),
    "asinh": _asinh,
    "atan": _atan,
    "atan2": _atan2,
    "atanh": _atanh,
    "cos": _cos,
    "cos_of_turns": _cos_of_turns,
    "cosh": _cosh,
    "erf": _erf,
    "erfc": _erfc,
    "exp": _exp,
    "exp_falling": _exp,
    "expm1": _expm1,
    "expm1_falling": _expm1,
    "gelu_erf": _gelu_erf,
    "gelu_erf_slope": _gelu_erf_slope,
    "gelu_tanh": lambda x: x * _gelu_share(x),
    "gelu_tanh_slope": _gelu_tanh_slope,
    "log": _log,
    "log10": lambda x: _log(x) * 0.4342944819032518,
    "log1p": _log1p,
    "log2": lambda x: _log(x) * 1.4426950408889634,
    "pow": _pow,
    "short_pow": _short_pow,
    "sigmoid": _sigmoid,
    "sin": _sin,
    "sinh": _sinh,
    "softplus": _softplus,
    "tan": _tan,
    "tanh": _tanh,
}
