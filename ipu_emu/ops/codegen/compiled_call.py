"""Compiled call: a compiled kernel bound to its arguments, which it keeps alive."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import partial
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ipu_emu.ops.codegen.llvm_compiler import Function
from ipu_emu.ops.codegen.panel_packing import BLOCK, squares
from ipu_emu.ops.codegen.strided_copy import relocate

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


def turned_relocation(source: NDArray[Any], target: NDArray[Any]) -> partial[None] | None:
    """The call that copies ``source`` to ``target`` by transposing matrices.

    None unless both are float32, and neighbours in one and in the other are of different axes.

    Rows of the matrix are neighbours in the target, columns in the source; each may be of several axes.

    images [N, H, W, C] to [C, H, W, N]      rows N, W, H      columns C
    """
    if not source.size:
        return None
    axes = [axis for axis in range(source.ndim) if source.shape[axis] > 1]
    rows, columns = ([axis for axis in axes if array.strides[axis] == 4][:1] for array in (target, source))
    if {source.dtype, target.dtype} != {np.dtype(np.float32)} or not rows or not columns or rows == columns:
        return None
    rest = [axis for axis in axes if axis not in (*rows, *columns)]
    for run, array, enough in ((rows, target, BLOCK), (columns, source, BLOCK), (rows, target, source.size)):
        following = [0]
        while following and _size(source, run) < enough:
            wanted = 4 * _size(source, run)
            following = [axis for axis in rest if array.strides[axis] == wanted][:1]
            run += following
            rest = [axis for axis in rest if axis not in following]
    if min(_size(source, rows), _size(source, columns)) < BLOCK or len(rest) > 2:
        return None
    tables = _places(source, rows), _places(target, columns)
    outer = [(source.shape[axis], source.strides[axis], target.strides[axis]) for axis in rest]
    sizes, froms, tos = zip(*[*outer, *[(1, 0, 0)] * (2 - len(rest))], strict=True)
    return call(squares(), source, target, *tables, *map(len, tables), *sizes, *froms, *tos)


def _size(array: NDArray[Any], axes: Sequence[int]) -> int:
    return prod(array.shape[axis] for axis in axes)


def _places(array: NDArray[Any], axes: Sequence[int]) -> NDArray[np.int64]:
    """The offsets in ``array`` along ``axes``, the first of which runs fastest."""
    total = np.zeros(1, np.int64)
    for axis in axes:
        total = (np.arange(array.shape[axis])[:, None] * array.strides[axis] + total).reshape(-1)
    return offsets(total)
