"""BERT: an encoder of text pairs, trained to predict masked words and whether the second text follows the first."""

from __future__ import annotations

from typing import Any

import numpy as np

from ipu_emu.models.model import Model
from ipu_emu.models.transformer_layers import TransformerLayers


def bert(
    *,
    batch: int,
    layers: int = 12,
    width: int = 768,
    heads: int = 12,
    length: int = 128,
    context: int = 512,
    vocabulary: int = 30522,
    masked: int | None = None,
    dtype: Any = np.float32,
    seed: int | None = 0,
) -> Model:
    """``others`` are the index of the text (0 or 1) of each token, and whether the second text follows.

    The loss covers every position and every pair; with ``masked``, only that many positions of each text: a further
    input has their rows in [batch * length]. The weights of the two classifiers are named ``heads/...``.
    """
    net = TransformerLayers(batch, length, width, heads, dtype=dtype, seed=seed, causal=False)
    data = net.input((batch, length), "data", "INT32")
    texts = net.input((batch, length), "texts", "INT32")
    labels = net.input((batch * (masked or length),), "labels", "INT32")
    rows = (net.input((batch * masked,), "rows", "INT32"),) if masked else ()
    follows = net.input((batch,), "follows", "INT32")
    y, table = _embedded(net, data, texts, vocabulary, context)
    for layer in range(layers):
        y = net.post_norm_block(y, f"layer{layer}")
    pooled = net.onnx("Tanh", net.linear(net.first_of_each(y), width, width, "pooler"))
    words = _words(net, net.onnx("Gather", y, *rows) if rows else y, table, vocabulary)
    pair = net.linear(pooled, width, 2, "heads/pair")
    loss = net.add(net.loss(words, labels), net.loss(pair, follows))
    return Model(net.graph, data, labels, words, loss, (texts, follows, *rows))


def _embedded(net: TransformerLayers, data: str, texts: str, vocabulary: int, context: int) -> tuple[str, str]:
    tokens, table = net.embedded(data, vocabulary, "tokens")
    places = net.positions(context)
    kinds, _ = net.embedded(texts, 2, "texts/table")
    return net.norm(net.flat(net.add(net.add(tokens, kinds), places)), "embeddings/norm"), table


def _words(net: TransformerLayers, x: str, table: str, vocabulary: int) -> str:
    """The logits of all tokens of the vocabulary for every row of ``x``."""
    y = net.norm(net.activated(net.linear(x, net.width, net.width, "heads/words")), "heads/words/norm")
    return net.add(net.logits(y, table), net.full((vocabulary,), 0, "heads/words/vocabulary"))
