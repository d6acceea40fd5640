"""half: conversion between the half types (float16, bfloat16) and float32 inside compiled kernels.

numba has neither on CPUs, so arrays travel as a view of their bits (uint16 for float16, int16 for bfloat16) and are
converted element by element; the loops vectorise, to F16C instructions where the processor has them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types

from gcl.jit import intrinsic, jit

__all__ = ["bfloat_of_float", "float_of_bfloat", "float_of_half", "float_to_half", "half_of_float", "half_to_float"]

_HALF, _FLOAT, _INT16, _INT32 = ir.HalfType(), ir.FloatType(), ir.IntType(16), ir.IntType(32)


@intrinsic
def float_of_half(typing_context: Any, bits: Any) -> Any:
    """float32 value of the half with these 16 bits (exact)."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.fpext(builder.bitcast(arguments[0], _HALF), _FLOAT)

    return types.float32(types.uint16), codegen


@intrinsic
def half_of_float(typing_context: Any, value: Any) -> Any:
    """16 bits of the half nearest to a float32, ties to even."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(builder.fptrunc(arguments[0], _HALF), _INT16)

    return types.uint16(types.float32), codegen


@intrinsic
def float_of_bfloat(typing_context: Any, bits: Any) -> Any:
    """float32 value of the bfloat16 with these 16 bits (exact: they are its upper half)."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        wide = builder.shl(builder.zext(arguments[0], _INT32), _INT32(16))
        return builder.bitcast(wide, _FLOAT)

    return types.float32(types.int16), codegen


@intrinsic
def bfloat_of_float(typing_context: Any, value: Any) -> Any:
    """16 bits of the bfloat16 nearest to a float32, ties to even; NaN stays NaN."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        bits = builder.bitcast(arguments[0], _INT32)
        odd = builder.and_(builder.lshr(bits, _INT32(16)), _INT32(1))
        rounded = builder.lshr(builder.add(bits, builder.add(odd, _INT32(0x7FFF))), _INT32(16))
        quiet = builder.or_(builder.lshr(bits, _INT32(16)), _INT32(0x40))
        is_nan = builder.fcmp_unordered("uno", arguments[0], arguments[0])
        return builder.trunc(builder.select(is_nan, quiet, rounded), _INT16)

    return types.int16(types.float32), codegen


@jit
def half_to_float(bits: np.ndarray, out: np.ndarray) -> None:
    """Widen ``bits`` (uint16 [n], a view of float16) into ``out`` (float32 [n])."""
    for i in range(out.size):
        out[i] = float_of_half(bits[i])


@jit
def float_to_half(values: np.ndarray, out: np.ndarray) -> None:
    """Round ``values`` (float32 [n]) into ``out`` (uint16 [n], a view of float16), ties to even."""
    for i in range(out.size):
        out[i] = half_of_float(values[i])
