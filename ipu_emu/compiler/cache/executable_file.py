"""Executable file: an executable as bytes, with a checksum.

8 bytes    magic, with the version of this layout
32 bytes   SHA-256 of all that follows
8 bytes    length of the head, little-endian
head       msgpack: key, and the executable as ``codec`` writes it, with the place of each blob
blobs      the arrays, each at a multiple of 64 bytes from the end of the head
"""

from __future__ import annotations

from hashlib import sha256
from typing import Any

import msgpack

from ipu_emu.compiler.cache.executable_codec import Decoder, Encoder
from ipu_emu.errors import EmulatorError
from ipu_emu.program.executable import Executable

__all__ = ["from_bytes", "to_bytes"]

_MAGIC = b"IPUEMU\x00\x01"
_ALIGNMENT = 64
_START = len(_MAGIC) + 32


def to_bytes(executable: Executable, key: str) -> bytes:
    """Return ``executable`` as the content of a file."""
    encoder = Encoder()
    made = encoder.encode(executable)
    places, end = [], 0
    for blob in encoder.blobs:
        places.append([end, blob.nbytes])
        end = -(-(end + blob.nbytes) // _ALIGNMENT) * _ALIGNMENT
    head = msgpack.packb({"key": key, "executable": made, "blobs": places})
    body = bytearray(len(head).to_bytes(8, "little") + head + bytes(end))
    for (place, size), blob in zip(places, encoder.blobs, strict=True):
        start = 8 + len(head) + place
        body[start : start + size] = blob.tobytes()
    return _MAGIC + sha256(body).digest() + bytes(body)


def from_bytes(data: bytes, key: str | None = None) -> Executable:
    """Reverse ``to_bytes``; raise EmulatorError for bytes that are damaged, or of another key."""
    if data[: len(_MAGIC)] != _MAGIC:
        raise EmulatorError("it is not an executable of this version")
    body = memoryview(data)[_START:]
    if len(body) < 8 or sha256(body).digest() != data[len(_MAGIC) : _START]:
        raise EmulatorError("it is truncated or damaged: its checksum does not match")
    length = int.from_bytes(body[:8], "little")
    try:
        return _decoded(body[8 : 8 + length], body[8 + length :], key)
    except RecursionError:
        raise EmulatorError("it is nested too deeply") from None
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, msgpack.UnpackException) as error:
        raise EmulatorError(f"it does not hold an executable ({error})") from error


def _decoded(packed: memoryview, blobs: memoryview, key: str | None) -> Executable:
    head: dict[str, Any] = msgpack.unpackb(packed, strict_map_key=False)
    if key is not None and head["key"] != key:
        raise EmulatorError("it was compiled from another model, or with other options")

    def blob(number: int) -> memoryview:
        place, size = head["blobs"][number]
        return blobs[place : place + size]

    made = Decoder(blob).decode(head["executable"])
    if not isinstance(made, Executable):
        raise EmulatorError("it does not hold an executable")
    return made
