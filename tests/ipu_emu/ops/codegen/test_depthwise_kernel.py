"""Depthwise kernel: compared with float64 sums over a padded copy, for all kinds of edges."""

from __future__ import annotations

import numpy as np
import pytest

from ipu_emu.ops.codegen.compiled_call import named_call
from ipu_emu.ops.codegen.depthwise_kernel import DEPTHWISE, DepthwiseShape, depthwise
from ipu_emu.ops.codegen.depthwise_weights import DEPTHWISE_WEIGHTS, depthwise_weights
from ipu_emu.ops.codegen.fused_store import EXTRAS, RESULT, FusedStore

CHANNELS = 3
_random = np.random.default_rng(0)


def number(*shape: int) -> np.ndarray:
    return _random.standard_normal(shape).astype(np.float32)


def guarded(values: np.ndarray) -> np.ndarray:
    """``values`` with NaN before and after them in memory, which no result may depend on."""
    memory = np.full(values.size + 256, np.nan, np.float32)
    inner = memory[128:-128].reshape(values.shape)
    inner[...] = values
    return inner


def exact(x: np.ndarray, w: np.ndarray, output: tuple[int, int], stride: int, pad: int) -> np.ndarray:
    wide = np.pad(x.astype(np.float64), ((0, 0), (pad, pad), (pad, pad), (0, 0)))
    y = np.zeros((len(x), *output, x.shape[-1]))
    for i, j in np.ndindex(w.shape[1:]):
        rows, columns = ((size - 1) * stride + 1 for size in output)
        y += w[:, i, j][:, None, None, None] * wide[:, i : i + rows : stride, j : j + columns : stride]
    return y


@pytest.mark.parametrize("pad", [0, 1, 3])
@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize("kernel", [(1, 1), (3, 5), (4, 3)])
@pytest.mark.parametrize(("height", "width", "batch"), [(1, 1, 1), (2, 2, 8), (5, 7, 3), (4, 9, 16), (6, 40, 20)])
def test_results_are_those_of_a_padded_copy(
    height: int, width: int, batch: int, kernel: tuple[int, int], stride: int, pad: int
) -> None:
    spans = height + 2 * pad - kernel[0], width + 2 * pad - kernel[1]
    if min(spans) < 0:
        pytest.skip("the kernel is larger than the image")
    output = spans[0] // stride + 1, spans[1] // stride + 1
    x, w, bias = number(CHANNELS, height, width, batch), number(CHANNELS, *kernel), number(CHANNELS)
    y, more = guarded(np.zeros((CHANNELS, *output, batch), np.float32)), number(CHANNELS, *output, batch)
    shape = DepthwiseShape((height, width), output, kernel, (stride, stride), (pad, pad), batch)
    plain = {"x": guarded(x), "w": guarded(w), "y": y, "channels": CHANNELS}
    sums, sizes = exact(x, w, output, stride, pad), exact(abs(x), abs(w), output, stride, pad)
    most = (sizes + 9) * w[0].size * 2.0**-23

    named_call(depthwise(shape), DEPTHWISE, **plain, bias=None, **dict.fromkeys(EXTRAS, 0))()
    assert (abs(y - sums) <= most).all()

    store = FusedStore(
        (("load", 0), ("load", 1), ("add", 0, 1), ("relu", 2), ("store", 2, 3)), (RESULT, "full"), (more,), y
    )
    named_call(depthwise(shape, store.form), DEPTHWISE, **plain, bias=bias, **store.arguments())()
    wanted = np.maximum(sums + bias[:, None, None, None] + more, 0)
    assert (abs(y - wanted) <= most).all()


@pytest.mark.parametrize("pad", [0, 1, 3])
@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize("kernel", [(1, 1), (3, 5), (4, 3), (7, 7)])
@pytest.mark.parametrize(("height", "width", "batch"), [(2, 3, 8), (5, 7, 3), (9, 20, 8), (6, 40, 20)])
def test_gradient_of_the_image(
    height: int, width: int, batch: int, kernel: tuple[int, int], stride: int, pad: int
) -> None:
    """Each element of g is added to the pixels of its window, times the kernel; pixels in no window get zero."""
    spans = height + 2 * pad - kernel[0], width + 2 * pad - kernel[1]
    if min(spans) < 0:
        pytest.skip("the kernel is larger than the image")
    output = spans[0] // stride + 1, spans[1] // stride + 1
    shape = DepthwiseShape((height, width), output, kernel, (stride, stride), (pad, pad), batch).gradient()
    g, w = number(CHANNELS, *output, batch), number(CHANNELS, *kernel)
    dx = guarded(np.full((CHANNELS, height, width, batch), 7, np.float32))
    arguments = {"x": guarded(g), "w": guarded(w), "y": dx, "bias": None, "channels": CHANNELS}
    named_call(depthwise(shape), DEPTHWISE, **arguments, **dict.fromkeys(EXTRAS, 0))()
    wide = np.zeros((CHANNELS, height + 2 * pad, width + 2 * pad, batch))
    rows, columns = ((size - 1) * stride + 1 for size in output)
    for i, j in np.ndindex(kernel):
        part = wide[:, i : i + rows : stride, j : j + columns : stride]
        part += w[:, i, j][:, None, None, None] * g.astype(np.float64)
    exact = wide[:, pad : pad + height, pad : pad + width]
    np.testing.assert_allclose(dx, exact, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("pad", [0, 1, 3])
@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize("kernel", [(1, 1), (3, 5), (4, 3), (3, 9)])
@pytest.mark.parametrize(("height", "width", "batch"), [(2, 2, 8), (5, 7, 3), (9, 9, 16), (6, 40, 20)])
def test_gradient_of_the_weights(
    height: int, width: int, batch: int, kernel: tuple[int, int], stride: int, pad: int
) -> None:
    spans = height + 2 * pad - kernel[0], width + 2 * pad - kernel[1]
    if min(spans) < 0:
        pytest.skip("the kernel is larger than the image")
    output = spans[0] // stride + 1, spans[1] // stride + 1
    shape = DepthwiseShape((height, width), output, kernel, (stride, stride), (pad, pad), batch)
    x, g = number(CHANNELS, height, width, batch), number(CHANNELS, *output, batch)
    dw = guarded(np.full((CHANNELS, *kernel), 7, np.float32))
    arguments = {"x": guarded(x), "g": guarded(g), "dw": dw, "channels": CHANNELS}
    named_call(depthwise_weights(shape), DEPTHWISE_WEIGHTS, **arguments)()
    wide = np.pad(x.astype(np.float64), ((0, 0), (pad, pad), (pad, pad), (0, 0)))
    exact = np.zeros(dw.shape)
    for i, j in np.ndindex(kernel):
        rows, columns = ((size - 1) * stride + 1 for size in output)
        exact[:, i, j] = (wide[:, i : i + rows : stride, j : j + columns : stride] * g).sum((1, 2, 3))
    np.testing.assert_allclose(dw, exact, rtol=1e-5, atol=1e-5 * np.sqrt(g[0].size))
