"""half: conversion between IEEE binary16 and float32 inside compiled kernels.

numba has no float16 on CPUs, so half arrays travel as their uint16 view and are converted element by element;
the loops vectorise to F16C instructions where the processor has them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types

from gcl.jit import intrinsic, jit

__all__ = ["float_of_half", "float_to_half", "half_of_float", "half_to_float"]

_HALF, _FLOAT, _INT16 = ir.HalfType(), ir.FloatType(), ir.IntType(16)


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
