"""ONNX template: the user's model without data, to be saved with the weights of a session."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper

from ipu_emu.graph.dtype import dtype_numbered, dtype_of
from ipu_emu.graph.external_data import Places, places_of, reference
from ipu_emu.graph.onnx_tensors import pieces_of
from ipu_emu.graph.protobuf_wire import with_initializers

__all__ = ["OnnxTemplate"]

#: From this IR version on, initializers need not be inputs.
_INITIALIZERS_ONLY = 4
_NONE: Mapping[str, NDArray[Any]] = MappingProxyType({})


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
    """A model whose initializers have no data; ``external`` has the files of those with external data.

    A protobuf message keeps the memory of cleared fields, so the template is a new message.
    """

    def __init__(self, model: onnx.ModelProto) -> None:
        self.external = places_of(model)
        for proto in model.graph.initializer:
            for field in _DATA:
                proto.ClearField(field)
        self._model = onnx.ModelProto.FromString(model.SerializeToString())

    @property
    def _protos(self) -> list[onnx.TensorProto]:
        return list(self._model.graph.initializer)

    def initializers(
        self, data: Mapping[str, NDArray[Any]], added: Mapping[str, NDArray[Any]] = _NONE
    ) -> dict[str, NDArray[Any]]:
        """Return the values of the model's initializers, in their order and types, then those ``added``."""
        both = {**data, **added}
        own = {p.name: np.asarray(both[p.name], dtype_numbered(p.data_type).numpy) for p in self._protos}
        return own | {id: array for id, array in added.items() if id not in own}

    def serialised(self, initializers: Mapping[str, NDArray[Any]], external: Places = MappingProxyType({})) -> bytes:
        """Return the model with these ``initializers``.

        Models of an IR version below 4 have each initializer among their inputs too; in newer ones the added are
        initializers only. Instead of ``external`` data the model has references to them.
        """
        model = onnx.ModelProto()
        model.CopyFrom(self._model)
        own = {proto.name for proto in self._protos}
        model.graph.ClearField("initializer")
        if model.ir_version < _INITIALIZERS_ONLY:
            model.graph.input.extend(
                helper.make_tensor_value_info(id, dtype_of(array).onnx, array.shape)
                for id, array in initializers.items()
                if id not in own
            )
        pieces = (
            [reference(id, array, external[id]).SerializeToString()] if id in external else pieces_of(id, array)
            for id, array in initializers.items()
        )
        return with_initializers(model, pieces)
