"""Direct convolution: planes of strided images, copied for a few channels at a time and by runs of known length."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ipu_emu.ops.core.sliding_windows import Windows
from ipu_emu.ops.products import direct_convolution
from ipu_emu.ops.products.direct_convolution import Direct
from ipu_emu.ops.products.grouped_convolution import Grouped

C, H, KERNEL = 6, 9, 3


def convolved(x: np.ndarray, w: np.ndarray, groups: int) -> np.ndarray:
    """``x`` [N, C, H, H] with stride 2 and one pixel of padding, in float64."""
    padded = np.pad(x.astype(np.float64), ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (KERNEL, KERNEL), (2, 3))[:, :, ::2, ::2]
    n, _, high, wide = windows.shape[:4]
    windows = windows.reshape(n, groups, C // groups, high, wide, KERNEL, KERNEL)
    parts = w.astype(np.float64).reshape(groups, -1, *w.shape[1:])
    return np.einsum("ngchwij,gmcij->ngmhw", windows, parts).reshape(n, len(w), high, wide)


@pytest.mark.parametrize("dtype", [np.float32, np.float16], ids=["float32", "float16"])
@pytest.mark.parametrize("batch", [4, 8, 9, 12, 31, 40])
@pytest.mark.parametrize("groups", [1, C])
@pytest.mark.parametrize("channels_at_a_time", [1, 4, C])
def test_strided_images_of_any_batch_are_copied_whole(
    dtype: Any, batch: int, groups: int, channels_at_a_time: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(direct_convolution, "CHUNK", channels_at_a_time * H * H * batch * np.dtype(dtype).itemsize)
    random = np.random.default_rng(batch)
    x = random.standard_normal((C, H, H, batch)).astype(dtype).transpose(3, 0, 1, 2)
    w = random.standard_normal((C, C // groups, KERNEL, KERNEL)).astype(dtype)
    windows = Windows((H, H), (5, 5), (KERNEL, KERNEL), (2, 2), (1, 1), (1, 1), (1, 1))
    direct = Direct(windows, batch, C, C) if groups == 1 else Grouped(windows, batch, C, C, groups)
    half = dtype == np.float16
    scratch = [np.full(size, np.nan, np.float32) for size in direct.workspace(half=half)]
    y = np.full((C, 5, 5, batch), np.nan, dtype).transpose(3, 0, 1, 2)
    for call in direct.forward(x, w, None, y, scratch):
        call()
    exact = convolved(x, w, groups)
    tolerance = 1e-3 if half else 1e-6
    np.testing.assert_allclose(y, exact, rtol=tolerance, atol=tolerance * np.abs(exact).max())


@pytest.mark.parametrize("dtype", [np.float32, np.float16], ids=["float32", "float16"])
@pytest.mark.parametrize("channels", [2, 10], ids=["packed", "in_rows"])
@pytest.mark.parametrize(
    ("size", "kernel", "stride", "pad", "dilation"),
    [(1, 3, 1, 1, 1), (2, 3, 1, 1, 1), (3, 3, 1, 1, 1), (4, 5, 1, 2, 1), (5, 3, 2, 1, 1), (3, 3, 1, 3, 2)],
)
def test_rows_of_the_kernel_outside_of_the_image_are_left_out(
    dtype: Any, channels: int, size: int, kernel: int, stride: int, pad: int, dilation: int
) -> None:
    filters, batch, out = 13, 8, (size + 2 * pad - dilation * (kernel - 1) - 1) // stride + 1
    windows = Windows((size,) * 2, (out,) * 2, (kernel,) * 2, (stride,) * 2, (pad,) * 2, (pad,) * 2, (dilation,) * 2)
    direct = Direct(windows, batch, channels, filters)
    assert sum(len(rows) * len(inside) for rows, inside in direct.parts_of_rows()) < kernel * out
    random = np.random.default_rng(size)
    x = random.standard_normal((channels, size, size, batch)).astype(dtype).transpose(3, 0, 1, 2)
    w, bias = (
        random.standard_normal(shape).astype(dtype) for shape in ((filters, channels, kernel, kernel), filters)
    )
    scratch = [np.full(most, np.nan, np.float32) for most in direct.workspace(half=dtype == np.float16)]
    y = np.full((filters, out, out, batch), np.nan, dtype).transpose(3, 0, 1, 2)
    for call in direct.forward(x, w, bias, y, scratch):
        call()
    wide = np.pad(x.astype(np.float64), ((0, 0), (0, 0), (pad, pad), (pad, pad)))
    exact = np.broadcast_to(bias.astype(np.float64)[:, None, None], y.shape).copy()
    reach = stride * (out - 1) + 1
    for i, j in np.ndindex(kernel, kernel):
        part = wide[:, :, i * dilation :, j * dilation :][:, :, :reach:stride, :reach:stride]
        exact += np.einsum("nchw,mc->nmhw", part, w[:, :, i, j].astype(np.float64))
    tolerance = 1e-3 if dtype == np.float16 else 1e-6
    np.testing.assert_allclose(y, exact, rtol=tolerance, atol=tolerance * np.abs(exact).max())
