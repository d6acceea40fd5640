"""Segment: memory from which tensors are allocated so that other ranks can address them.

The address space is reserved once, pages are taken when touched, and freed blocks are kept for the next tensor
of the same size: first touch of a page costs more than reducing it.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import weakref
from collections import defaultdict
from functools import cache
from math import prod
from threading import Lock
from typing import Any

import numpy as np

from gcl.errors import ArgumentError, TransportError

_ALIGNMENT = 4096
_MAP_NORESERVE, _MAP_FIXED = 0x4000, 0x10
_FAILED = ctypes.c_void_p(-1).value  # what mmap returns on failure

#: Address space of one rank's segment: all of the machine's memory, at most 64 GiB.
DEFAULT_BYTES = min(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"), 64 << 30)


def map_memory(descriptor: int, nbytes: int) -> np.ndarray:
    """``nbytes`` of ``descriptor`` (-1: anonymous memory) as uint8; raise TransportError if they do not fit.

    It stays mapped while any view of it exists. The descriptor may be closed: unlike ``mmap.mmap``, this keeps none.
    """
    flags = mmap.MAP_SHARED | _MAP_NORESERVE | (mmap.MAP_ANONYMOUS if descriptor < 0 else 0)
    address = _libc().mmap(None, nbytes, mmap.PROT_READ | mmap.PROT_WRITE, flags, descriptor, 0)
    if address == _FAILED:
        raise TransportError(
            f"{nbytes >> 20} MiB of address space for a shared segment could not be reserved: "
            f"{os.strerror(ctypes.get_errno())}; raise `ulimit -v`, or connect with a smaller segment_bytes"
        )
    memory = (ctypes.c_uint8 * nbytes).from_address(address)
    weakref.finalize(memory, _libc().munmap, address, nbytes).atexit = False  # other threads may still use it
    return np.ctypeslib.as_array(memory)


def map_over(address: int, nbytes: int, descriptor: int) -> bool:
    """Map the memory of ``descriptor`` (-1: none yet) over whole mapped pages; return whether that succeeded."""
    flags = mmap.MAP_SHARED | _MAP_NORESERVE | _MAP_FIXED | (mmap.MAP_ANONYMOUS if descriptor < 0 else 0)
    mapped_address = _libc().mmap(address, nbytes, mmap.PROT_READ | mmap.PROT_WRITE, flags, descriptor, 0)
    return bool(mapped_address == address)


@cache
def _libc() -> ctypes.CDLL:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
    libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    return libc


def array_at(address: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray:
    """The tensor at ``address``, in memory that the caller keeps mapped."""
    nbytes = prod(shape) * dtype.itemsize
    if not nbytes:
        return np.empty(shape, dtype)
    memory = (ctypes.c_uint8 * nbytes).from_address(address)
    return np.ctypeslib.as_array(memory).view(dtype).reshape(shape)


class Segment:
    """Allocator over one rank's memory ``bytes_`` (uint8)."""

    def __init__(self, bytes_: np.ndarray) -> None:
        self._bytes = bytes_
        self.address: int = bytes_.ctypes.data
        self._top = 0
        self._lock = Lock()  # threads of PyTorch's programs allocate concurrently
        self._free: defaultdict[int, list[int]] = defaultdict(list)

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray:
        """A zeroed C-contiguous array, pages touched; its memory is reused when it is deleted."""
        array = self.uninitialised(shape, dtype)
        array.fill(0)
        return array

    def uninitialised(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray:
        """As ``empty``, but uninitialised."""
        nbytes = prod(shape) * dtype.itemsize
        size = _size_class(nbytes)
        offset = self._take(size)
        owner = np.frombuffer(self._bytes.data, dtype, count=prod(shape), offset=offset)
        weakref.finalize(owner, self._free[size].append, offset)
        return owner.reshape(shape)

    def reserve(self, nbytes: int) -> None:
        """Reserve the first ``nbytes``; must be called before the first tensor."""
        self._take(-(-nbytes // _ALIGNMENT) * _ALIGNMENT)

    def reserved(self, nbytes: int) -> int:
        """Offset of ``nbytes`` of whole pages that no tensor gets, for ``map_over``."""
        with self._lock:
            if self._top + nbytes > self._bytes.size:
                return -1
            self._top += nbytes
            return self._top - nbytes

    def _take(self, nbytes: int) -> int:
        with self._lock:
            return self._taken(nbytes)

    def _taken(self, nbytes: int) -> int:
        if self._free[nbytes]:
            return self._free[nbytes].pop()
        if self._top + nbytes > self._bytes.size:
            raise ArgumentError(
                f"{nbytes} bytes do not fit the shared segment, which has {self._bytes.size - self._top} bytes left; "
                "free tensors, or raise segment_bytes"
            )
        self._top += nbytes
        return self._top - nbytes

    def offset_of(self, array: np.ndarray) -> int | None:
        """Where ``array`` starts in this segment, None if it is not in it."""
        offset = int(array.__array_interface__["data"][0]) - self.address
        return offset if 0 <= offset < self._bytes.size else None


def _size_class(nbytes: int) -> int:
    """Room for ``nbytes``: whole pages, four sizes to the octave, so that freed blocks fit again."""
    step = max(_ALIGNMENT, 1 << max(0, nbytes.bit_length() - 3))
    return max(1, -(-nbytes // step)) * step
