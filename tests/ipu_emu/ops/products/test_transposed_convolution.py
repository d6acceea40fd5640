"""Transposed convolution: from which side the whole result is cut to a requested shape."""

from __future__ import annotations

import numpy as np
import pytest

from ipu_emu import popart
from tests.ipu_emu.helpers.sessions import infer


@pytest.mark.parametrize(
    ("auto_pad", "first"), [("SAME_UPPER", 2), ("SAME_LOWER", 1), ("NOTSET", 1)], ids=["upper", "lower", "not set"]
)
def test_the_larger_half_of_an_odd_cut_is_in_front_for_same_upper_only(auto_pad: str, first: int) -> None:
    x, weights = np.arange(1, 4, dtype=np.float32).reshape(1, 1, 3), np.array([[[1, 10, 100]]], np.float32)
    full = np.zeros(8, np.float32)  # stride 2: positions 0, 2, 4, and one more at the end
    for i in range(3):
        full[2 * i : 2 * i + 3] += x[0, 0, i] * weights[0, 0]
    builder = popart.Builder()
    ids = [builder.addInitializedInputTensor(value) for value in (x, weights)]
    y = builder.aiOnnx.convtranspose(ids, output_padding=[1], output_shape=[5], strides=[2])
    builder.addNodeAttribute("auto_pad", auto_pad, {y})
    actual = infer(builder, popart.DataFlow(1, [y]), {})[y]
    np.testing.assert_array_equal(actual.reshape(-1), full[first : first + 5])
