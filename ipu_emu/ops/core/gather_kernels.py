"""Gather kernels: reads and writes of single elements at indices along one axis; all arrays are [outer, n, inner].

A negative index counts from the end; an index out of range is clamped.
"""

from __future__ import annotations

from functools import partial
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gcl.kernels.jit import jit, part

#: The way in which a new element is combined with the one at its index.
SCATTER_REDUCTIONS = {"none": 0, "add": 1, "sum": 1, "mul": 2, "max": 3, "min": 4}


def along(array: NDArray[Any], axis: int) -> NDArray[Any]:
    """``array`` (C-contiguous) as [outer, n, inner]."""
    return array.reshape(prod(array.shape[:axis]), array.shape[axis], prod(array.shape[axis + 1 :]))


def broadcast_along(indices: NDArray[Any], shape: tuple[int, ...], axis: int) -> NDArray[Any] | None:
    """``indices``, which broadcast to ``shape``, as [outer, n, inner]; None if no strided view has this shape."""
    rows = along(indices, axis)
    wanted = (prod(shape[:axis]), shape[axis], prod(shape[axis + 1 :]))
    if any(length not in (1, size) for length, size in zip(rows.shape, wanted, strict=True)):
        return None
    strides = tuple(0 if n == 1 else stride for n, stride in zip(rows.shape, rows.strides, strict=True))
    return np.lib.stride_tricks.as_strided(rows, wanted, strides)


@part
def _place(index: Any, size: Any) -> Any:
    place = np.int64(index)
    if place < 0:
        place += size
    return min(max(place, 0), size - 1)


@jit
def take_elements(x: NDArray[Any], indices: NDArray[Any], out: NDArray[Any]) -> None:
    """out[o, j, i] = x[o, indices[o, j, i], i]"""
    for o in range(out.shape[0]):
        for j in range(out.shape[1]):
            for i in range(out.shape[2]):
                out[o, j, i] = x[o, _place(indices[o, j, i], x.shape[1]), i]


@jit
def put_elements(indices: NDArray[Any], updates: NDArray[Any], out: NDArray[Any], way: int) -> None:
    """Combine out[o, indices[o, j, i], i] with updates[o, j, i], in order."""
    for o in range(updates.shape[0]):
        for j in range(updates.shape[1]):
            for i in range(updates.shape[2]):
                place, new = _place(indices[o, j, i], out.shape[1]), updates[o, j, i]
                old = out[o, place, i]
                if way == 1:
                    out[o, place, i] = old + new
                elif way == 2:
                    out[o, place, i] = old * new
                elif way == 0 or new != new or (way == 3 and new > old) or (way == 4 and new < old):
                    out[o, place, i] = new


@jit
def zero_unindexed(indices: NDArray[Any], reached: NDArray[Any], out: NDArray[Any]) -> None:
    """Zero the elements of ``out`` that no index refers to; ``reached`` is scratch with a bit per element."""
    reached[:] = False
    for o in range(indices.shape[0]):
        for j in range(indices.shape[1]):
            for i in range(indices.shape[2]):
                reached[o, _place(indices[o, j, i], out.shape[1]), i] = True
    for o in range(out.shape[0]):
        for j in range(out.shape[1]):
            for i in range(out.shape[2]):
                if not reached[o, j, i]:
                    out[o, j, i] = 0


def added_rows(g: NDArray[Any], indices: NDArray[Any], out: NDArray[Any], axis: int) -> partial[None]:
    """The call that sets ``out`` to the sums of the rows of ``g`` along ``axis`` with the same index."""
    rows = along(out, axis)
    return partial(add_rows, g.reshape(len(rows), indices.size, rows.shape[2]), indices.reshape(-1), rows)


@jit
def add_rows(g: NDArray[Any], indices: NDArray[Any], out: NDArray[Any]) -> None:
    """out[o, indices[i], :] += g[o, i, :] for g [outer, n, inner]; out starts at 0."""
    out[:] = 0
    count = out.shape[1]
    for o in range(g.shape[0]):
        for i in range(indices.size):
            row = indices[i] % count
            for k in range(g.shape[2]):
                out[o, row, k] += g[o, i, k]
