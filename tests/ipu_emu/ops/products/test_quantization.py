"""Quantisation: integer convolutions and products compared with PyTorch in DOUBLE; ONNX's cases cover the rest."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ipu_emu import popart
from tests.ipu_emu.helpers.sessions import infer

RANDOM = np.random.default_rng(5)


def integers(kind: str, *shape: int) -> Any:
    limits = np.iinfo(kind)
    return RANDOM.integers(limits.min, limits.max + 1, shape).astype(kind)


def inference(method: str, operands: list[Any], **attributes: Any) -> Any:
    builder = popart.Builder()
    ids = [builder.addInputTensor(popart.TensorInfo(value)) for value in operands]
    output = getattr(builder.aiOnnx, method)(ids, **attributes)
    return infer(builder, popart.DataFlow(1, [output]), dict(zip(ids, operands, strict=True)))[output]


@pytest.mark.torch
@pytest.mark.parametrize("channels", [3, 700])
def test_convinteger_is_exact(channels: int) -> None:
    """700 channels make sums that FLOAT cannot hold."""
    torch = pytest.importorskip("torch", reason="PyTorch is not installed; scripts/test --with-torch adds it")
    x, w = integers("uint8", 2, channels, 5, 6), integers("uint8", 4, channels, 3, 2)
    actual = inference("convinteger", [x, w, np.array(7, np.uint8)], pads=[1, 0, 1, 1], strides=[2, 1])
    centred = torch.nn.functional.pad(torch.tensor(x.astype(np.float64) - 7), (0, 1, 1, 1))
    expected = torch.nn.functional.conv2d(centred, torch.tensor(w.astype(np.float64)), stride=(2, 1)).numpy()
    assert actual.dtype == np.int32
    np.testing.assert_array_equal(actual, expected)


@pytest.mark.torch
def test_groups_scales_and_biases_of_a_quantised_convolution() -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed; scripts/test --with-torch adds it")
    x, w = integers("uint8", 2, 4, 5, 5), integers("int8", 6, 2, 3, 3)
    scales = RANDOM.uniform(0.01, 0.02, 6).astype(np.float32)
    bias = RANDOM.integers(-500, 500, 6).astype(np.int32)
    numbers = [np.array(0.03, np.float32), np.array(120, np.uint8), np.array(0.9, np.float32), np.array(11, np.uint8)]
    x_scale, x_zero, y_scale, y_zero = numbers
    operands = [x, x_scale, x_zero, w, scales, np.zeros(6, np.int8), y_scale, y_zero, bias]
    actual = inference("qlinearconv", operands, group=2, dilations=[2, 2])
    data, weights = torch.tensor(x.astype(np.float64) - 120), torch.tensor(w.astype(np.float64))
    sums = torch.nn.functional.conv2d(data, weights, torch.tensor(bias.astype(np.float64)), groups=2, dilation=2)
    factor = (np.float64(x_scale) * scales.astype(np.float64) / y_scale).reshape(-1, 1, 1)
    np.testing.assert_array_equal(actual, np.clip(np.rint(sums.numpy() * factor) + 11, 0, 255))


def test_rows_and_columns_have_their_own_zero_points() -> None:
    a, b = integers("uint8", 2, 3, 5), integers("int8", 5, 4)
    rows, columns = np.array([3, 200, 17], np.uint8), np.array([-3, 0, 100, 5], np.int8)
    actual = inference("matmulinteger", [a, b, rows, columns])
    wide = (a.astype(np.int64) - rows[:, None].astype(np.int64)) @ (b.astype(np.int64) - columns.astype(np.int64))
    np.testing.assert_array_equal(actual, wide)


def test_quantised_values_are_restored_within_half_a_scale() -> None:
    x = RANDOM.uniform(-3, 5, (4, 6)).astype(np.float32)
    builder = popart.Builder()
    id = builder.addInputTensor(popart.TensorInfo(x))
    opset = builder.aiOnnxOpset11
    parts = opset.dynamicquantizelinear([id])
    back = opset.dequantizelinear(parts)
    again = opset.quantizelinear([back, *parts[1:]])
    outputs = infer(builder, popart.DataFlow(1, [back, again, *parts]), {id: x})
    assert np.abs(outputs[back] - x).max() <= outputs[parts[1]] * 0.5001
    np.testing.assert_array_equal(outputs[again], outputs[parts[0]])


def test_scales_that_do_not_fit_are_an_error() -> None:
    with pytest.raises(popart.popart_exception, match=r"\[3\].*axis 1 of \[2, 4\]"):
        inference("quantizelinear", [np.zeros((2, 4), np.float32), np.ones(3, np.float32)])
