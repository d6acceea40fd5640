"""Protobuf wire format: removes the data of large initializers from a serialised model, and inserts data into one.

A parsed model is a second copy of the data, and reading the data from it makes a third. Without the parsed copy,
reading the weights of a ModelProto of 378 MiB, given as bytes, needs 378 MiB at the peak instead of 765, and 0.1 to
0.7 s of processor time instead of 0.6. These fields of onnx.proto are used:

    ModelProto.graph = 7    GraphProto.initializer = 5    TensorProto.float_data = 4, int32_data = 5, raw_data = 9
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

Piece = bytes | memoryview

_GRAPH, _INITIALIZER, _FLOAT_DATA, _INT32_DATA, _RAW_DATA = 7, 5, 4, 5, 9
#: Data of at least this number of bytes are removed.
LARGE_BYTES = 1 << 16
#: Wire types, by the content after a key: a varint, 8 bytes, a length and that many bytes, 4 bytes.
_VARINT, _EIGHT, _BYTES, _FOUR = 0, 1, 2, 5
#: Element types whose values are stored in ``raw_data`` as in memory.
_TYPES: dict[int, np.dtype[Any]] = {
    onnx.TensorProto.FLOAT: np.dtype("<f4"),
    onnx.TensorProto.FLOAT16: np.dtype("<f2"),
}


def without_large_data(model: bytes) -> tuple[bytes, dict[str, NDArray[Any]]]:
    """Return ``model`` without the data of large initializers, and these data by name.

    They are read-only views of ``model``, or new arrays if their stored form differs from that in memory.
    Anything unexpected stays in the model, for the parser to report.
    """
    data, arrays = memoryview(model), dict[str, NDArray[Any]]()
    try:
        fields = list(_fields(data))
        graphs = [field for field in fields if field.number == _GRAPH]
        if len(graphs) != 1:
            return model, {}
        parts = [_light_graph(field, arrays) if field is graphs[0] else [field.encoded] for field in fields]
    except Exception:  # protobuf has no public base class for its parse errors
        return model, {}
    return (b"".join(piece for part in parts for piece in part), arrays) if arrays else (model, {})


@dataclass(frozen=True)
class _Field:
    """One field of a message; ``encoded`` has key and length before ``content``."""

    number: int
    wire_type: int
    content: memoryview
    encoded: memoryview


def _fields(data: memoryview) -> Iterator[_Field]:
    """Yield the fields of a message, in order."""
    at = 0
    while at < len(data):
        first = at
        key, at = _varint(data, at)
        wire_type, size = key & 7, 0
        if not key >> 3:  # zeros are not a message
            raise ValueError("a field without a number")
        if wire_type == _VARINT:
            _, end = _varint(data, at)
            size = end - at
        elif wire_type == _BYTES:
            size, at = _varint(data, at)
        elif wire_type in (_EIGHT, _FOUR):
            size = 8 if wire_type == _EIGHT else 4
        else:
            raise ValueError(f"a field of wire type {wire_type}")
        if at + size > len(data):
            raise ValueError("a field beyond the end")
        yield _Field(key >> 3, wire_type, data[at : at + size], data[first : at + size])
        at += size


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    """Return a varint, of at most ten bytes with seven bits each, and the position after it."""
    value = shift = 0
    while shift < 70:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at
    raise ValueError("a varint without an end")


def _light_graph(field: _Field, arrays: dict[str, NDArray[Any]]) -> list[Piece]:
    """Return the pieces of a graph without large data, which go to ``arrays``."""
    pieces: list[Piece] = []
    for inner in _fields(field.content):
        large = inner.number == _INITIALIZER and inner.wire_type == _BYTES and len(inner.content) >= LARGE_BYTES
        light = _light_tensor(inner.content, arrays) if large else None
        pieces += [inner.encoded] if light is None else [field_header(_INITIALIZER, len(light)), light]
    return [field_header(_GRAPH, sum(map(len, pieces))), *pieces]


def _light_tensor(content: memoryview, arrays: dict[str, NDArray[Any]]) -> bytes | None:
    """Return an initializer without its data; None if the data must stay in the model."""
    fields = list(_fields(content))
    numbers = (_FLOAT_DATA, _INT32_DATA, _RAW_DATA)
    data = [field for field in fields if field.number in numbers and field.wire_type == _BYTES]
    if len(data) != 1 or len(data[0].content) < LARGE_BYTES:
        return None
    light = b"".join(field.encoded for field in fields if field is not data[0])
    proto = onnx.TensorProto.FromString(light)
    inside = proto.data_location != onnx.TensorProto.EXTERNAL and not proto.HasField("segment")
    if not inside or proto.name in arrays or proto.float_data or proto.int32_data:
        return None
    values = _values(data[0], proto)
    if values is None or min(proto.dims, default=0) < 0:
        return None
    arrays[proto.name] = values.reshape(tuple(proto.dims))
    return light


def _values(field: _Field, proto: onnx.TensorProto) -> NDArray[Any] | None:
    """Return the data of ``proto``; None if they are of a type, or in a field, that only the parser reads."""
    dtype, count = _TYPES.get(proto.data_type), prod(proto.dims)
    if dtype is None or (field.number == _FLOAT_DATA and proto.data_type != onnx.TensorProto.FLOAT):
        return None
    if field.number == _INT32_DATA:
        return packed_halves(field.content, count) if proto.data_type == onnx.TensorProto.FLOAT16 else None
    return np.frombuffer(field.content, dtype) if len(field.content) == count * dtype.itemsize else None


def with_initializers(model: onnx.ModelProto, initializers: Iterable[Sequence[Piece]]) -> bytes:
    """Return ``model``, serialised, with these initializers, each in pieces."""
    rest = onnx.ModelProto()
    rest.CopyFrom(model)
    rest.ClearField("graph")
    pieces: list[Piece] = [model.graph.SerializeToString()]
    for parts in initializers:
        pieces += [field_header(_INITIALIZER, sum(map(len, parts))), *parts]
    return b"".join([rest.SerializeToString(), field_header(_GRAPH, sum(map(len, pieces))), *pieces])


def field_header(number: int, size: int) -> bytes:
    """Return key and length of field ``number`` of ``size`` bytes."""
    header = bytearray([number << 3 | _BYTES])
    while size > 0x7F:
        header.append(size & 0x7F | 0x80)
        size >>= 7
    return bytes([*header, size])


# The numbers of a packed field, decoded by numpy: a parser makes a Python object of each while they are read.

#: Bytes decoded at a time: the intermediate results stay in the L2 cache.
_PIECE = 1 << 16
#: The longest varint, and the bytes of one that hold the low 32 bits.
_LONGEST, _LOW = 10, 5


def packed_halves(data: memoryview, count: int) -> NDArray[np.float16] | None:
    """Return the ``count`` FLOAT16 values that ``data`` encodes; None if it encodes another number of values."""
    numbers = np.frombuffer(data, np.uint8)
    varints = sum(np.count_nonzero(numbers[at : at + _PIECE] < 0x80) for at in range(0, numbers.size, _PIECE))
    if not numbers.size or numbers[-1] >= 0x80:
        return None
    if varints == count:
        values: NDArray[Any] = np.empty(count, np.uint16)
    elif varints == (count + 1) // 2:
        values = np.empty(varints, np.uint32)
    else:
        return None
    _decode(numbers, values)
    return values.view(np.float16)[:count]


def _decode(numbers: NDArray[np.uint8], values: NDArray[Any]) -> None:
    """Set ``values`` to the low bits of the varints in ``numbers``."""
    at = decoded = 0
    while at < numbers.size:
        piece = numbers[at : at + _PIECE]
        ends = np.flatnonzero(piece < 0x80)
        if not ends.size:
            raise ValueError("a varint without an end")
        piece = piece[: ends[-1] + 1]
        part = _piece_of(piece, ends)
        values[decoded : decoded + part.size] = part
        at, decoded = at + piece.size, decoded + part.size


def _piece_of(piece: NDArray[np.uint8], ends: NDArray[np.intp]) -> NDArray[Any]:
    """Return the low 32 bits of the varints of a piece, which end at ``ends``."""
    if ends.size == piece.size:
        return piece
    lengths = np.diff(ends, prepend=-1)
    if lengths.max() > _LONGEST:
        raise ValueError("a varint without an end")
    starts = ends - lengths + 1
    values = (piece[starts] & np.uint8(0x7F)).astype(np.uint32)
    for place in range(1, min(int(lengths.max()), _LOW)):
        (longer,) = np.nonzero(lengths > place)
        bits = (piece[starts[longer] + place] & np.uint8(0x7F)).astype(np.uint32)
        values[longer] |= bits << np.uint32(7 * place)
    return values
