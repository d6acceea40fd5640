"""Remote buffers: the Streaming Memory of a system, and the buffers that a program has in it.

    memory = StreamingMemory(capacity=GC200.streaming_memory)
    buffer = memory.add_buffer("samples", (32, 224), np.float16, repeats=1000)
    buffer.write(values, 7)                      host -> Streaming Memory
    buffer.read(7)                               Streaming Memory -> host, a copy
    buffer.view(7)                               a view of it

Streaming Memory is memory of the host, separate from that of the emulated IPUs; pages are allocated on
their first use. Each replica has its own buffer with ``repeats`` entries, which are zero until they are written.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Mapping
from math import prod
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from gcl.drawing.units import memory as amount
from ipu_emu.errors import EmulatorError, OutOfMemoryError

_Array = NDArray[Any]

#: The offset and the size of every buffer are multiples of this number of bytes.
_ALIGNMENT = 64


def mapped(nbytes: int, folder: str | Path | None = None) -> NDArray[np.uint8]:
    """Return zeroed bytes, in an unnamed file in ``folder`` if given; raise EmulatorError if there is no space.

    The file may be larger than the host's memory, and disappears with the process.
    """
    try:
        if folder is None:
            return np.frombuffer(mmap.mmap(-1, nbytes), np.uint8)
        with TemporaryFile(dir=folder) as file:
            os.posix_fallocate(file.fileno(), 0, nbytes)
            return np.frombuffer(mmap.mmap(file.fileno(), nbytes), np.uint8)
    except OSError as error:
        where, other = ("memory", "a") if folder is None else (folder, "another")
        raise EmulatorError(
            f"Cannot allocate {nbytes:,} bytes of Streaming Memory in {where}: {error.strerror}. Choose {other} "
            "folder in engineOptions['streamingMemory.folder'], or keep less off chip"
        ) from None


def _is_whole(number: object) -> bool:
    return isinstance(number, int | np.integer) and not isinstance(number, bool)


class RemoteBuffer:
    """``repeats`` entries of one shape and type for each replica; threads may use different entries in parallel."""

    def __init__(self, handle: str, array: _Array, nbytes: int) -> None:
        self.handle, self.nbytes = handle, nbytes
        self._array = array

    @property
    def replicas(self) -> int:
        """Number of replicas that have a part of the buffer."""
        return int(self._array.shape[0])

    @property
    def repeats(self) -> int:
        """Number of entries."""
        return int(self._array.shape[1])

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one entry."""
        return self._array.shape[2:]

    @property
    def dtype(self) -> np.dtype[Any]:
        """Element type."""
        return self._array.dtype

    def view(self, index: int = 0, *, replica: int = 0) -> _Array:
        """Return a view of one entry; raise EmulatorError if there is none."""
        for name, number, count in (("place", index, self.repeats), ("replica", replica, self.replicas)):
            if not _is_whole(number) or not 0 <= number < count:
                raise EmulatorError(
                    f"Remote buffer '{self.handle}': {name} {number!r} is out of range; use 0 to {count - 1}"
                )
        place: _Array = self._array[replica, index, ...]
        return place

    def __len__(self) -> int:
        """Number of entries: with ``[index]``, on the first replica, a buffer is a data set for feeds."""
        return self.repeats

    def __getitem__(self, index: int) -> _Array:
        return self.view(index)

    def write(self, value: Any, index: int = 0, *, replica: int = 0) -> None:
        """Copy ``value`` to an entry of the same shape; types are cast by numpy's ``same_kind`` rule."""
        place, array = self.view(index, replica=replica), np.asarray(value)
        if array.shape != place.shape or not np.can_cast(array.dtype, place.dtype, "same_kind"):
            raise EmulatorError(
                f"Remote buffer '{self.handle}': {array.dtype}{list(array.shape)} was given; it holds "
                f"{place.dtype}{list(place.shape)}"
            )
        np.copyto(place, array, casting="same_kind")

    def read(self, index: int = 0, *, replica: int = 0, out: _Array | None = None) -> _Array:
        """Return a copy of an entry, in ``out`` if given."""
        place = self.view(index, replica=replica)
        if out is None:
            return place.copy()
        if out.shape != place.shape or out.dtype != place.dtype:
            raise EmulatorError(
                f"Remote buffer '{self.handle}': the array is {out.dtype}{list(out.shape)}, but an entry is "
                f"{place.dtype}{list(place.shape)}; give an array of that type and shape"
            )
        np.copyto(out, place)
        return out

    def __repr__(self) -> str:
        places = f"{self.repeats} x {self.dtype}{list(self.shape)}"
        return f"RemoteBuffer({self.handle!r}, {places}, {self.replicas} replicas)"


class StreamingMemory:
    """Streaming Memory of ``capacity`` bytes, ``taken`` of them in use; None is unlimited, 0 a system without it.

    With a ``folder`` each buffer is a file there without a name, which may be larger than the host's memory.
    """

    def __init__(self, capacity: int | None = None, *, taken: int = 0, folder: str | Path | None = None) -> None:
        self.capacity, self._taken, self._folder = capacity, taken, folder
        self._buffers: dict[str, RemoteBuffer] = {}

    @property
    def used(self) -> int:
        """Bytes in use: all buffers, and the bytes that were taken before."""
        return self._taken + sum(buffer.nbytes for buffer in self._buffers.values())

    @property
    def free(self) -> int | None:
        """Free bytes; None without a limit."""
        return None if self.capacity is None else self.capacity - self.used

    @property
    def buffers(self) -> Mapping[str, RemoteBuffer]:
        """Buffers by handle."""
        return dict(self._buffers)

    def add_buffer(
        self, handle: str, shape: tuple[int, ...], dtype: DTypeLike, *, repeats: int = 1, replicas: int = 1
    ) -> RemoteBuffer:
        """Return a new buffer of zeros.

        Raise EmulatorError for a handle that is in use or counts below 1, OutOfMemoryError if it does not fit.
        """
        counts = {"repeats": repeats, "replicas": replicas} | {f"shape[{i}]": n for i, n in enumerate(shape)}
        wrong = [name for name, count in counts.items() if not _is_whole(count) or count < 1]
        if wrong or not handle or handle in self._buffers:
            fault = ", ".join(f"{name}={counts[name]!r}" for name in wrong) or f"handle {handle!r}"
            raise EmulatorError(
                f"Remote buffer '{handle}': {fault} is not possible; give each buffer a unique handle, and "
                "counts of at least 1"
            )
        places = replicas * repeats
        nbytes = -(-places * prod(shape) * np.dtype(dtype).itemsize // _ALIGNMENT) * _ALIGNMENT
        self._check(handle, nbytes)
        memory = mapped(nbytes, self._folder)[: places * prod(shape) * np.dtype(dtype).itemsize]
        buffer = RemoteBuffer(handle, memory.view(dtype).reshape(replicas, repeats, *shape), nbytes)
        self._buffers[handle] = buffer
        return buffer

    def remove(self, handle: str) -> None:
        """Remove a buffer; arrays that are views of it keep its memory until they are deleted."""
        if self._buffers.pop(handle, None) is None:
            raise EmulatorError(
                f"There is no remote buffer '{handle}'; there are {', '.join(self._buffers) or 'none'}"
            )

    def clear(self) -> None:
        """Remove all buffers."""
        self._buffers.clear()

    def _check(self, handle: str, nbytes: int) -> None:
        if self.capacity == 0:
            raise OutOfMemoryError(
                f"Remote buffer '{handle}': the current configuration of the IPU devices does not support remote "
                "memory. Use another system"
            )
        if self.free is not None and nbytes > self.free:
            raise OutOfMemoryError(
                f"Remote buffer '{handle}' needs {amount(nbytes)} of Streaming Memory; "
                f"{amount(self.free)} of {amount(self.capacity or 0)} are free"
            )
