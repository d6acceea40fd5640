"""Packed value: results of the compiler as the content of a file, with a checksum.

8 bytes    magic, with the kind of value and the version of this layout
32 bytes   SHA-256 of all that follows
8 bytes    length of the head, little-endian
head       msgpack: key, and the value as ``Encoder`` writes it, with the place of each blob
blobs      the arrays, each at a multiple of 64 bytes from the end of the head
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from typing import Any

import msgpack

from ipu_emu.compiler.cache.executable_codec import CLASSES, Decoder, Encoder
from ipu_emu.errors import EmulatorError

_ALIGNMENT = 64
_START = 8 + 32


def pack(magic: bytes, value: Any, key: str = "") -> bytes:
    """Return ``value`` as the content of a file that begins with ``magic``, 8 bytes."""
    encoder = Encoder()
    encoded = encoder.encode(value)
    extents, end = [], 0
    for blob in encoder.blobs:
        extents.append([end, blob.nbytes])
        end = -(-(end + blob.nbytes) // _ALIGNMENT) * _ALIGNMENT
    head = msgpack.packb({"key": key, "value": encoded, "blobs": extents})
    body = bytearray(len(head).to_bytes(8, "little") + head + bytes(end))
    for (offset, size), blob in zip(extents, encoder.blobs, strict=True):
        start = 8 + len(head) + offset
        body[start : start + size] = blob.tobytes()
    return magic + sha256(body).digest() + bytes(body)


def unpack(
    magic: bytes, data: bytes, what: str, key: str | None = None, classes: Mapping[str, type] = CLASSES
) -> Any:
    """Reverse ``pack``; raise EmulatorError for bytes that are damaged, of another kind or of another ``key``.

    ``what`` is the noun for messages; only ``classes`` are made.
    """
    if data[: len(magic)] != magic:
        raise EmulatorError(f"it is not {what} of this version")
    body = memoryview(data)[_START:]
    if len(body) < 8 or sha256(body).digest() != data[len(magic) : _START]:
        raise EmulatorError("it is truncated or damaged: its checksum does not match")
    length = int.from_bytes(body[:8], "little")
    try:
        return _decoded(body[8 : 8 + length], body[8 + length :], key, classes)
    except RecursionError:
        raise EmulatorError("it is nested too deeply") from None
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, msgpack.UnpackException) as error:
        raise EmulatorError(f"it does not hold {what} ({error})") from error


def _decoded(packed: memoryview, blobs: memoryview, key: str | None, classes: Mapping[str, type]) -> Any:
    head: dict[str, Any] = msgpack.unpackb(packed, strict_map_key=False)
    if key is not None and head["key"] != key:
        raise EmulatorError("it was compiled from another model, or with other options")

    def blob(number: int) -> memoryview:
        offset, size = head["blobs"][number]
        return blobs[offset : offset + size]

    return Decoder(blob, classes).decode(head["value"])
