"""ViT: a transformer that classifies images, which are split into patches."""

from __future__ import annotations

from math import sqrt
from typing import Any

import numpy as np

from ipu_emu.models.model import Model
from ipu_emu.models.transformer_layers import TransformerLayers


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
    """Classify images [3, size, size] by the first position of each sequence, the class token."""
    across = size // patch
    net = TransformerLayers(batch, across * across + 1, width, heads, dtype=dtype, seed=seed, causal=False)
    data = net.input((batch, 3, size, size), "data")
    labels = net.input((batch,), "labels", "INT32")
    y = _sequences(net, data, across * across, patch)
    for layer in range(layers):
        y = net.pre_norm_block(y, f"layer{layer}")
    y = net.linear(net.first_of_each(net.norm(y, "norm")), width, classes, "classifier")
    return Model(net.graph, data, labels, y, net.loss(y, labels))


def _sequences(net: TransformerLayers, data: str, patches: int, patch: int) -> str:
    """The embeddings of the patches, after the class token, which is the same for all images."""
    width = net.width
    kernel = net.normal((width, 3, patch, patch), sqrt(1 / (3 * patch * patch)), "patches/weights")
    bias = net.full((width,), 0, "patches/bias")
    y = net.onnx("Conv", data, kernel, bias, strides=[patch, patch])
    y = net.onnx("Transpose", net.reshape(y, [net.batch, width, patches]), perm=[0, 2, 1])
    first = net.full((1, 1, width), 0, "class")
    first = net.onnx("Expand", first, net.constant([net.batch, 1, width]))
    y = net.onnx("Concat", first, y, axis=1)
    return net.flat(net.add(y, net.normal((1, patches + 1, width), 0.02, "positions")))
