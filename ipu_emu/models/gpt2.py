"""GPT-2: a causal language model whose output layer shares the weights of its token embedding."""

from __future__ import annotations

from typing import Any

import numpy as np

from ipu_emu.models.model import Model
from ipu_emu.models.transformer_layers import TransformerLayers


def gpt2(
    *,
    batch: int,
    layers: int = 12,
    width: int = 768,
    heads: int = 12,
    length: int = 1024,
    context: int = 1024,
    vocabulary: int = 50257,
    dtype: Any = np.float32,
    seed: int | None = 0,
) -> Model:
    """Predict each next token of sequences of ``length`` tokens, at most ``context``."""
    net = TransformerLayers(batch, length, width, heads, dtype=dtype, seed=seed, activation="Gelu")
    data = net.input((batch, length), "data", "INT32")
    labels = net.input((batch * length,), "labels", "INT32")
    tokens, table = net.embedded(data, vocabulary, "tokens")
    y = net.flat(net.add(tokens, net.positions(context)))
    for layer in range(layers):
        y = net.pre_norm_block(y, f"layer{layer}")
    y = net.logits(net.norm(y, "norm"), table)
    return Model(net.graph, data, labels, y, net.loss(y, labels))
