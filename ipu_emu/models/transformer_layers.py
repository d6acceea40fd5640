"""TransformerLayers: the layers of transformers: linear, normalisation, attention, feed-forward, and their blocks."""

from __future__ import annotations

from math import sqrt
from typing import Any

import numpy as np

from ipu_emu.models.network import Network


class TransformerLayers(Network):
    """Adds layers to a network; activations: [batch * length, width]; ``causal`` attention masks later positions."""

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
        activation: str = "GeluErf",
    ) -> None:
        super().__init__(dtype, seed)
        self.batch, self.length, self.width, self.heads = batch, length, width, heads
        self.activation, self.mask = activation, ""
        if causal:
            self.mask = self.constant(np.triu(np.full((length, length), -1e4, np.float32), 1), self.dtype)

    def linear(self, x: str, inputs: int, outputs: int, name: str) -> str:
        w = self.normal((inputs, outputs), sqrt(1 / inputs), f"{name}/weights")
        return self.onnx("Gemm", x, w, self.full((outputs,), 0, f"{name}/bias"))

    def norm(self, x: str, name: str) -> str:
        scale = self.full((self.width,), 1, f"{name}/scale")
        bias = self.full((self.width,), 0, f"{name}/bias")
        return self.graphcore("GroupNormalization", x, scale, bias, outputs=3, num_groups=1, epsilon=1e-5)

    def add(self, x: str, y: str) -> str:
        return self.onnx("Add", x, y)

    def split_heads(self, x: str) -> str:
        """[batch * length, width] as [batch, heads, length, width / heads]."""
        shape = [self.batch, self.length, self.heads, self.width // self.heads]
        return self.onnx("Transpose", self.reshape(x, shape), perm=[0, 2, 1, 3])

    def attention(self, x: str, name: str) -> str:
        q, k, v = (self.split_heads(self.linear(x, self.width, self.width, f"{name}/{part}")) for part in "qkv")
        scores = self.onnx("MatMul", q, self.onnx("Transpose", k, perm=[0, 1, 3, 2]))
        scores = self.graphcore("Scale", scores, scale=1 / sqrt(self.width // self.heads))
        shares = self.onnx("Softmax", self.add(scores, self.mask) if self.mask else scores, axis=3)
        y = self.onnx("Transpose", self.onnx("MatMul", shares, v), perm=[0, 2, 1, 3])
        y = self.reshape(y, [self.batch * self.length, self.width])
        return self.linear(y, self.width, self.width, f"{name}/out")

    def feed_forward(self, x: str, name: str) -> str:
        y = self.activated(self.linear(x, self.width, 4 * self.width, f"{name}/up"))
        return self.linear(y, 4 * self.width, self.width, f"{name}/down")

    def activated(self, x: str) -> str:
        return self.graphcore(self.activation, x)

    def pre_norm_block(self, x: str, name: str) -> str:
        """Pre-norm block: x + attention(norm(x)), then x + feed-forward(norm(x))."""
        x = self.add(x, self.attention(self.norm(x, f"{name}/norm1"), f"{name}/attention"))
        return self.add(x, self.feed_forward(self.norm(x, f"{name}/norm2"), f"{name}/feed_forward"))

    def post_norm_block(self, x: str, name: str) -> str:
        """Post-norm block: norm(x + attention(x)), then norm(x + feed-forward(x))."""
        x = self.norm(self.add(x, self.attention(x, f"{name}/attention")), f"{name}/norm1")
        return self.norm(self.add(x, self.feed_forward(x, f"{name}/feed_forward")), f"{name}/norm2")

    def flat(self, x: str) -> str:
        """[batch, length, width] as [batch * length, width]."""
        return self.reshape(x, [self.batch * self.length, self.width])

    def embedded(self, ids: str, vocabulary: int, name: str) -> tuple[str, str]:
        """Embedding of ids: [batch, length, width], and the table of weights."""
        table = self.normal((vocabulary, self.width), 0.02, name)
        return self.onnx("Gather", table, ids), table

    def first_of_each(self, x: str) -> str:
        """The first position of every sequence: [batch, width]."""
        y = self.reshape(x, [self.batch, self.length, self.width])
        return self.reshape(self.start(y, 1, 1), [self.batch, self.width])

    def positions(self, context: int) -> str:
        """A learned embedding for each position, from a table of ``context`` rows."""
        table = self.normal((context, self.width), 0.02, "positions")
        return table if self.length == context else self.start(table, 0, self.length)

    def start(self, x: str, axis: int, count: int) -> str:
        """The first ``count`` elements along an axis."""
        return self.onnx("Slice", x, *(self.constant([n]) for n in (0, count, axis)))

    def logits(self, x: str, table: str) -> str:
        """Logits: the products with every row of a table."""
        return self.onnx("MatMul", x, self.onnx("Transpose", table, perm=[1, 0]))
