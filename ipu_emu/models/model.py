"""Model: a network with its loss as an ONNX ModelProto, and the ids of what a user needs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ipu_emu.popart.builder import Builder
from ipu_emu.popart.tensorinfo import TensorInfo

__all__ = ["Model", "Weights"]


@dataclass(frozen=True)
class Model:
    """``proto`` is a serialised ModelProto; the inputs are one micro-batch of one replica."""

    proto: bytes
    data: str
    labels: str
    output: str
    loss: str


class Weights:
    """Adds weights to a builder: normal values from a seed, in one element type."""

    def __init__(self, builder: Builder, dtype: Any, seed: int) -> None:
        self.builder, self.dtype = builder, np.dtype(dtype)
        self.random = np.random.default_rng(seed)

    def add(self, value: NDArray[Any], name: str) -> str:
        id: str = self.builder.addInitializedInputTensor(value.astype(self.dtype), debugContext=name)
        return id

    def normal(self, shape: Sequence[int], scale: float, name: str) -> str:
        """Normal values times ``scale``."""
        return self.add(self.random.standard_normal(tuple(shape), np.float32) * np.float32(scale), name)

    def full(self, shape: Sequence[int], value: float, name: str) -> str:
        return self.add(np.full(tuple(shape), value, np.float32), name)

    def input(self, kind: str, shape: Sequence[int], name: str) -> str:
        """An input; ``kind`` is a name of an element type, or the empty text for that of the weights."""
        names = {"float32": "FLOAT", "float16": "FLOAT16"}
        info = TensorInfo(kind or names[self.dtype.name], list(shape))
        id: str = self.builder.addInputTensor(info, debugContext=name)
        return id
