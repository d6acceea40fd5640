"""Sorting kernels: order the elements of rows; x is [outer, n, inner], and its rows run along n.

In an order, NaN is larger than all numbers, as in numpy and PyTorch.
"""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from gcl.kernels.jit import jit, part


@part
def _before(a: Any, b: Any, largest: bool) -> Any:
    """Whether ``a`` must come before ``b``; False for equal elements."""
    if largest:
        return a > b or (a != a and b == b)
    return a < b or (b != b and a == a)


@part
def _beats(a: Any, b: Any, largest: bool) -> Any:
    """Whether ``a`` is a better extreme than ``b``: NaN beats all numbers."""
    return (a > b if largest else a < b) or (a != a and b == b)


@jit
def extremes(x: NDArray[Any], out: NDArray[Any], largest: bool, last: bool) -> None:
    """out [outer, inner] = index of the extreme of each row, which NaN is; ties: the first, or the ``last``."""
    for o in range(x.shape[0]):
        for i in range(x.shape[2]):
            best = 0
            for j in range(1, x.shape[1]):
                if _beats(x[o, j, i], x[o, best, i], largest) or (
                    last and not _beats(x[o, best, i], x[o, j, i], largest)
                ):
                    best = j
            out[o, i] = best


@jit
def mark_largest(x: NDArray[Any], out: NDArray[Any]) -> None:
    """out = 1 at the first largest element of each row of x [rows, n], else 0."""
    for r in range(x.shape[0]):
        best = 0
        for j in range(x.shape[1]):
            out[r, j] = 0
            if _before(x[r, j], x[r, best], True):
                best = j
        if x.shape[1]:
            out[r, best] = 1


@jit
def sort_rows(x: NDArray[Any], room: NDArray[Any], values: NDArray[Any], places: NDArray[Any], largest: bool) -> None:
    """Write the first k elements of each sorted row and their indices to ``values`` and ``places`` [outer, k, inner].

    A stable merge sort of runs of 1, 2, 4, ... elements; ``room`` is scratch, [2, n] of int32.
    """
    n = x.shape[1]
    for o in range(x.shape[0]):
        for i in range(x.shape[2]):
            for j in range(n):
                room[0, j] = j
            source, target, width = 0, 1, 1
            while width < n:
                for start in range(0, n, 2 * width):
                    middle, end = min(start + width, n), min(start + 2 * width, n)
                    a, b = start, middle
                    for j in range(start, end):
                        second = a == middle or (
                            b < end and _before(x[o, room[source, b], i], x[o, room[source, a], i], largest)
                        )
                        if second:
                            room[target, j] = room[source, b]
                            b += 1
                        else:
                            room[target, j] = room[source, a]
                            a += 1
                source, target, width = target, source, 2 * width
            for j in range(values.shape[1]):
                values[o, j, i] = x[o, room[source, j], i]
                places[o, j, i] = room[source, j]
