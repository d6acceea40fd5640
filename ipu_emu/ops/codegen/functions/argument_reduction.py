"""Argument reduction: a float64 angle as quarter turns and a rest, right for every float64.

Up to 2^30 the product with pi / 2, as a sum of three numbers, is subtracted. Larger angles, one at a time, are
multiplied as integers with those 192 bits of 2 / pi that matter (Payne and Hanek, 1983).
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from ipu_emu.ops.codegen.functions.lane_values import Lanes
from ipu_emu.ops.codegen.llvm_builder import DOUBLE, I32, I64, Emitter, const, repeat

#: pi / 2 as the sum of three numbers, largest first.
_HALF_PI = (1.5707963267948966, 6.123233995736766e-17, -1.4973849048591698e-33)
_LARGE = 2.0**30

#: 64 zero bits and the first 1280 bits of 2 / pi after the point.
_TWO_OVER_PI = (
    "0000000000000000a2f9836e4e441529fc2757d1f534ddc0db6295993c439041fe5163abdebbc561b7246e3a424dd2e006492eea09d1921c"
    "fe1deb1cb129a73ee88235f52ebb4484e99c7026b45f7e413991d639835339f49c845f8bbdf9283b1ff897ffde05980fef2f118b5a0a6d1f"
    "6d367ecf27cb09b74f463f669e5fea2d7527bac7ebe5f17b3d0739f78a5292ea6bfb5fb11f8d5d0856033046fc7b6babf0cfbc209af4361d"
)

#: Quarter turns modulo 4, rest, error of the rest.
_Turns = tuple[Lanes, Lanes, Lanes]


def quarter_turns(x: Lanes) -> _Turns:
    """(n, r, e) with x = n pi / 2 + r + e modulo 2 pi, |r| <= pi / 4 and e tiny; NaN for an infinite x."""
    small = _of_small(x)
    function = _corrected(x.k, x.value.type)
    results = x.k.b.call(function, [x.value, *(part.value for part in small)])
    n, r, error = (x.new(x.k.b.extract_value(results, place)) for place in range(3))
    return n, r, error


def _of_small(x: Lanes) -> _Turns:
    n = (x * 0.6366197723675814).intrinsic("rint")
    first = n.times_plus(-_HALF_PI[0], x)  # exact
    product = n * _HALF_PI[1]
    product_error = n.times_plus(_HALF_PI[1], -product)
    r = first - product
    back = r - first
    error = (first - (r - back)) - (product + back)
    return n, r, error - product_error - n * _HALF_PI[2]


def _corrected(k: Emitter, type: Any) -> Any:
    """The function (x, n, r, e) -> {n, r, e} that replaces the results of large lanes of x."""
    name = f"large_angles_{type.count if isinstance(type, ir.VectorType) else 1}"
    if name in k.module.globals:
        return k.module.globals[name]
    function = ir.Function(k.module, ir.FunctionType(ir.LiteralStructType([type] * 3), [type] * 4), name)
    function.linkage = "internal"
    start, large, end = (function.append_basic_block(name) for name in ("start", "large", "end"))
    inner = Emitter(ir.IRBuilder(start))
    x, *small = (Lanes(inner, argument) for argument in function.args)
    inner.b.cbranch(_any(_is_large(x)), large, end)
    inner.b.position_at_end(large)
    exact = _each_lane(x, small)
    last = inner.b.block
    inner.b.branch(end)
    inner.b.position_at_end(end)
    phis = [inner.b.phi(type) for _ in small]
    result = ir.Constant(function.ftype.return_type, ir.Undefined)
    for index, (phi, before, after) in enumerate(zip(phis, small, exact, strict=True)):
        phi.add_incoming(before.value, start)
        phi.add_incoming(after, last)
        result = inner.b.insert_value(result, phi, index)
    inner.b.ret(result)
    return function


def _is_large(x: Lanes) -> Lanes:
    return (abs(x) > _LARGE) & (abs(x) < float("inf"))


def _any(test: Lanes) -> Any:
    type = test.value.type
    if not isinstance(type, ir.VectorType):
        return test.value
    bits = ir.IntType(type.count)
    return test.k.b.icmp_unsigned("!=", test.k.b.bitcast(test.value, bits), ir.Constant(bits, 0))


def _each_lane(x: Lanes, small: list[Lanes]) -> list[Any]:
    b, type = x.k.b, x.value.type
    if not isinstance(type, ir.VectorType):
        return [part.value for part in _of_large(x)]

    def step(index: Any, carried: list[Any]) -> list[Any]:
        lane = b.trunc(index, I32)
        angle = x.new(b.extract_element(x.value, lane))
        size = _is_large(angle)
        exact = _of_large(size.then(angle, _LARGE))
        old = [x.new(b.extract_element(value, lane)) for value in carried]
        new = [size.then(part, before).value for part, before in zip(exact, old, strict=True)]
        return [b.insert_element(value, part, lane) for value, part in zip(carried, new, strict=True)]

    return repeat(b, const(type.count), [part.value for part in small], step)


def _of_large(x: Lanes) -> _Turns:
    """The product of the 53 bits of |x| with 192 bits of 2 / pi, of which the first is worth 2 quarter turns."""
    bits = abs(x).bits()
    place = (bits >> 52) - (1075 - 62)  # of that bit, in the table
    fraction = (bits & (2**52 - 1)) | 2**52
    high, middle, low = (_table_bits(place + 64 * index) for index in range(3))
    _, carry = _halves(x, _wide(fraction, low))
    over = x.k.b.add(_wide(fraction, middle), x.k.b.zext(carry.value, ir.IntType(128)))
    middle, carry = _halves(x, over)
    high = fraction * high + carry
    turns = (high + 2**61) >> 62
    return _signed(x, turns, high - (turns << 62), middle)


def _signed(x: Lanes, turns: Lanes, high: Lanes, low: Lanes) -> _Turns:
    """``turns`` and the fraction ``high``, ``low`` of a quarter turn as radians, with the sign of x."""
    b = x.k.b
    words = [
        b.ashr(high.value, const(32)), (high & 0xFFFFFFFF).value, (low >> 32).value, (low & 0xFFFFFFFF).value,
    ]  # fmt: skip
    a, *parts = (x.new(b.sitofp(word, DOUBLE)) * 2.0 ** (-30 - 32 * index) for index, word in enumerate(words))
    error = x.like(0.0)
    for part in parts:
        total = a + part
        error, a = error + (part - (total - a)), total
    r = a * _HALF_PI[0]
    rest = a.times_plus(_HALF_PI[0], -r) + (a * _HALF_PI[1] + error * _HALF_PI[0])
    n = x.new(b.uitofp(turns.value, DOUBLE))
    negative = x < 0.0
    first, second, third = (negative.then(-part, part) for part in (n, r, rest))
    return first, second, third


def _table_bits(place: Lanes) -> Lanes:
    """64 bits of the table from bit ``place`` on."""
    b, table = place.k.b, _table(place.k.module)
    word = (place >> 6).value
    first, second = (b.load(b.gep(table, [const(0), b.add(word, const(index))])) for index in (0, 1))
    return place.new(first).intrinsic("fshl", place.new(second), place & 63)


def _table(module: Any) -> Any:
    name = "two_over_pi"
    if name not in module.globals:
        words = [int(_TWO_OVER_PI[i : i + 16], 16) for i in range(0, len(_TWO_OVER_PI), 16)]
        type = ir.ArrayType(I64, len(words))
        table = ir.GlobalVariable(module, type, name)
        table.global_constant, table.linkage, table.initializer = True, "internal", ir.Constant(type, words)
    return module.globals[name]


def _wide(x: Lanes, y: Lanes) -> Any:
    wide = ir.IntType(128)
    return x.k.b.mul(x.k.b.zext(x.value, wide), x.k.b.zext(y.value, wide))


def _halves(x: Lanes, value: Any) -> tuple[Lanes, Lanes]:
    """The low and the high 64 bits."""
    b = x.k.b
    return x.new(b.trunc(value, I64)), x.new(b.trunc(b.lshr(value, ir.Constant(value.type, 64)), I64))
