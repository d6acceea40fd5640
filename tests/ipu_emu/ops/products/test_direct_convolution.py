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
    monkeypatch.setattr(direct_convolution, "_CHUNK", channels_at_a_time * H * H * batch * np.dtype(dtype).itemsize)
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
