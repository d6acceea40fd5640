"""dtypes: what can be reduced, and how it looks to compiled code."""

from __future__ import annotations

from typing import Any

import numpy as np

from gcl.errors import ArgumentError

__all__ = ["DTYPES", "sum_dtype", "witness"]

#: dtype -> the dtype under which kernels see its elements (half travels as its 16 bits).
DTYPES: dict[np.dtype[Any], np.dtype[Any]] = {
    np.dtype(np.float32): np.dtype(np.float32),
    np.dtype(np.float16): np.dtype(np.uint16),
}


def witness(dtype: np.dtype[Any]) -> np.ndarray:
    """An empty array that tells kernels the element type; raise ArgumentError listing those there are."""
    if dtype not in DTYPES:
        raise ArgumentError(f"a tensor of {dtype} was asked for; there are {', '.join(map(str, DTYPES))}")
    return np.empty(0, DTYPES[dtype])


def sum_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The dtype in which ``dtype`` is summed: float32 for float16, else its own."""
    return np.dtype(np.float32) if dtype == np.float16 else dtype
