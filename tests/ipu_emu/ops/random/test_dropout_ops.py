"""Dropout: the fraction and scale of kept elements, the gradient, the random numbers, and identity in inference."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ipu_emu import popart
from tests.ipu_emu.helpers.sessions import infer, options, train

SHAPE = (40, 50)


def outputs(ratio: float = 0.25, seed: int = 1, bps: int = 1, R: int = 1, count: int = 1) -> list[Any]:
    """(y of ``count`` dropouts..., gradient of x) for x of ones, [bps, R, *SHAPE]."""
    builder = popart.Builder()
    x = builder.addInitializedInputTensor(np.ones(SHAPE, np.float32))
    ys = [builder.aiOnnx.dropout([x], 1, ratio)[0] for _ in range(count)]
    loss = builder.aiGraphcore.identityloss([ys[0]], popart.ReductionType.Sum)
    gradient = popart.reservedGradientPrefix() + x
    session = train(builder, popart.DataFlow(bps, [*ys, gradient]), loss, popart.ConstSGD(1e-30), options(R=R))
    session.setRandomSeed(seed)
    anchors = session.initAnchorArrays()
    session.run(popart.PyStepIO({}, anchors))
    return [anchors[id] for id in (*ys, gradient)]


@pytest.mark.parametrize("ratio", [0.1, 0.5, 0.9])
def test_the_share_and_the_scale(ratio: float) -> None:
    y, gradient = outputs(ratio)
    mask = y != 0
    np.testing.assert_allclose(y[mask], 1 / (1 - ratio), rtol=1e-6)
    np.testing.assert_array_equal(gradient, y)
    assert abs(mask.mean() - (1 - ratio)) < 5 * np.sqrt(ratio * (1 - ratio) / y.size)


def test_numbers_differ_between_seeds_ops_replicas_and_micro_batches() -> None:
    first, again, other = outputs(), outputs(), outputs(seed=2)
    np.testing.assert_array_equal(first[0], again[0])
    assert (first[0] != other[0]).any()
    single, second, _ = outputs(count=2)
    assert (single != second).any()
    many = outputs(bps=2, R=2)[0].reshape(4, -1)
    assert len({row.tobytes() for row in many}) == 4


def test_it_is_the_identity_in_inference() -> None:
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [5])
    y, mask = builder.aiOnnx.dropout([x], 2, 0.5)
    data = np.arange(5, dtype=np.float32)
    anchors = infer(builder, popart.DataFlow(1, [y, mask]), {x: data})
    np.testing.assert_array_equal(anchors[y], data)
    np.testing.assert_array_equal(anchors[mask], np.ones(5, bool))


def test_the_mask_marks_kept_elements() -> None:
    builder = popart.Builder()
    x = builder.addInitializedInputTensor(np.ones(SHAPE, np.float32))
    y, mask = builder.aiOnnx.dropout([x], 2, 0.5)
    loss = builder.aiGraphcore.identityloss([y])
    session = train(builder, popart.DataFlow(1, [y, mask]), loss, popart.ConstSGD(0.1))
    anchors = session.initAnchorArrays()
    session.run(popart.PyStepIO({}, anchors))
    np.testing.assert_array_equal(anchors[mask], anchors[y] != 0)


@pytest.mark.parametrize("ratio", [-0.1, 1.0])
def test_a_ratio_is_from_0_to_1(ratio: float) -> None:
    with pytest.raises(popart.popart_exception) as error:
        outputs(ratio)
    assert error.value.args[0] == (
        f"Dropout (Dropout:0) ratio value {ratio:g} is not valid. Please use a value in the interval [0,1)"
    )
