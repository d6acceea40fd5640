"""TransformerLayers: the parts of transformers: linear, normalisation, attention, feed-forward, blocks of them."""

from __future__ import annotations

from math import sqrt
from typing import Any

import numpy as np

from ipu_emu.models.model import Weights
from ipu_emu.popart.builder.builder import Builder

__all__ = ["TransformerLayers"]


class TransformerLayers:
    """Activations are [batch * length, width]; ``causal`` ones see nothing that comes later."""

    def __init__(
        self,
        batch: int,
        length: int,
        width: int,
        heads: int,
        *,
        dtype: Any,
        seed: int | None,
        causal: bool = True,
        activation: str = "geluerf",
    ) -> None:
        self.batch, self.length, self.width, self.heads = batch, length, width, heads
        self.builder, self.activation, self.mask = Builder(), activation, ""
        self.weights = Weights(self.builder, dtype, seed)
        if causal:
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
        shares = builder.softmax([self.add(scores, self.mask) if self.mask else scores], 3)
        y = builder.transpose([builder.matmul([shares, v])], [0, 2, 1, 3])
        y = self.builder.reshape_const(builder, [y], [self.batch * self.length, self.width])
        return self.linear(y, self.width, self.width, f"{name}/out")

    def feed_forward(self, x: str, name: str) -> str:
        y = self.activated(self.linear(x, self.width, 4 * self.width, f"{name}/up"))
        return self.linear(y, 4 * self.width, self.width, f"{name}/down")

    def activated(self, x: str) -> str:
        y: str = getattr(self.builder.aiGraphcore, self.activation)([x])
        return y

    def pre_norm_block(self, x: str, name: str) -> str:
        """Attention and feed-forward, each of what is normalised."""
        x = self.add(x, self.attention(self.norm(x, f"{name}/norm1"), f"{name}/attention"))
        return self.add(x, self.feed_forward(self.norm(x, f"{name}/norm2"), f"{name}/feed_forward"))

    def post_norm_block(self, x: str, name: str) -> str:
        """Attention and feed-forward; each sum with what came in is normalised."""
        x = self.norm(self.add(x, self.attention(x, f"{name}/attention")), f"{name}/norm1")
        return self.norm(self.add(x, self.feed_forward(x, f"{name}/feed_forward")), f"{name}/norm2")

    def flat(self, x: str) -> str:
        """[batch, length, width] as [batch * length, width]."""
        return self.builder.reshape_const(self.builder.aiOnnx, [x], [self.batch * self.length, self.width])

    def embedded(self, ids: str, vocabulary: int, name: str) -> tuple[str, str]:
        """Rows of a table of weights: [batch, length, width], and the table."""
        table = self.weights.normal((vocabulary, self.width), 0.02, name)
        return self.builder.aiOnnx.gather([table, ids]), table

    def first_of_each(self, x: str) -> str:
        """The first position of every sequence: [batch, width]."""
        builder = self.builder.aiOnnx
        y = self.builder.reshape_const(builder, [x], [self.batch, self.length, self.width])
        return self.builder.reshape_const(builder, [self.start(y, 1, 1)], [self.batch, self.width])

    def positions(self, context: int) -> str:
        """A row for each position, of a table that has ``context`` of them."""
        table = self.weights.normal((context, self.width), 0.02, "positions")
        return table if self.length == context else self.start(table, 0, self.length)

    def start(self, x: str, axis: int, count: int) -> str:
        """The first ``count`` along an axis."""
        zero, end, along = (self.builder.aiOnnx.constant(np.array([n], np.int64)) for n in (0, count, axis))
        made: str = self.builder.aiOnnx.slice([x, zero, end, along])
        return made

    def logits(self, x: str, table: str) -> str:
        """Products with every row of a table."""
        made: str = self.builder.aiOnnx.matmul([x, self.builder.aiOnnx.transpose([table], [1, 0])])
        return made

    def loss(self, logits: str, labels: str) -> str:
        """The mean negative log-likelihood of the labels."""
        made: str = self.builder.aiGraphcore.nllloss([self.builder.aiOnnx.softmax([logits]), labels])
        return made
