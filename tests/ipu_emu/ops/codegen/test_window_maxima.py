"""Maximum pooling: the compiled kernels against definitions in numpy, bit by bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ipu_emu.ops.codegen.window_maxima import MOST_TAPS, window_maxima_call, window_maxima_gradient_call

CASES = {
    "3x3 stride 2": ((3, 3), (2, 2), (0, 0), (1, 1)),
    "padded": ((3, 3), (2, 2), (1, 1), (1, 1)),
    "one column": ((2, 1), (1, 1), (0, 0), (1, 1)),
    "dilated": ((3, 2), (1, 2), (2, 1), (2, 3)),
    "one tap": ((1, 1), (2, 2), (0, 0), (1, 1)),
}


def places(size: int, taps: int, stride: int, before: int, dilation: int) -> np.ndarray:
    """The index that each tap [taps, windows] reads, negative outside of the image."""
    count = (size + 2 * before - dilation * (taps - 1) - 1) // stride + 1
    index = np.arange(count) * stride - before + np.arange(taps)[:, None] * dilation
    return np.where((index >= 0) & (index < size), index, -1)


def maxima(x: np.ndarray, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """The definition: taps in order; a NaN is taken, and of equal elements the first."""
    y = np.full((x.shape[0], rows.shape[1], columns.shape[1], x.shape[3]), -np.inf, np.float32)
    for h, w in np.ndindex(y.shape[1:3]):
        best = None
        for u, v in ((u, v) for u in rows[:, h] for v in columns[:, w] if u >= 0 and v >= 0):
            tap = x[:, u, v]
            best = tap if best is None else np.where((tap > best) | np.isnan(tap), tap, best)
        y[:, h, w] = best
    return y


def images(case: str, batch: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Images with special values, and the rows and columns that the taps of each window read."""
    random = np.random.default_rng(batch)
    x = random.standard_normal((3, 9, 7, batch)).astype(np.float32)
    special = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-45, -1e-45, 3.4e38], np.float32)
    x.reshape(-1)[::3] = random.choice(special, len(x.reshape(-1)[::3]))
    taps, strides, before, dilations = CASES[case]
    rows, columns = (places(x.shape[1 + a], taps[a], strides[a], before[a], dilations[a]) for a in range(2))
    return x, rows, columns


def gradient(g: np.ndarray, x: np.ndarray, y: np.ndarray, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """The definition: windows in order, each gives its gradient to the first tap that is its maximum or NaN."""
    dx = np.zeros_like(x)
    for c, h, w, n in np.ndindex(y.shape):
        for u, v in ((u, v) for u in rows[:, h] for v in columns[:, w] if u >= 0 and v >= 0):
            if x[c, u, v, n] == y[c, h, w, n] or np.isnan(x[c, u, v, n]):
                dx[c, u, v, n] += g[c, h, w, n]
                break
    return dx


@pytest.mark.parametrize("batch", [1, 3, 8, 21])
@pytest.mark.parametrize("case", CASES)
def test_maxima_of_windows(case: str, batch: int) -> None:
    x, rows, columns = images(case, batch)
    y = np.full((3, rows.shape[1], columns.shape[1], batch), 7, np.float32)
    call: Any = window_maxima_call(x, y, rows, columns)
    call()
    np.testing.assert_array_equal(y.view(np.int32), maxima(x, rows, columns).view(np.int32))


@pytest.mark.parametrize("batch", [1, 3, 8, 21])
@pytest.mark.parametrize("case", CASES)
def test_gradient_of_maxima(case: str, batch: int) -> None:
    x, rows, columns = images(case, batch)
    x = np.where(np.abs(x) < 9, np.round(np.clip(x, -9, 9), 1), x)  # many elements are equal
    y = maxima(x, rows, columns)
    g = np.random.default_rng(batch).standard_normal(y.shape).astype(np.float32)
    g.reshape(-1)[::7], dx = np.inf, np.full_like(x, 7)
    call: Any = window_maxima_gradient_call(g, x, y, dx, rows, columns)
    call()
    np.testing.assert_array_equal(dx.view(np.int32), gradient(g, x, y, rows, columns).view(np.int32))


def test_windows_that_the_kernel_does_not_take() -> None:
    x, y = np.zeros((1, 40, 40, 2), np.float32), np.zeros((1, 40, 1, 2), np.float32)
    tall, lone = places(40, MOST_TAPS + 1, 1, 0, 1), places(40, 1, 1, 0, 1)
    assert window_maxima_call(x, y, tall, lone) is None
    assert window_maxima_call(x, y, np.full((1, 3), -1), lone) is None
    assert window_maxima_gradient_call(y, x, y, x, tall, lone) is None
