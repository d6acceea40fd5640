"""Buffer pool: memory for data in transit, reused because the first touch of a page costs more than filling it."""

from __future__ import annotations

from typing import Any

import numpy as np

_LINE = 64  # bytes


class BufferPool:
    """Allocates arrays one after the other from one block; ``clear`` frees all of them."""

    def __init__(self) -> None:
        self._bytes = np.empty(0, np.uint8)
        self._top = 0

    def clear(self) -> None:
        """Free all arrays."""
        self._top = 0

    def take(self, count: int, dtype: np.dtype[Any]) -> np.ndarray:
        """An uninitialised array of ``count`` elements; arrays taken earlier stay valid."""
        nbytes = count * dtype.itemsize
        start, self._top = self._top, self._top + -(-nbytes // _LINE) * _LINE
        if self._top > self._bytes.size:
            self._bytes = np.empty(max(self._top, 2 * self._bytes.size), np.uint8)
        return self._bytes[start : start + nbytes].view(dtype)
