"""Wire: the data of initializers, taken out of the bytes of a model and put in, without an object that holds them.

A parsed model would hold them a second time, and give them out as a third copy. This is protobuf's wire format, with
the fields of onnx.proto:

    ModelProto.graph = 7        GraphProto.initializer = 5        TensorProto.float_data = 4, raw_data = 9
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

__all__ = ["Piece", "head", "with_initializers", "without_large_data"]

Piece = bytes | memoryview

_GRAPH, _INITIALIZER, _FLOAT_DATA, _RAW_DATA = 7, 5, 4, 9
#: Bytes from which data count as large.
_LARGE = 1 << 16
#: What comes after a key: a number, 8 bytes, a length and so many bytes, 4 bytes.
_NUMBER, _EIGHT, _BYTES, _FOUR = 0, 1, 2, 5
#: Element types whose numbers lie in ``raw_data`` as they do in memory.
_TYPES: dict[int, np.dtype[Any]] = {
    onnx.TensorProto.FLOAT: np.dtype("<f4"),
    onnx.TensorProto.FLOAT16: np.dtype("<f2"),
}


def without_large_data(model: bytes) -> tuple[bytes, dict[str, NDArray[Any]]]:
    """A serialised model with the data of large initializers taken out, and these by name, as views of ``model``.

    What is not as expected stays in, for the parser to judge.
    """
    data, found = memoryview(model), dict[str, NDArray[Any]]()
    try:
        fields = list(_fields(data))
        graphs = [field for field in fields if field.number == _GRAPH]
        if len(graphs) != 1:
            return model, {}
        parts = [_light_graph(field, found) if field is graphs[0] else [field.whole] for field in fields]
    except Exception:  # protobuf has no public base class for its parse errors
        return model, {}
    return (b"".join(piece for part in parts for piece in part), found) if found else (model, {})


@dataclass(frozen=True)
class _Field:
    """``whole`` has key and length before ``content``."""

    number: int
    kind: int
    content: memoryview
    whole: memoryview


def _fields(data: memoryview) -> Iterator[_Field]:
    """The fields of a message, in order."""
    at = 0
    while at < len(data):
        first = at
        key, at = _number(data, at)
        kind, size = key & 7, 0
        if not key >> 3:  # a stretch of zeros is no message
            raise ValueError("a field without a number")
        if kind == _NUMBER:
            _, end = _number(data, at)
            size = end - at
        elif kind == _BYTES:
            size, at = _number(data, at)
        elif kind in (_EIGHT, _FOUR):
            size = 8 if kind == _EIGHT else 4
        else:
            raise ValueError(f"a field of kind {kind}")
        if at + size > len(data):
            raise ValueError("a field beyond the end")
        yield _Field(key >> 3, kind, data[at : at + size], data[first : at + size])
        at += size


def _number(data: memoryview, at: int) -> tuple[int, int]:
    """A number of at most ten bytes, seven bits each, and where it ends."""
    value = shift = 0
    while shift < 70:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at
    raise ValueError("a number without an end")


def _light_graph(field: _Field, found: dict[str, NDArray[Any]]) -> list[Piece]:
    """The pieces of a graph; the data that are not in them go to ``found``."""
    pieces: list[Piece] = []
    for inner in _fields(field.content):
        large = inner.number == _INITIALIZER and inner.kind == _BYTES and len(inner.content) >= _LARGE
        light = _light_tensor(inner.content, found) if large else None
        pieces += [inner.whole] if light is None else [head(_INITIALIZER, len(light)), light]
    return [head(_GRAPH, sum(map(len, pieces))), *pieces]


def _light_tensor(content: memoryview, found: dict[str, NDArray[Any]]) -> bytes | None:
    """An initializer without its data; None if they must stay."""
    fields = list(_fields(content))
    data = [field for field in fields if field.number in (_FLOAT_DATA, _RAW_DATA) and field.kind == _BYTES]
    if len(data) != 1 or len(data[0].content) < _LARGE:
        return None
    light = b"".join(field.whole for field in fields if field is not data[0])
    proto = onnx.TensorProto.FromString(light)
    dtype = _TYPES.get(proto.data_type)
    inside = proto.data_location != onnx.TensorProto.EXTERNAL and not proto.HasField("segment")
    if dtype is None or not inside or proto.name in found or proto.float_data or proto.int32_data:
        return None
    if data[0].number == _FLOAT_DATA and proto.data_type != onnx.TensorProto.FLOAT:
        return None
    if len(data[0].content) != prod(proto.dims) * dtype.itemsize:
        return None
    found[proto.name] = np.frombuffer(data[0].content, dtype).reshape(tuple(proto.dims))
    return light


def with_initializers(model: onnx.ModelProto, initializers: Iterable[Sequence[Piece]]) -> bytes:
    """``model``, serialised, with these initializers, each in pieces."""
    frame = onnx.ModelProto()
    frame.CopyFrom(model)
    frame.ClearField("graph")
    pieces: list[Piece] = [model.graph.SerializeToString()]
    for parts in initializers:
        pieces += [head(_INITIALIZER, sum(map(len, parts))), *parts]
    return b"".join([frame.SerializeToString(), head(_GRAPH, sum(map(len, pieces))), *pieces])


def head(number: int, size: int) -> bytes:
    """Key and length of a field of so many bytes."""
    made = bytearray([number << 3 | _BYTES])
    while size > 0x7F:
        made.append(size & 0x7F | 0x80)
        size >>= 7
    return bytes([*made, size])
