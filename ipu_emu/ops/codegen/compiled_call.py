"""Compiled call: a compiled kernel bound to its arguments, which it keeps alive."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ipu_emu.ops.codegen.llvm_compiler import Function
from ipu_emu.ops.codegen.strided_copy import relocate

__all__ = ["Argument", "Call", "call", "named_call", "offsets", "relocation"]

#: One prepared call: reads and writes arrays that it already holds, and allocates nothing.
Call = Callable[[], object]
#: An argument of a kernel: a number, or an array, of which the address is passed.
Argument = NDArray[Any] | int | None


def call(function: Function, *arguments: Argument) -> partial[None]:
    """Bind ``function`` to its arguments; the call allocates nothing."""
    values = [value.ctypes.data if isinstance(value, np.ndarray) else int(value or 0) for value in arguments]
    table = (ctypes.c_int64 * len(values))(*values)
    bound = partial(function, table)
    vars(bound)["arrays"] = [value for value in arguments if isinstance(value, np.ndarray)]
    return bound


def named_call(function: Function, names: Sequence[str], **arguments: Argument) -> partial[None]:
    """Bind ``function`` by the names of its arguments."""
    assert len(arguments) == len(names), set(arguments) ^ set(names)
    return call(function, *[arguments[name] for name in names])


def offsets(values: Any) -> NDArray[np.int64]:
    """A table of byte offsets."""
    return np.ascontiguousarray(np.asarray(values, np.int64).reshape(-1))


def relocation(source: NDArray[Any], target: NDArray[Any]) -> partial[None]:
    """The call that copies ``source`` to ``target`` of the same shape, at most 4 axes, float32 or half."""
    assert source.shape == target.shape
    assert source.ndim <= 4
    lead = 4 - source.ndim
    axes = sorted(range(source.ndim), key=lambda axis: -target.strides[axis])
    source, target = source.transpose(axes), target.transpose(axes)
    if source.ndim == 0 or target.strides[-1] != target.itemsize:
        source, target = source[..., None], target[..., None]
        lead -= 1
    assert lead >= 0
    function = relocate(source.dtype == np.float16, target.dtype == np.float16, source.strides[-1] == source.itemsize)
    sizes = (1,) * lead + source.shape
    return call(function, source, target, *sizes, *(0,) * lead, *source.strides, *(0,) * lead, *target.strides)
