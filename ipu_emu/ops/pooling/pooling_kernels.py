"""Pooling kernels: loops over windows; every tensor is [C H W, N], a line is one pixel for the whole batch."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from gcl.kernels.jit import jit

__all__ = ["average_pool", "average_pool_grad", "max_pool", "max_pool_grad"]

#: Sizes of an image and of the result, of windows, strides, padding before and dilations: (height, width) of each.
Numbers = tuple[int, ...]


@jit
def max_pool(x: NDArray[Any], y: NDArray[Any], numbers: Numbers) -> None:
    """Each line of y is the largest of the lines of x in its window; NaN wins."""
    height, width, out_height, out_width, kh, kw, sh, sw, ph, pw, dh, dw = numbers
    for line in range(y.shape[0]):
        c, h, w = line // (out_height * out_width), line // out_width % out_height, line % out_width
        best = y[line]
        best[:] = -np.inf
        for i in range(kh):
            for j in range(kw):
                u, v = h * sh - ph + i * dh, w * sw - pw + j * dw
                if 0 <= u < height and 0 <= v < width:
                    source = x[(c * height + u) * width + v]
                    for n in range(best.size):
                        value = source[n]
                        best[n] = value if (value > best[n]) | np.isnan(value) else best[n]


@jit
def max_pool_grad(
    g: NDArray[Any], x: NDArray[Any], y: NDArray[Any], dx: NDArray[Any], left: NDArray[Any], numbers: Numbers
) -> None:
    """Give each element of ``g`` to the first element of its window that equals the largest, or is NaN.

    ``left`` [N] holds what is still to be given, so that the inner loop has no branch.
    """
    height, width, out_height, out_width, kh, kw, sh, sw, ph, pw, dh, dw = numbers
    dx[:] = 0
    for line in range(y.shape[0]):
        c, h, w = line // (out_height * out_width), line // out_width % out_height, line % out_width
        best = y[line]
        for n in range(left.size):
            left[n] = g[line, n]
        for i in range(kh):
            for j in range(kw):
                u, v = h * sh - ph + i * dh, w * sw - pw + j * dw
                if 0 <= u < height and 0 <= v < width:
                    source, target = x[(c * height + u) * width + v], dx[(c * height + u) * width + v]
                    for n in range(best.size):
                        give = left[n] if (source[n] == best[n]) | np.isnan(source[n]) else np.float32(0)
                        target[n] += give
                        left[n] -= give


@jit
def average_pool(x: NDArray[Any], y: NDArray[Any], counts: NDArray[Any], numbers: Numbers) -> None:
    """Each line of y is the sum of the lines of x in its window, divided by ``counts`` [OH OW]."""
    height, width, out_height, out_width, kh, kw, sh, sw, ph, pw, dh, dw = numbers
    for line in range(y.shape[0]):
        c, h, w = line // (out_height * out_width), line // out_width % out_height, line % out_width
        total = y[line]
        total[:] = 0
        for i in range(kh):
            for j in range(kw):
                u, v = h * sh - ph + i * dh, w * sw - pw + j * dw
                if 0 <= u < height and 0 <= v < width:
                    source = x[(c * height + u) * width + v]
                    for n in range(total.size):
                        total[n] += source[n]
        share = counts[line % counts.size]
        for n in range(total.size):
            total[n] /= share


@jit
def average_pool_grad(g: NDArray[Any], dx: NDArray[Any], counts: NDArray[Any], numbers: Numbers) -> None:
    """Spread each element of ``g`` evenly over its window."""
    height, width, out_height, out_width, kh, kw, sh, sw, ph, pw, dh, dw = numbers
    dx[:] = 0
    for line in range(g.shape[0]):
        c, h, w = line // (out_height * out_width), line // out_width % out_height, line % out_width
        given, share = g[line], counts[line % counts.size]
        for i in range(kh):
            for j in range(kw):
                u, v = h * sh - ph + i * dh, w * sw - pw + j * dw
                if 0 <= u < height and 0 <= v < width:
                    target = dx[(c * height + u) * width + v]
                    for n in range(given.size):
                        target[n] += given[n] / share
