"""Held copies: operands that no step changes, copied once in the order in which kernels read them.

    weights [k, n] of a product   ->   strips of columns, as ``product`` reads them

The weights of inference change only when the host sets them; ``refresh`` then renews the copies. Copies are
contiguous in the order of the ops, so that a kernel can prefetch the operands of the next one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from mmap import MAP_ANONYMOUS, MAP_PRIVATE, mmap
from typing import Any

import numpy as np
from numpy.typing import NDArray

_Array = NDArray[Any]
#: Bytes that are reserved at a time; they take no memory until they are written.
_RESERVED = 1 << 26
_LINE = 64


def _private_pages(nbytes: int) -> mmap:
    return mmap(-1, nbytes, flags=MAP_PRIVATE | MAP_ANONYMOUS)


class HeldCopies:
    """Copies of the tensors ``ids`` of all local replicas, in memory of ``pages`` of a number of bytes."""

    def __init__(self, ids: Collection[str] = (), pages: Callable[[int], Any] | None = None) -> None:
        self.ids, self._pages = frozenset(ids), pages or _private_pages
        self.nbytes = 0
        self._copies: dict[tuple[Any, ...], _Array] = {}
        self._calls: list[Callable[[], object]] = []
        self._free = np.empty(0, np.float32)

    def copy(self, source: _Array, form: str, nelms: int, fill: Callable[[_Array], Sequence[Any]]) -> _Array:
        """The float32 copy of ``source`` in a ``form``, which the calls of ``fill`` fill; all users share it."""
        key = (form, source.ctypes.data, source.shape, source.strides, source.dtype.str)
        if key not in self._copies:
            copy = self._copies[key] = self._allocated(nelms)
            self._calls += fill(copy)
        return self._copies[key]

    def refresh(self) -> None:
        """Renew all copies from the current values."""
        for call in self._calls:
            call()

    def _allocated(self, nelms: int) -> _Array:
        nbytes = -(-4 * nelms // _LINE) * _LINE
        if 4 * self._free.size < nbytes:
            self._free = np.frombuffer(self._pages(max(nbytes, _RESERVED)), np.float32)
        array, self._free = self._free[:nelms], self._free[nbytes // 4 :]
        self.nbytes += nbytes
        return array
