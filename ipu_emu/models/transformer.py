"""Transformer: a causal language model with layer normalisation before attention and before the feed-forward part."""

from __future__ import annotations

from typing import Any

import numpy as np

from ipu_emu.models.model import Model
from ipu_emu.models.transformer_layers import TransformerLayers


def transformer(
    *,
    batch: int,
    layers: int = 2,
    width: int = 256,
    heads: int = 4,
    length: int = 128,
    vocabulary: int = 96,
    dtype: Any = np.float32,
    seed: int | None = 0,
) -> Model:
    """Predict each next token; the loss is the mean over all positions."""
    net = TransformerLayers(batch, length, width, heads, dtype=dtype, seed=seed)
    data = net.input((batch, length), "data", "INT32")
    labels = net.input((batch * length,), "labels", "INT32")
    tokens, _ = net.embedded(data, vocabulary, "tokens")
    places = net.normal((length, width), 0.02, "positions")
    y = net.add(tokens, places)
    y = net.flat(y)
    for layer in range(layers):
        y = net.pre_norm_block(y, f"layer{layer}")
    y = net.linear(net.norm(y, "norm"), width, vocabulary, "classifier")
    return Model(net.graph, data, labels, y, net.loss(y, labels))
