"""Softmax cross entropy: losses and gradients compared with their formulas in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ipu_emu.graph import Graph, Op, Role, Tensor
from ipu_emu.graph.dtype import dtype_of
from ipu_emu.ops import append


def computed(type: str, x: Any, targets: Any) -> list[Any]:
    """The losses and the gradients, which are folded because their operands are constants."""
    graph = Graph()
    for id, value in (("x", x), ("t", targets)):
        graph.add(Tensor(id, dtype_of(value), value.shape, Role.CONSTANT), value)
    append(graph, Op(type, ("x", "t"), ("losses", "gradients"), {}, "", 10))
    return [graph.data[id] for id in ("losses", "gradients")]


def expected(x: Any, targets: Any) -> tuple[Any, Any]:
    x, targets = x.astype(np.float64), targets.astype(np.float64)
    shifted = x - x.max(1, keepdims=True)
    sums = np.exp(shifted).sum(1, keepdims=True)
    return (targets * (np.log(sums) - shifted)).sum(1), np.exp(shifted) / sums - targets


@pytest.mark.parametrize("shape", [(1, 1), (3, 2), (5, 17), (4, 1000)])
@pytest.mark.parametrize("scale", [1.0, 60.0])
def test_losses_and_gradients_are_those_of_the_formula(shape: tuple[int, int], scale: float) -> None:
    random = np.random.default_rng(shape[1])
    x = (random.standard_normal(shape) * scale).astype(np.float32)
    labels = random.integers(0, shape[1], shape[0]).astype(np.int32)
    probabilities = random.random(shape).astype(np.float32)
    hot = np.eye(shape[1], dtype=np.float32)[labels]
    for actual, exact in (
        (computed("SparseSoftmaxCrossEntropy", x, labels), expected(x, hot)),
        (computed("SoftmaxCrossEntropy", x, probabilities), expected(x, probabilities)),
    ):
        for result, other in zip(actual, exact, strict=True):
            np.testing.assert_allclose(result, other, rtol=2e-6, atol=2e-6)


def test_an_invalid_label_gives_nan_only_in_its_row() -> None:
    losses, gradients = computed(
        "SparseSoftmaxCrossEntropy", np.zeros((3, 2), np.float32), np.array([0, 2, -1], np.int32)
    )
    assert np.isnan(losses).tolist() == [False, True, True]
    assert np.isnan(gradients).all(1).tolist() == [False, True, True]
