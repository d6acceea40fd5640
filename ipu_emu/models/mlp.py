"""MLP: fully connected layers with ReLU between them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import sqrt
from typing import Any

import numpy as np

from ipu_emu.models.model import Model
from ipu_emu.models.network import Network


def mlp(
    widths: Sequence[int] = (784, 512, 512, 10),
    *,
    batch: int,
    layers: int | None = None,
    dtype: Any = np.float32,
    seed: int | None = 0,
) -> Model:
    """A classifier with ``widths[0]`` inputs, and ``layers`` hidden layers like the first, if that is given.

    Weights are [inputs, outputs], biases start at 0.
    """
    widths = widths if layers is None else (widths[0], *[widths[1]] * layers, widths[-1])
    net = Network(dtype, seed)
    data = y = net.input((batch, widths[0]), "data")
    labels = net.input((batch,), "labels", "INT32")
    for layer, (inputs, outputs) in enumerate(pairwise(widths)):
        w = net.normal((inputs, outputs), sqrt(2 / inputs), f"weights{layer}")
        y = net.onnx("Gemm", y, w, net.full((outputs,), 0, f"bias{layer}"))
        if layer < len(widths) - 2:
            y = net.onnx("Relu", y)
    return Model(net.graph, data, labels, y, net.loss(y, labels))
