"""Columns: the windows of a block of output rows, gathered into a matrix, and the adjoint of that."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from gcl.kernels.jit import jit

__all__ = ["add_bias", "gather", "inside", "scatter"]


@jit
def gather(
    x: NDArray[Any],
    columns: NDArray[Any],
    height: int,
    batch: int,
    rows: int,
    first: int,
    kh: int,
    kw: int,
    sh: int,
    sw: int,
    ph: int,
    pw: int,
    dh: int,
    dw: int,
) -> None:
    """columns[c, i, j, row, w, n] = x[c, (first + row) sh - ph + i dh, w sw - pw + j dw, n], 0 outside x.

    x is [C H, W N]; columns is [C kh kw rows, OW N]: a line of either is a line of the image for the whole batch.
    """
    in_width, width = x.shape[1] // batch, columns.shape[1] // batch
    for line in range(columns.shape[0]):
        k = line // rows
        y = (first + line % rows) * sh - ph + k // kw % kh * dh
        shift = k % kw * dw - pw
        low, high = inside(in_width, width, sw, shift)
        out = columns[line]
        if y < 0 or y >= height or high <= low:
            out[:] = 0
            continue
        source = x[k // (kh * kw) * height + y]
        out[: low * batch] = 0
        out[high * batch :] = 0
        run = (high - low) * batch if sw == 1 else batch
        for w in range(low, low + 1 if sw == 1 else high):
            target = out[w * batch : w * batch + run]
            part = source[(w * sw + shift) * batch : (w * sw + shift) * batch + run]
            for n in range(run):
                target[n] = part[n]


@jit
def scatter(
    columns: NDArray[Any],
    x: NDArray[Any],
    height: int,
    batch: int,
    rows: int,
    first: int,
    kh: int,
    kw: int,
    sh: int,
    sw: int,
    ph: int,
    pw: int,
    dh: int,
    dw: int,
) -> None:
    """The adjoint of ``gather``: add every column entry to the element of x that it was taken from."""
    in_width, width = x.shape[1] // batch, columns.shape[1] // batch
    for line in range(columns.shape[0]):
        k = line // rows
        y = (first + line % rows) * sh - ph + k // kw % kh * dh
        shift = k % kw * dw - pw
        low, high = inside(in_width, width, sw, shift)
        if y < 0 or y >= height or high <= low:
            continue
        target = x[k // (kh * kw) * height + y]
        run = (high - low) * batch if sw == 1 else batch
        for w in range(low, low + 1 if sw == 1 else high):
            source = columns[line, w * batch : w * batch + run]
            part = target[(w * sw + shift) * batch : (w * sw + shift) * batch + run]
            for n in range(run):
                part[n] += source[n]


@jit
def inside(in_width: int, width: int, stride: int, shift: int) -> tuple[int, int]:
    """Output positions [low, high) whose input position w stride + shift lies in [0, in_width)."""
    low = 0 if shift >= 0 else -(shift // stride)
    high = (in_width - 1 - shift) // stride + 1 if in_width > shift else 0
    return min(low, width), min(high, width)


@jit
def add_bias(y: NDArray[Any], bias: NDArray[Any]) -> None:
    """Add ``bias`` [M] to the rows of ``y`` [M, n]."""
    for m in range(y.shape[0]):
        b = bias[m]
        for i in range(y.shape[1]):
            y[m, i] += b
