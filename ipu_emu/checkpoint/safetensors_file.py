"""Container: named arrays in one file of the safetensors format, which many tools read.

8 bytes    length of the head, little-endian
head       JSON: {"name": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}, ...}, padded with spaces
arrays     one after the other, C order, little-endian

The safetensors package holds the GIL while it writes; this writer leaves it to the thread that trains.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

__all__ = ["checksum", "read", "write"]

_Array = NDArray[Any]

_NAMES = {
    np.dtype(np.float64): "F64",
    np.dtype(np.float32): "F32",
    np.dtype(np.float16): "F16",
    np.dtype(ml_dtypes.bfloat16): "BF16",
    np.dtype(np.int64): "I64",
    np.dtype(np.int32): "I32",
    np.dtype(np.int16): "I16",
    np.dtype(np.int8): "I8",
    np.dtype(np.uint64): "U64",
    np.dtype(np.uint32): "U32",
    np.dtype(np.uint16): "U16",
    np.dtype(np.uint8): "U8",
    np.dtype(np.bool_): "BOOL",
}
_DTYPES = {name: dtype for dtype, name in _NAMES.items()}
#: Arrays start at multiples of this.
_ALIGNMENT = 8
#: Bytes that are hashed and written at a time: they stay in the cache between the two.
_PIECE = 1 << 18


def write(path: Path, arrays: Mapping[str, _Array], *, pause: Callable[[], None] = lambda: None) -> str:
    """Write C-contiguous ``arrays`` to ``path`` and to the disk itself; return the file's SHA-256.

    ``pause`` is called between pieces.
    """
    digest = sha256()
    with path.open("wb", buffering=0) as file:
        for part in (_head(arrays), *(_bytes(array) for array in arrays.values())):
            for start in range(0, len(part), _PIECE):
                piece = part[start : start + _PIECE]
                digest.update(piece)
                _write_all(file.fileno(), piece)
                pause()
        os.fsync(file.fileno())
    return digest.hexdigest()


def read(path: Path) -> dict[str, _Array]:
    """The arrays of a file, mapped: they are read as they are used. Raise ValueError if it is not such a file."""
    raw = np.memmap(path, np.uint8, mode="r")
    length = int.from_bytes(raw[:8].tobytes(), "little")
    head = json.loads(raw[8 : 8 + length].tobytes())
    data = raw[8 + length :]
    return {
        name: data[slice(*entry["data_offsets"])].view(_DTYPES[entry["dtype"]]).reshape(entry["shape"])
        for name, entry in head.items()
        if name != "__metadata__"
    }


def checksum(path: Path) -> str:
    """SHA-256 of a file."""
    digest = sha256()
    with path.open("rb", buffering=0) as file:
        while piece := file.read(_PIECE):
            digest.update(piece)
    return digest.hexdigest()


def _head(arrays: Mapping[str, _Array]) -> memoryview:
    entries, end = {}, 0
    for name, array in arrays.items():
        entries[name] = {
            "dtype": _NAMES[array.dtype],
            "shape": list(array.shape),
            "data_offsets": [end, end + array.nbytes],
        }
        end += array.nbytes
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-len(text) % _ALIGNMENT)
    return memoryview(len(text).to_bytes(8, "little") + text)


def _bytes(array: _Array) -> memoryview:
    return array.reshape(-1).view(np.uint8).data


def _write_all(descriptor: int, piece: memoryview) -> None:
    while piece:
        piece = piece[os.write(descriptor, piece) :]
