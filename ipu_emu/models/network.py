"""Network: a graph to which ops, inputs and weights are added one by one, with unique ids."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ipu_emu.graph import Graph, Op, Role, Tensor, dtype_named
from ipu_emu.graph.dtype import dtype_of
from ipu_emu.graph.op import GRAPHCORE
from ipu_emu.ops import append
from ipu_emu.ops.random.normal_numbers import normal_numbers

#: The version of ai.onnx that networks use.
OPSET = 10


class Network:
    """A graph under construction, with one element type of weights and activations; weights depend only on the seed.

    Without a ``seed`` weights are zeros that take no memory, for networks that are only analysed.
    """

    def __init__(self, dtype: Any, seed: int | None) -> None:
        self.graph = Graph()
        self.dtype, self.seed = np.dtype(dtype), seed
        self._random = np.random.default_rng(seed)

    # Ops

    def onnx(self, type: str, *inputs: str, outputs: int = 1, **attributes: Any) -> str:
        """Add an op of ai.onnx; return its first output."""
        return self._op("", OPSET, type, inputs, outputs, attributes)

    def graphcore(self, type: str, *inputs: str, outputs: int = 1, **attributes: Any) -> str:
        """Add an op of ai.graphcore; return its first output."""
        return self._op(GRAPHCORE, 1, type, inputs, outputs, attributes)

    def _op(
        self, domain: str, version: int, type: str, inputs: Sequence[str], outputs: int, attributes: dict[str, Any]
    ) -> str:
        ids = tuple(self.graph.unused(f"{type}:{index}") for index in range(outputs))
        append(self.graph, Op(type, tuple(inputs), ids, attributes, domain, version))
        return ids[0]

    def constant(self, value: Any, dtype: Any = np.int64) -> str:
        """Add a constant."""
        return self.onnx("Constant", value=np.array(value, dtype))

    def reshape(self, x: str, shape: Sequence[int]) -> str:
        """Reshape ``x``."""
        return self.onnx("Reshape", x, self.constant(shape))

    def loss(self, logits: str, labels: str) -> str:
        """Return the mean negative log-likelihood of the labels."""
        return self.graphcore("Nll", self.onnx("Softmax", logits), labels)

    # Inputs and weights

    def input(self, shape: Sequence[int], name: str, kind: str = "") -> str:
        """Add an input; ``kind`` is the name of its element type, by default that of the weights."""
        dtype = dtype_named(kind) if kind else dtype_of(np.empty(0, self.dtype))
        self.graph.inputs.append(name)
        return self.graph.add(Tensor(name, dtype, tuple(shape), Role.INPUT)).id

    def normal(self, shape: Sequence[int], scale: float, name: str) -> str:
        """Add a weight with normal values times ``scale``."""
        if self.seed is None:
            return self.full(shape, 0, name)
        return self._weight(normal_numbers(self._random, shape) * np.float32(scale), name)

    def full(self, shape: Sequence[int], value: float, name: str) -> str:
        """Add a weight whose elements are all ``value``."""
        return self._weight(np.broadcast_to(np.float32(value), tuple(shape)), name)

    def _weight(self, value: NDArray[Any], name: str) -> str:
        none = self.seed is None
        data = np.broadcast_to(np.zeros((), self.dtype), value.shape) if none else value.astype(self.dtype, order="C")
        return self.graph.add(Tensor(name, dtype_of(data), value.shape, Role.WEIGHT), data).id
