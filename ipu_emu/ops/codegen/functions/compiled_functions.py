"""Compiled functions: the functions for code that numba compiles, with the same bits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gcl.kernels.jit import intrinsic, part
from ipu_emu.ops.codegen.functions.float32_math import DOUBLE_FUNCTIONS, FUNCTIONS
from ipu_emu.ops.codegen.llvm_builder import Emitter


def _emitted(name: str, x: Any) -> tuple[Any, Callable[..., Any]] | None:
    """The signature of a function of one number and the function that appends it; None unless it is a float."""
    table = {"float32": FUNCTIONS, "float64": DOUBLE_FUNCTIONS}.get(str(x))
    if table is None:
        return None
    emit = table[name]
    return x(x), lambda context, builder, signature, values: emit(Emitter(builder), *values)


@intrinsic
def exp(typing: Any, x: Any) -> Any:
    return _emitted("exp", x)


@intrinsic
def log(typing: Any, x: Any) -> Any:
    return _emitted("log", x)


@intrinsic
def log1p(typing: Any, x: Any) -> Any:
    return _emitted("log1p", x)


@intrinsic
def cos_of_turns(typing: Any, x: Any) -> Any:
    """cos(2 pi x)"""
    return _emitted("cos_of_turns", x)


@part
def whole_power(x: float, n: int) -> float:
    """x^n for n >= 0 by squaring, in double precision."""
    power = 1.0
    while n > 0:
        if n % 2:
            power *= x
        x *= x
        n //= 2
    return power
