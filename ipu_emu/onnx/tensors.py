"""ONNX tensors: initializers in typed fields, as PopART writes them, never in ``raw_data``.

    FLOAT                                          float_data
    DOUBLE                                         double_data
    INT8 INT16 INT32 UINT8 UINT16 BOOL             int32_data
    FLOAT16                                        int32_data, the bits of one value in each entry
    INT64                                          int64_data
    UINT32 UINT64                                  uint64_data

Any form that ONNX allows can be read, and PopART's own form of FLOAT16, which ONNX's tools refuse: two values packed
in one entry. BFLOAT16 becomes FLOAT, which represents all its values.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import numpy_helper

from ipu_emu.errors import EmulatorError
from ipu_emu.graph.dtype import BOOL, FLOAT, FLOAT16, dtype_of
from ipu_emu.onnx.external_data import (
    DataPlace,
    Places,
    array_at,
    is_external,
    place_of,
    size_of,
    stored_type,
    widened,
)
from ipu_emu.onnx.wire import Piece, field_header

_FIELDS = {
    "DOUBLE": "double_data",
    "INT64": "int64_data",
    "UINT32": "uint64_data",
    "UINT64": "uint64_data",
}


#: The number of the field ``float_data``.
_FLOAT_DATA = 4

#: Values converted to Python objects at a time: they take 24 bytes each.
_PIECE_VALUES = 1 << 16


def proto_of(id: str, array: NDArray[Any]) -> onnx.TensorProto:
    """Write ``array`` as the initializer ``id``."""
    dtype = dtype_of(array)
    if dtype is FLOAT and array.size:  # Python objects would take ten times as long
        proto = onnx.TensorProto()
        proto.ParseFromString(b"".join(pieces_of(id, array)))
        return proto
    proto = onnx.TensorProto(name=id, data_type=dtype.onnx, dims=array.shape)
    values = np.ascontiguousarray(array).reshape(-1)
    values = values.view(np.uint16) if dtype is FLOAT16 else values
    values = values.astype(np.int32) if dtype is BOOL else values
    field = getattr(proto, _FIELDS.get(dtype.name, "int32_data"))
    for start in range(0, values.size, _PIECE_VALUES):
        field.extend(values[start : start + _PIECE_VALUES].tolist())
    return proto


@dataclass(frozen=True)
class TensorReader:
    """Reads the tensors of a model in ``folder``, without the data of ``large`` initializers.

    External data are in the folder or below it, or in files that are the program's ``own``.
    """

    large: Mapping[str, NDArray[Any]]
    folder: str
    own: Collection[str] = ()

    def initializers(self, graph: onnx.GraphProto) -> tuple[dict[str, NDArray[Any]], Places]:
        """Return the data of initializers by id, in order, and the places of external data.

        Of two initializers with one name the last one counts.
        """
        data, places = dict[str, NDArray[Any]](), dict[str, DataPlace]()
        for proto in graph.initializer:
            places.pop(proto.name, None)
            if is_external(proto):
                places[proto.name] = place_of(proto, self.folder, self.own)
                data[proto.name] = array_at(proto, places[proto.name])
            else:
                data[proto.name] = self._array(proto)
        return data, places

    def _array(self, proto: onnx.TensorProto) -> NDArray[Any]:
        if proto.name not in self.large or proto.raw_data or proto.float_data or proto.int32_data:
            return array_of(proto)
        array = self.large[proto.name]
        return array if array.flags.writeable else np.array(array)  # else it is a view of the model

    def array(self, proto: onnx.TensorProto) -> NDArray[Any]:
        """Read a tensor in any of its forms; the array belongs to the caller."""
        return array_at(proto, place_of(proto, self.folder, self.own)) if is_external(proto) else array_of(proto)

    def places(self, graph: onnx.GraphProto) -> dict[str, DataPlace]:
        """Return the places of initializers with external data, without reading them."""
        protos = [proto for proto in graph.initializer if is_external(proto)]
        return {proto.name: place_of(proto, self.folder, self.own) for proto in protos}


def array_of(proto: onnx.TensorProto) -> NDArray[Any]:
    """Read a tensor that has its data in any of their forms; the array belongs to the caller."""
    count, stored = size_of(proto), stored_type(proto)
    if stored == np.float16 and not proto.raw_data and len(proto.int32_data):
        return _halves(proto, count)
    try:
        if stored == np.float32 and proto.float_data and not proto.raw_data:
            return _floats(proto).reshape(tuple(proto.dims))
        return widened(np.array(numpy_helper.to_array(proto)))
    except (ValueError, TypeError) as error:
        raise EmulatorError(f"Initializer '{proto.name}' cannot be read: {error}") from error


def pieces_of(id: str, array: NDArray[Any]) -> list[Piece]:
    """Return the initializer ``id`` serialised in pieces; the last piece is a view of float data."""
    if array.dtype == ml_dtypes.bfloat16:
        return [numpy_helper.from_array(array, id).SerializeToString()]
    if dtype_of(array) is not FLOAT or not array.size:
        return [proto_of(id, array).SerializeToString()]
    proto = onnx.TensorProto(name=id, data_type=FLOAT.onnx, dims=array.shape)
    floats = np.ascontiguousarray(array, "<f4").reshape(-1).data.cast("B")
    return [proto.SerializeToString(), field_header(_FLOAT_DATA, len(floats)), floats]


def _floats(proto: onnx.TensorProto) -> NDArray[np.float32]:
    """Return ``float_data`` from the serialised message, where only shape and type precede it."""
    count, data = len(proto.float_data), proto.SerializeToString()
    announced = field_header(_FLOAT_DATA, 4 * count)
    return np.frombuffer(data, "<f4", count, data.index(announced) + len(announced)).astype(np.float32)


def _halves(proto: onnx.TensorProto, count: int) -> NDArray[Any]:
    entries = np.array(proto.int32_data, dtype=np.int64).astype(np.int32)
    packed = len(entries) == (count + 1) // 2 and count > 1
    bits = entries.view(np.uint16) if packed else entries.astype(np.uint16)
    if bits.size < count:
        raise EmulatorError(f"Initializer '{proto.name}' has {bits.size} values, its shape needs {count}")
    return bits[:count].view(np.float16).reshape(tuple(proto.dims))
