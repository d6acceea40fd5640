"""GraphTransformer: changes types, inputs and initializers of an ONNX model before a session reads it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, MutableSequence, Sequence
from itertools import chain
from typing import Any, TypeVar

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper

from ipu_emu.errors import EmulatorError
from ipu_emu.graph.dtype import FLOAT, FLOAT16, INT32, DType, dtype_named
from ipu_emu.onnx.external_data import Places, array_at, is_external, reference, stored_type, write_external
from ipu_emu.onnx.files import ModelBytes, Source, parsed
from ipu_emu.onnx.proto_parts import attributes_of, graphs_of, tensors_of
from ipu_emu.onnx.tensors import array_of, proto_of

T = TypeVar("T")

_BFLOAT16 = onnx.TensorProto.BFLOAT16
#: Integer attributes whose value is the number of an element type.
_TYPE_ATTRIBUTES = frozenset({"to", "dtype"})
_FIXED_POINT = frozenset(
    dtype_named(name).onnx for name in ("UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT16", "INT32", "INT64")
)
_BATCH_STATISTICS = ("mean", "var", "saved_mean", "saved_var")


class GraphTransformer:
    """``GraphTransformer(modelProtoOrFilename)``: each method changes the model; ``getModelProto`` returns it."""

    def __init__(self, modelProtoOrFilename: Source) -> None:
        model = parsed(modelProtoOrFilename, light=False)
        self._model = model.proto
        self._places = model.tensors.places(self._model.graph)
        self._refer(self._places)
        for graph in graphs_of(self._model.graph):
            for proto in filter(is_external, tensors_of(graph)):
                if proto.name not in self._places:
                    proto.CopyFrom(proto_of(proto.name, model.tensors.array(proto)))

    def _refer(self, places: Places) -> None:
        """Let initializers name the files of their data."""
        for proto in self._model.graph.initializer:
            if proto.name in places:
                dtype = stored_type(proto)
                proto.CopyFrom(reference(proto.name, dtype, tuple(proto.dims), places[proto.name]))

    def getModelProto(self) -> bytes:
        """The model as a serialised ONNX ModelProto."""
        return ModelBytes(self._model.SerializeToString(), {place.file for place in self._places.values()})

    # Types of inputs, outputs, initializers, constants and casts, also in the bodies of loops and branches

    def convertFloatsToHalfs(self) -> None:
        """Convert FLOAT tensors to FLOAT16."""
        self._convert(FLOAT.onnx, FLOAT16)

    def convertDoublesToFloats(self) -> None:
        """Convert DOUBLE tensors to FLOAT."""
        self._convert(dtype_named("DOUBLE").onnx, FLOAT)

    def convertDoublesToHalfs(self) -> None:
        """Convert DOUBLE tensors to FLOAT16."""
        self._convert(dtype_named("DOUBLE").onnx, FLOAT16)

    def convertBFloats16ToFloat32(self) -> None:
        """Convert BFLOAT16 tensors to FLOAT."""
        self._convert(_BFLOAT16, FLOAT)

    def convertUINT8ToINT32(self) -> None:
        """Convert UINT8 tensors to INT32."""
        self._convert(dtype_named("UINT8").onnx, INT32)

    def convertUINT16ToINT32(self) -> None:
        """Convert UINT16 tensors to INT32."""
        self._convert(dtype_named("UINT16").onnx, INT32)

    def convertINT8ToINT32(self) -> None:
        """Convert INT8 tensors to INT32."""
        self._convert(dtype_named("INT8").onnx, INT32)

    def convertINT16ToINT32(self) -> None:
        """Convert INT16 tensors to INT32."""
        self._convert(dtype_named("INT16").onnx, INT32)

    def convertINT64ToINT32(self, clip: bool = False) -> None:
        """Convert INT64 tensors to INT32; values out of range are clipped with ``clip``, and an error without it."""
        self._convert(dtype_named("INT64").onnx, INT32, clip=clip)

    def _convert(self, old: int, new: DType, *, clip: bool = False) -> None:
        """Change element type number ``old``; nothing is changed if a value does not fit."""
        graphs = list(graphs_of(self._model.graph))
        tensors = [tensor for graph in graphs for tensor in tensors_of(graph) if tensor.data_type == old]
        converted = [_converted(tensor, self._array(tensor), new, clip) for tensor in tensors]
        for tensor, changed in zip(tensors, converted, strict=True):
            tensor.CopyFrom(changed)
        for graph in graphs:
            for info in chain(graph.input, graph.output, graph.value_info):
                if info.type.tensor_type.elem_type == old:
                    info.type.tensor_type.elem_type = new.onnx
            for attribute in attributes_of(graph):
                if attribute.name in _TYPE_ATTRIBUTES and attribute.i == old:
                    attribute.i = new.onnx

    # Inputs and initializers

    def removeUnusedInputs(self) -> None:
        """Drop inputs and initializers that no node reads and that are not outputs."""
        graph = self._model.graph
        used = {id for inner in graphs_of(graph) for id in _read(inner)}
        self._keep_inputs(used)
        _replace(graph.initializer, [proto for proto in graph.initializer if proto.name in used])

    def convertInitializersToConstants(self, ids: Sequence[str]) -> None:
        """Turn these initializers into constants, which are never trained."""
        graph, chosen = self._model.graph, self._initializers(ids)
        nodes = [
            helper.make_node("Constant", [], [id], value=proto_of("", self._array(proto)))
            for id, proto in chosen.items()
        ]
        _replace(graph.node, [*nodes, *graph.node])
        _replace(graph.initializer, [proto for proto in graph.initializer if proto.name not in chosen])
        self._keep_inputs({info.name for info in graph.input} - set(chosen))

    def convertAllFixedPointInitializersToConstants(self) -> None:
        """Turn all integer initializers into constants."""
        initializers = self._model.graph.initializer
        self.convertInitializersToConstants([proto.name for proto in initializers if proto.data_type in _FIXED_POINT])

    def saveInitializersExternally(self, ids: Sequence[str], filename: str) -> None:
        """Move the data of these initializers to ``filename``; the model keeps a reference to it."""
        initializers = {proto.name: proto for proto in self._model.graph.initializer}
        for id in ids:
            if id not in initializers:
                raise EmulatorError(f"Tensor '{id}' is not an initializer")
            if is_external(initializers[id]):
                raise EmulatorError(f"Tensor '{id}' already has an external data_location")
        data = {id: self._array(initializers[id]) for id in ids}
        places = write_external(data, ids, filename)
        self._places |= places
        self._refer(places)

    def _array(self, proto: onnx.TensorProto) -> NDArray[Any]:
        return array_at(proto, self._places[proto.name]) if is_external(proto) else array_of(proto)

    def _initializers(self, ids: Sequence[str]) -> dict[str, onnx.TensorProto]:
        initializers = {proto.name: proto for proto in self._model.graph.initializer}
        for id in ids:
            if id not in initializers:
                raise EmulatorError(f"TensorId {id} not in the model initalizers.")
        return {id: initializers[id] for id in ids}

    def _keep_inputs(self, ids: set[str]) -> None:
        graph = self._model.graph
        _replace(graph.input, [info for info in graph.input if info.name in ids])

    # Training

    def prepareNodesForTraining(self) -> None:
        """Add the outputs that training needs to batch normalisations, and turn off the test mode of nodes."""
        for node in self._model.graph.node:
            for attribute in node.attribute:
                if attribute.name == "is_test":
                    attribute.i = 0
            if node.op_type == "BatchNormalization" and len(node.output) == 1:
                prefix = node.name or node.output[0]
                node.output.extend(f"{prefix}_{name}" for name in _BATCH_STATISTICS)


def _replace(field: MutableSequence[T], values: Iterable[T]) -> None:
    """Set a repeated field of a message; the values may come from the field itself."""
    elements = list(values)
    del field[:]
    field.extend(elements)


def _read(graph: onnx.GraphProto) -> Iterator[str]:
    for node in graph.node:
        yield from node.input
    yield from (info.name for info in graph.output)


def _converted(proto: onnx.TensorProto, array: NDArray[Any], new: DType, clip: bool) -> onnx.TensorProto:
    if new.is_integer:
        array = _in_range(proto.name, array, new, clip)
    with np.errstate(over="ignore"):  # values too large for FLOAT16 become infinite, as on the device
        return proto_of(proto.name, array.astype(new.numpy))


def _in_range(id: str, array: NDArray[Any], new: DType, clip: bool) -> NDArray[Any]:
    bounds = np.iinfo(new.numpy)
    fitting: NDArray[Any] = np.clip(array, bounds.min, bounds.max)
    outside = array[fitting != array]
    if outside.size and not clip:
        raise EmulatorError(
            f"Tensor '{id}' has the value {outside.flat[0]}, which is out of the range of {new}; "
            "convert with clip=True"
        )
    return fitting
