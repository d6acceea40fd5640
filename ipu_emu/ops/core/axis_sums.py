"""Axis sums: the sum of an array along some of its axes, in one order on every processor.

FLOAT and DOUBLE in their own type, FLOAT16 in float32; axes in the order of memory, the innermost first:

    of neighbours    blocks of 4,096 as row passes sum them; the sums of blocks likewise
    of other axes    rows added in ascending order

    x [N, C, H, W] along N, H and W, stored [C, H, W, N]      a row of H W N neighbours for each channel
                                     stored [N, C, H, W]      rows of H W neighbours, then N rows of C sums

Sums of integers are exact.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import groupby
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ipu_emu.ops.core.kernel_helpers import view
from ipu_emu.ops.core.op_definition import Call, call_chain
from ipu_emu.ops.core.row_kernels import column_sums, row_sums

_Array = NDArray[Any]
_Axes = Sequence[int] | None

#: Longer rows are summed in blocks of this size, so that rounding errors grow with the square root of the length.
_BLOCK = 4096


def sum_of(x: _Array, axes: _Axes = None) -> _Array:
    """The sum of ``x`` along ``axes``, all by default, as a new array without them."""
    total = np.empty([size for axis, size in enumerate(x.shape) if axis not in _all(x, axes)], x.dtype)
    axis_sum(x, total, axes)()
    return total


def mean_of(x: _Array, axes: _Axes = None) -> _Array:
    """The mean of ``x`` along ``axes``, all by default, summed in DOUBLE and rounded once."""
    total = sum_of(x.astype(np.float64), axes)
    mean: _Array = (total / (x.size / max(total.size, 1))).astype(x.dtype)
    return mean


def folded(combine: Any, x: _Array, axes: _Axes = None) -> _Array:
    """``combine``, a ufunc, along ``axes``: element i with i + n/2, rounded up, until one is left."""
    axes = _all(x, axes)
    order = [*axes, *(axis for axis in range(x.ndim) if axis not in axes)]
    shape = [x.shape[axis] for axis in order[len(axes) :]]
    left = np.array(x.transpose(order)).reshape(prod(x.shape[axis] for axis in axes), *shape)
    if not len(left):
        return np.full(shape, combine.identity, x.dtype)
    for step in folding(combine, left):
        step()
    first: _Array = left[0]
    return first


def folding(combine: Any, left: _Array) -> list[Call]:
    """The calls that set ``left[0]`` to the result of ``combine`` along the first axis, as ``folded`` orders it."""
    steps: list[Call] = []
    count = len(left)
    while count > 1:
        half = -(-count // 2)
        pairs = left[: count - half]
        steps.append(partial(combine, pairs, left[half:count], pairs))
        count = half
    return steps


def axis_sum(x: _Array, y: _Array, axes: _Axes = None) -> Call:
    """The call that sets ``y`` to the sum of ``x`` along ``axes``, all by default.

    ``y`` has the axes that stay, or all axes, with one element along the others.
    """
    axes = _all(x, axes)
    if y.ndim == x.ndim:
        y = y[(*(0 if axis in axes else slice(None) for axis in range(x.ndim)), ...)]
    if x.dtype.kind != "f":
        return partial(np.add.reduce, x, axes, None, y)
    if not x.size:
        return partial(y.fill, 0)
    return call_chain(*_passes(x, axes, y))


def _all(x: _Array, axes: _Axes) -> tuple[int, ...]:
    return tuple(range(x.ndim)) if axes is None else tuple(axis % x.ndim for axis in axes)


def _passes(x: _Array, axes: Sequence[int], y: _Array) -> list[Call]:
    """The passes of a sum of floats, of which there is at least one."""
    order = sorted(range(x.ndim), key=lambda axis: (-abs(x.strides[axis]), axis))
    values, steps = _in_order(x.transpose(order))
    kind = np.float64 if x.dtype == np.float64 else np.float32
    stay = [axis for axis in order if axis not in axes]
    turned = y.transpose([sorted(stay).index(axis) for axis in stay])
    runs = groupby([axis for axis in order if x.shape[axis] > 1], key=lambda axis: axis in axes)
    sizes = [(summed, prod(x.shape[axis] for axis in run)) for summed, run in runs]
    while any(summed for summed, _ in sizes):
        summed, columns = sizes.pop()
        rows = 1 if summed else sizes.pop()[1]
        left = values.size // (columns if summed else rows)
        ends = left == y.size and y.dtype == kind and turned.flags.c_contiguous
        sums = view(turned, (left,)) if ends else np.empty(left, kind)
        if summed:
            steps += _row_sums(values, sums, left, columns)
        else:
            steps += [partial(sums.fill, 0), column_sums(values, sums, rows, columns, left // columns)]
            sizes.append((False, columns * (sizes.pop()[1] if sizes else 1)))
        values = sums
    if not np.shares_memory(values, y):
        steps.append(partial(np.copyto, turned, values.reshape(turned.shape), casting="same_kind"))
    return steps


def _in_order(stored: _Array) -> tuple[_Array, list[Call]]:
    """The elements of ``stored`` as neighbours in memory, and the calls that copy them there."""
    if stored.flags.c_contiguous:
        return view(stored, (stored.size,)), []
    copy = np.empty(stored.shape, stored.dtype)
    return copy.reshape(-1), [partial(np.copyto, copy, stored)]


def _row_sums(x: _Array, y: _Array, rows: int, columns: int) -> list[Call]:
    """The calls that set ``y`` [rows] to the sums of the rows of ``x``."""
    if columns <= _BLOCK:
        return [row_sums(x, y, rows, columns)]
    blocks, left = divmod(columns, _BLOCK)
    lines, sums = view(x, (rows, columns)), np.empty((rows, blocks + bool(left)), y.dtype)
    matrices = view(lines[:, : columns - left], (rows, blocks, _BLOCK))
    steps = [row_sums(matrices, sums[:, :blocks], blocks, _BLOCK, rows)]
    if left:
        steps.append(row_sums(lines[:, None, columns - left :], sums[:, blocks:], 1, left, rows))
    return [*steps, *_row_sums(sums, y, rows, sums.shape[1])]
