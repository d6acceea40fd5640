"""Transformer: a causal language model, layer normalisation before attention and before the feed-forward part."""

from __future__ import annotations

from math import sqrt
from typing import Any

import numpy as np

from ipu_emu.models.model import Model, Weights
from ipu_emu.popart.builder import Builder

__all__ = ["transformer"]


class _Layers:
    """Activations are [batch * length, width]."""

    def __init__(self, batch: int, length: int, width: int, heads: int, dtype: Any, seed: int) -> None:
        self.batch, self.length, self.width, self.heads = batch, length, width, heads
        self.builder = Builder()
        self.weights = Weights(self.builder, dtype, seed)
        future = np.triu(np.full((length, length), -1e4, np.float32), 1)
        self.mask = self.builder.aiOnnx.constant(future.astype(self.weights.dtype))

    def linear(self, x: str, inputs: int, outputs: int, name: str) -> str:
        w = self.weights.normal((inputs, outputs), sqrt(1 / inputs), f"{name}/weights")
        y: str = self.builder.aiOnnx.gemm([x, w, self.weights.full((outputs,), 0, f"{name}/bias")])
        return y

    def norm(self, x: str, name: str) -> str:
        scale = self.weights.full((self.width,), 1, f"{name}/scale")
        bias = self.weights.full((self.width,), 0, f"{name}/bias")
        made: list[str] = self.builder.aiGraphcore.groupnormalization([x, scale, bias], 1)
        return made[0]

    def add(self, x: str, y: str) -> str:
        made: str = self.builder.aiOnnx.add([x, y])
        return made

    def split_heads(self, x: str) -> str:
        """[batch * length, width] as [batch, heads, length, width / heads]."""
        shape = [self.batch, self.length, self.heads, self.width // self.heads]
        y: str = self.builder.aiOnnx.transpose(
            [self.builder.reshape_const(self.builder.aiOnnx, [x], shape)], [0, 2, 1, 3]
        )
        return y

    def attention(self, x: str, name: str) -> str:
        builder = self.builder.aiOnnx
        q, k, v = (self.split_heads(self.linear(x, self.width, self.width, f"{name}/{part}")) for part in "qkv")
        scores = builder.matmul([q, builder.transpose([k], [0, 1, 3, 2])])
        scores = self.builder.aiGraphcore.scale([scores], 1 / sqrt(self.width // self.heads))
        shares = builder.softmax([self.add(scores, self.mask)], 3)
        y = builder.transpose([builder.matmul([shares, v])], [0, 2, 1, 3])
        y = self.builder.reshape_const(builder, [y], [self.batch * self.length, self.width])
        return self.linear(y, self.width, self.width, f"{name}/out")

    def feed_forward(self, x: str, name: str) -> str:
        y = self.builder.aiGraphcore.geluerf([self.linear(x, self.width, 4 * self.width, f"{name}/up")])
        return self.linear(y, 4 * self.width, self.width, f"{name}/down")


def transformer(
    *,
    batch: int,
    layers: int = 2,
    width: int = 256,
    heads: int = 4,
    length: int = 128,
    vocabulary: int = 96,
    dtype: Any = np.float32,
    seed: int = 0,
) -> Model:
    """Predicts each next token; the loss is the mean over all positions."""
    net = _Layers(batch, length, width, heads, dtype, seed)
    builder, weights = net.builder, net.weights
    data = weights.input("INT32", (batch, length), "data")
    labels = weights.input("INT32", (batch * length,), "labels")
    table = weights.normal((vocabulary, width), 0.02, "tokens")
    places = weights.normal((length, width), 0.02, "positions")
    y = net.add(builder.aiOnnx.gather([table, data]), places)
    y = builder.reshape_const(builder.aiOnnx, [y], [batch * length, width])
    for layer in range(layers):
        y = net.add(y, net.attention(net.norm(y, f"layer{layer}/norm1"), f"layer{layer}/attention"))
        y = net.add(y, net.feed_forward(net.norm(y, f"layer{layer}/norm2"), f"layer{layer}/feed_forward"))
    y = net.linear(net.norm(y, "norm"), width, vocabulary, "classifier")
    loss = builder.aiGraphcore.nllloss([builder.aiOnnx.softmax([y]), labels])
    return Model(builder.getModelProto(), data, labels, y, loss)
