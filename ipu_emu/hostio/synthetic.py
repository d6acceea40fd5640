"""SyntheticFeed: step data that is made up on the device; nothing is read from the host, and nothing written back."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from ipu_emu.graph import Tensor

__all__ = ["SyntheticFeed"]

_Make = Callable[[np.random.Generator, tuple[int, ...]], NDArray[Any]]

#: By the names of PopART's modes.
_MODES: dict[str, _Make] = {
    "Zeros": lambda random, shape: np.zeros(shape),
    "RandomNormal": lambda random, shape: random.standard_normal(shape),
    "RandomUniform": lambda random, shape: random.random(shape),
}


class SyntheticFeed:
    """Every micro-batch of every replica sees the same values, which depend on the id of the input alone."""

    def __init__(self, mode: str, tensors: Mapping[str, Tensor]) -> None:
        self._make = _MODES[mode]
        self._tensors = tensors
        self._made: dict[str, NDArray[Any]] = {}

    def read(self, id: str) -> NDArray[Any]:
        """The data of an input; integers are zero or one."""
        if id not in self._made:
            tensor = self._tensors[id]
            values = self._make(np.random.default_rng(crc32(id.encode())), tensor.shape)
            self._made[id] = (values if tensor.dtype.is_float else values > 1).astype(tensor.dtype.numpy)
        return self._made[id]

    def write(self, id: str, value: NDArray[Any]) -> None:
        """Keep nothing."""
