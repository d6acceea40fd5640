"""Half precision: conversion between the half types (float16, bfloat16) and float32 inside compiled kernels.

numba supports neither on CPUs, so kernels take arrays as views of their bits (uint16 for float16, int16 for bfloat16)
and convert each element; the loops vectorise, to F16C instructions if the processor has them.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir

_HALF, _FLOAT, _INT16, _INT32 = ir.HalfType(), ir.FloatType(), ir.IntType(16), ir.IntType(32)


def widen_half(builder: Any, bits: Any) -> Any:
    """float32 value of the half with these 16 bits (exact)."""
    return builder.fpext(builder.bitcast(bits, _HALF), _FLOAT)


def narrow_half(builder: Any, value: Any) -> Any:
    """16 bits of the half nearest to a float32, ties to even."""
    return builder.bitcast(builder.fptrunc(value, _HALF), _INT16)


def widen_bfloat(builder: Any, bits: Any) -> Any:
    """float32 value of the bfloat16 with these 16 bits (exact: they are its upper half)."""
    return builder.bitcast(builder.shl(builder.zext(bits, _INT32), _INT32(16)), _FLOAT)


def narrow_bfloat(builder: Any, value: Any) -> Any:
    """16 bits of the bfloat16 nearest to a float32, ties to even; NaN stays NaN."""
    bits = builder.bitcast(value, _INT32)
    odd = builder.and_(builder.lshr(bits, _INT32(16)), _INT32(1))
    rounded = builder.lshr(builder.add(bits, builder.add(odd, _INT32(0x7FFF))), _INT32(16))
    quiet = builder.or_(builder.lshr(bits, _INT32(16)), _INT32(0x40))
    is_nan = builder.fcmp_unordered("uno", value, value)
    return builder.trunc(builder.select(is_nan, quiet, rounded), _INT16)
