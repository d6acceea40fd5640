"""MLP: fully connected layers with ReLU between them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import sqrt
from typing import Any

import numpy as np

from ipu_emu.models.model import Model, Weights
from ipu_emu.popart.builder.builder import Builder

__all__ = ["mlp"]


def mlp(
    widths: Sequence[int] = (784, 512, 512, 10), *, batch: int, dtype: Any = np.float32, seed: int | None = 0
) -> Model:
    """A classifier of ``widths[0]`` numbers; weights are [inputs, outputs], biases start at 0."""
    builder = Builder()
    weights = Weights(builder, dtype, seed)
    data = y = weights.input("", (batch, widths[0]), "data")
    labels = weights.input("INT32", (batch,), "labels")
    for layer, (inputs, outputs) in enumerate(pairwise(widths)):
        w = weights.normal((inputs, outputs), sqrt(2 / inputs), f"weights{layer}")
        y = builder.aiOnnx.gemm([y, w, weights.full((outputs,), 0, f"bias{layer}")])
        if layer < len(widths) - 2:
            y = builder.aiOnnx.relu([y])
    loss = builder.aiGraphcore.nllloss([builder.aiOnnx.softmax([y]), labels])
    return Model(weights.graph, data, labels, y, loss)
