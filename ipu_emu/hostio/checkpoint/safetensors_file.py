"""safetensors file: named arrays in one file of the safetensors format, which many tools read.

8 bytes    length of the header, little-endian
header     JSON: {"name": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}, ...}, padded with spaces
arrays     one after the other, C order, little-endian

The safetensors package reads these files. Its own writer holds the GIL and computes no checksum; the writer here
releases the GIL for the training thread, and hashes each piece as it writes it.
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
from safetensors import SafetensorError
from safetensors.numpy import load_file

from popdist_py import trace
from popdist_py.files.bounded_read import open_regular

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
#: The header is padded to a multiple of this number of bytes.
_ALIGNMENT = 8
#: Bytes hashed and written at a time: they stay in the cache in between.
_PIECE_BYTES = 1 << 18


def write(path: Path, arrays: Mapping[str, _Array], *, pause: Callable[[], None] = lambda: None) -> str:
    """Write C-contiguous ``arrays`` to a new file and flush them to the disk; return the SHA-256 of the file.

    ``pause`` is called between pieces.
    """
    digest = sha256()
    with path.open("xb", buffering=0) as file:  # neither follows a symbolic link nor opens what is there
        parts = {"(header)": _header(arrays), **{name: _bytes(array) for name, array in arrays.items()}}
        for name, part in parts.items():
            with trace.span("write a section", trace.Category.CHECKPOINT, section=name, bytes=len(part)):
                for start in range(0, len(part), _PIECE_BYTES):
                    piece = part[start : start + _PIECE_BYTES]
                    digest.update(piece)
                    _write_all(file.fileno(), piece)
                    pause()
        with trace.span("flush to the disk", trace.Category.CHECKPOINT):
            os.fsync(file.fileno())
    return digest.hexdigest()


def read(path: Path) -> dict[str, _Array]:
    """Return the arrays of a file; raise ValueError if it is not a safetensors file."""
    try:
        os.close(open_regular(path))
        arrays: dict[str, _Array] = load_file(path)
    except (SafetensorError, LookupError, TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"{path}: {error}") from error
    return arrays


def checksum(path: Path) -> tuple[int, str]:
    """Return the bytes of a file, and its SHA-256."""
    digest, size = sha256(), 0
    with os.fdopen(open_regular(path), "rb", buffering=0) as file:
        while piece := file.read(_PIECE_BYTES):
            digest.update(piece)
            size += len(piece)
    return size, digest.hexdigest()


def _header(arrays: Mapping[str, _Array]) -> memoryview:
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
