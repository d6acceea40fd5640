"""Networks: small models of each kind, built by the Builder and in PyTorch from the same weights."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ipu_emu import popart

__all__ = ["Network", "cnn", "mlp", "transformer"]


class Network:
    """A builder with an input ``x``, labels, a loss, and its weights by name in order."""

    def __init__(self, seed: int, data: tuple[int, ...], labels: tuple[int, ...], kind: str = "FLOAT") -> None:
        self.random = np.random.default_rng(seed)
        self.builder = popart.Builder()
        self.x = self.builder.addInputTensor(kind, list(data))
        self.labels = self.builder.addInputTensor("INT32", list(labels))
        self.shapes, self.classes = (data, labels), 5
        self.weights: dict[str, np.ndarray] = {}
        self.kind, self.loss = kind, ""

    def weight(self, name: str, *shape: int, scale: float | None = None) -> str:
        """A weight of normal values whose size keeps activations near 1; None of them is 0."""
        size = scale if scale is not None else (1 / np.sqrt(np.prod(shape[1:]) if len(shape) > 2 else shape[0]))
        self.weights[name] = (self.random.standard_normal(shape) * size).astype(np.float32)
        return self.builder.addInitializedInputTensor(self.weights[name], name)

    def constant(self, name: str, value: float, *shape: int) -> str:
        self.weights[name] = np.full(shape, value, np.float32)
        return self.builder.addInitializedInputTensor(self.weights[name], name)

    def finish(self, logits: str) -> Network:
        probabilities = self.builder.aiOnnx.softmax([logits], len(self.shapes[1]))
        self.loss = self.builder.aiGraphcore.nllloss([probabilities, self.labels])
        return self

    def step(self, seed: int, *prefix: int) -> dict[str, np.ndarray]:
        """Inputs of a step, [*prefix, micro-batch...]."""
        random = np.random.default_rng(seed)
        x = random.standard_normal((*prefix, *self.shapes[0])).astype(np.float32)
        if self.kind == "INT32":
            x = random.integers(0, 7, x.shape).astype(np.int32)
        labels = random.integers(0, self.classes, (*prefix, *self.shapes[1])).astype(np.int32)
        return {self.x: x, self.labels: labels}


def mlp() -> Network:
    """Two layers."""
    net = Network(0, (8, 6), (8,))
    a = net.builder.aiOnnx
    h = a.relu([a.gemm([net.x, net.weight("w1", 6, 9), net.weight("b1", 9)])])
    return net.finish(a.gemm([h, net.weight("w2", 9, 5), net.weight("b2", 5)]))


def cnn(*, normalise: bool = False) -> Network:
    """Convolution, batch normalisation (if asked for), pooling and a layer."""
    net = Network(1, (4, 2, 6, 6), (4,))
    a = net.builder.aiOnnx
    h = a.conv([net.x, net.weight("w1", 4, 2, 3, 3), net.weight("b1", 4)], pads=[1, 1, 1, 1])
    if normalise:
        parameters = [net.constant(n, v, 4) for n, v in (("scale", 1.0), ("shift", 0.1), ("mean", 0.0), ("var", 1.0))]
        h = a.batchnormalization([h, *parameters], 5)[0]
    h = a.relu([h])
    h = a.averagepool([h], [2, 2], strides=[2, 2])
    h = a.flatten([h])
    return net.finish(a.gemm([h, net.weight("w2", 36, 5), net.weight("b2", 5)]))


def transformer(*, dropout: bool = False) -> Network:
    """One head of self-attention over four characters of seven, with a feed-forward layer."""
    net = Network(2, (3, 4), (3, 4), "INT32")
    a, width = net.builder.aiOnnx, 8
    h = a.gather([net.weight("embedding", 7, width, scale=0.5), net.x])
    q, k, v = (a.matmul([h, net.weight(name, width, width)]) for name in "qkv")
    scores = net.builder.aiGraphcore.scale([a.matmul([q, a.transpose([k], [0, 2, 1])])], width**-0.5)
    h = a.add([h, a.matmul([a.softmax([scores], 2), v])])
    if dropout:
        h = a.dropout([h], 1, 0.25)[0]
    f = a.tanh([a.matmul([h, net.weight("w1", width, 12)])])
    h = a.add([h, a.matmul([f, net.weight("w2", 12, width)])])
    return net.finish(a.matmul([h, net.weight("head", width, 5)]))


def torch_loss(torch: Any, net: Network, name: str) -> tuple[dict[str, Any], Callable[[dict[str, np.ndarray]], Any]]:
    """(parameters, function of step data to the loss) of the same network in PyTorch."""
    p = {id: torch.nn.Parameter(torch.tensor(value)) for id, value in net.weights.items()}
    functional = torch.nn.functional

    def loss(data: dict[str, np.ndarray]) -> Any:
        x, labels = (torch.tensor(data[id]) for id in (net.x, net.labels))
        if name == "mlp":
            logits = torch.relu(x @ p["w1"] + p["b1"]) @ p["w2"] + p["b2"]
        elif name == "cnn":
            h = torch.relu(functional.conv2d(x, p["w1"], p["b1"], padding=1))
            logits = functional.avg_pool2d(h, 2).flatten(1) @ p["w2"] + p["b2"]
        else:
            h = p["embedding"][x.long()]
            q, k, v = (h @ p[n] for n in "qkv")
            h = h + torch.softmax(q @ k.transpose(1, 2) * 8**-0.5, 2) @ v
            logits = (h + torch.tanh(h @ p["w1"]) @ p["w2"]) @ p["head"]
        return functional.cross_entropy(logits.reshape(-1, 5), labels.long().reshape(-1))

    return p, loss
