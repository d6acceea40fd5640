"""ONNX template: a model as the user wrote it, without data, to be saved with the weights of a session."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper

from ipu_emu.graph.dtype import dtype_numbered, dtype_of
from ipu_emu.graph.onnx_tensors import pieces_of
from ipu_emu.graph.protobuf_wire import with_initializers

__all__ = ["OnnxTemplate"]


#: Fields of an initializer that hold its data or their location.
_DATA = (
    "raw_data",
    "float_data",
    "double_data",
    "int32_data",
    "int64_data",
    "uint64_data",
    "external_data",
    "data_location",
)


class OnnxTemplate:
    """A model whose initializers have no data.

    A protobuf message keeps the memory of cleared fields, so the template is a new message.
    """

    def __init__(self, model: onnx.ModelProto) -> None:
        for proto in model.graph.initializer:
            for field in _DATA:
                proto.ClearField(field)
        self._model = onnx.ModelProto.FromString(model.SerializeToString())

    def serialised(self, data: Mapping[str, NDArray[Any]]) -> bytes:
        """Return the model with initializers in their original order and types, then all others in ``data``."""
        model = onnx.ModelProto()
        model.CopyFrom(self._model)
        own = [(proto.name, dtype_numbered(proto.data_type).numpy) for proto in model.graph.initializer]
        names = {id for id, _ in own}
        others = [(id, array) for id, array in data.items() if id not in names]
        model.graph.ClearField("initializer")
        model.graph.input.extend(
            helper.make_tensor_value_info(id, dtype_of(array).onnx, array.shape) for id, array in others
        )
        arrays = [*((id, np.asarray(data[id], dtype)) for id, dtype in own), *others]
        return with_initializers(model, (pieces_of(id, array) for id, array in arrays))
