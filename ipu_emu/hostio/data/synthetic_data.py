"""Synthetic data: made up on the device; nothing is read from the host, and nothing written back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from ipu_emu.graph import Tensor

__all__ = ["synthetic_chunk"]

_Make = Callable[[np.random.Generator, tuple[int, ...]], NDArray[Any]]

#: By the names of PopART's modes.
_MODES: dict[str, _Make] = {
    "Zeros": lambda random, shape: np.zeros(shape),
    "RandomNormal": lambda random, shape: random.standard_normal(shape),
    "RandomUniform": lambda random, shape: random.random(shape),
}


def synthetic_chunk(mode: str, tensor: Tensor) -> NDArray[Any]:
    """What every micro-batch of every replica sees; it depends on the id alone. Integers are zero or one."""
    values = _MODES[mode](np.random.default_rng(crc32(tensor.id.encode())), tensor.shape)
    return (values if tensor.dtype.is_float else values > 1).astype(tensor.dtype.numpy)
