"""Model: a network with its loss, and the ids of what a user needs.

Networks are written with PopART's Builder: of the faces it is the one by which a graph is built op by op, with names
and opsets as in ONNX. What a Model holds is a graph, which no longer depends on it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ipu_emu.graph import Graph, Role, Tensor
from ipu_emu.graph.onnx_files import External
from ipu_emu.graph.onnx_model import to_model
from ipu_emu.popart.builder.builder import Builder, defaultAiOnnxOpset
from ipu_emu.popart.types.tensor_info import TensorInfo

__all__ = ["Model", "Weights"]


@dataclass(frozen=True)
class Model:
    """The inputs are one micro-batch of one replica; ``others`` are those besides ``data`` and ``labels``."""

    graph: Graph
    data: str
    labels: str
    output: str
    loss: str
    others: tuple[str, ...] = ()

    @cached_property
    def proto(self) -> bytes:
        """The network as a serialised ModelProto."""
        return self.serialised()

    def serialised(self, external: External | None = None) -> bytes:
        """Serialise the network as a ModelProto, with the data of ``external`` weights in a file of their own."""
        return to_model(self.graph, opset=defaultAiOnnxOpset, external=external)


class Weights:
    """Adds weights to the graph of a builder: normal values from a seed, in one element type.

    A ``seed`` of None is for networks that are only counted: their weights are zeros that take no memory.
    """

    def __init__(self, builder: Builder, dtype: Any, seed: int | None) -> None:
        self.builder, self.dtype, self.seed = builder, np.dtype(dtype), seed
        self.random = np.random.default_rng(seed)

    @property
    def graph(self) -> Graph:
        return self.builder._graph

    def normal(self, shape: Sequence[int], scale: float, name: str) -> str:
        """Normal values times ``scale``."""
        if self.seed is None:
            return self.full(shape, 0, name)
        return self._add(self.random.standard_normal(tuple(shape), np.float32) * np.float32(scale), name)

    def full(self, shape: Sequence[int], value: float, name: str) -> str:
        return self._add(np.broadcast_to(np.float32(value), tuple(shape)), name)

    def _add(self, value: NDArray[Any], name: str) -> str:
        if self.seed is None:
            none = np.broadcast_to(np.zeros((), self.dtype), value.shape)
            kind = TensorInfo(none).dtype
            return self.graph.add(Tensor(name, kind, value.shape, Role.WEIGHT), none).id
        id: str = self.builder.addInitializedInputTensor(value.astype(self.dtype), debugContext=name)
        return id

    def input(self, kind: str, shape: Sequence[int], name: str) -> str:
        """An input; ``kind`` is a name of an element type, or the empty text for that of the weights."""
        names = {"float32": "FLOAT", "float16": "FLOAT16"}
        info = TensorInfo(kind or names[self.dtype.name], list(shape))
        id: str = self.builder.addInputTensor(info, debugContext=name)
        return id
