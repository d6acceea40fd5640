"""Arithmetic of single elements: remainders, and the gradients of powers at 0."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ipu_emu import popart
from tests.ipu_emu.helpers.sessions import infer, train


@pytest.mark.parametrize(
    ("x", "increment", "modulus"),
    [
        (np.array([0, 3, 4, -7], np.int32), 1, 5),
        (np.array([-1, -9, 9], np.int32), -3, 4),
        (np.array([0.5, -3.5, 6.25], np.float32), 1.5, 2.0),
        (np.array([250, 3], np.uint32), 10, 7),
    ],
    ids=["integers", "negative increment", "floats", "unsigned"],
)
def test_an_incremented_remainder_has_the_sign_of_the_sum(x: Any, increment: float, modulus: float) -> None:
    builder = popart.Builder()
    id = builder.addInputTensor(popart.TensorInfo(x))
    y = builder.aiGraphcore.incrementmod([id], increment, modulus)
    actual = infer(builder, popart.DataFlow(1, [y]), {id: x})[y]
    np.testing.assert_array_equal(actual, np.fmod(x + x.dtype.type(increment), x.dtype.type(modulus)))


def test_powers_of_0_and_by_0_have_gradient_0() -> None:
    base, exponent = np.array([0, 0, 2, 3, 0], np.float32), np.array([0, 2, 0, 2, 1], np.float32)
    builder = popart.Builder()
    ids = [builder.addInitializedInputTensor(value) for value in (base, exponent)]
    y = builder.aiOnnx.pow(ids)
    loss = builder.aiGraphcore.identityloss([y], popart.ReductionType.Sum)
    gradients = [popart.reservedGradientPrefix() + id for id in ids]
    session = train(builder, popart.DataFlow(1, [y, *gradients]), loss, popart.ConstSGD(0.1))
    anchors = session.initAnchorArrays()
    session.run(popart.PyStepIO({}, anchors))
    np.testing.assert_allclose(anchors[y], base**exponent)
    np.testing.assert_allclose(anchors[gradients[0]], [0, 0, 0, 6, 1])
    np.testing.assert_allclose(anchors[gradients[1]], [0, 0, np.log(2), 9 * np.log(3), 0], rtol=1e-6)


@pytest.mark.parametrize("exponent", range(2, 9))
def test_small_powers_are_products_within_n_minus_1_ulp(exponent: int) -> None:
    bits = np.arange(0, 1 << 32, 100_003, np.uint64).astype(np.uint32).view(np.float32)
    x = np.concatenate([bits, np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1e-45], np.float32)])
    builder = popart.Builder()
    id = builder.addInputTensor(popart.TensorInfo(x))
    y = builder.aiOnnx.pow([id, builder.aiOnnx.constant(np.array(exponent, np.float32))])
    actual = infer(builder, popart.DataFlow(1, [y]), {id: x})[y]
    with np.errstate(all="ignore"):
        want = x.astype(np.float64) ** exponent
        rounded = want.astype(np.float32)
    np.testing.assert_array_equal(np.isnan(actual), np.isnan(x))
    np.testing.assert_array_equal(actual[np.isinf(x)], rounded[np.isinf(x)])
    normal = np.isfinite(rounded) & np.isfinite(actual)
    distance = np.abs(actual[normal].astype(np.float64) - want[normal]) / np.spacing(np.abs(rounded[normal]))
    assert distance.max() <= exponent - 1
