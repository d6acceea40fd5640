"""ViT: a transformer that classifies images, cut into patches."""

from __future__ import annotations

from math import sqrt
from typing import Any

import numpy as np

from ipu_emu.models.model import Model
from ipu_emu.models.transformer_layers import TransformerLayers

__all__ = ["vit"]


def vit(
    *,
    batch: int,
    layers: int = 12,
    width: int = 768,
    heads: int = 12,
    size: int = 224,
    patch: int = 16,
    classes: int = 1000,
    dtype: Any = np.float32,
    seed: int | None = 0,
) -> Model:
    """Images [3, size, size]; the first position of each sequence stands for its class."""
    across = size // patch
    net = TransformerLayers(batch, across * across + 1, width, heads, dtype=dtype, seed=seed, causal=False)
    data = net.weights.input("", (batch, 3, size, size), "data")
    labels = net.weights.input("INT32", (batch,), "labels")
    y = _sequences(net, data, across * across, patch)
    for layer in range(layers):
        y = net.pre_norm_block(y, f"layer{layer}")
    y = net.linear(net.first_of_each(net.norm(y, "norm")), width, classes, "classifier")
    return Model(net.weights.graph, data, labels, y, net.loss(y, labels))


def _sequences(net: TransformerLayers, data: str, patches: int, patch: int) -> str:
    """A row for each patch, after one for the class, which is the same for all images."""
    builder, width = net.builder.aiOnnx, net.width
    kernel = net.weights.normal((width, 3, patch, patch), sqrt(1 / (3 * patch * patch)), "patches/weights")
    bias = net.weights.full((width,), 0, "patches/bias")
    y = builder.conv([data, kernel, bias], strides=[patch, patch])
    y = builder.transpose([net.builder.reshape_const(builder, [y], [net.batch, width, patches])], [0, 2, 1])
    first = net.weights.full((1, 1, width), 0, "class")
    shape = builder.constant(np.array([net.batch, 1, width], np.int64))
    y = builder.concat([builder.expand([first, shape]), y], 1)
    return net.flat(net.add(y, net.weights.normal((1, patches + 1, width), 0.02, "positions")))
