"""Model writing: a graph as a model in ONNX, and the user's model with other values."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper

from ipu_emu.errors import EmulatorError
from ipu_emu.graph.dtype import dtype_of
from ipu_emu.graph.graph import Graph
from ipu_emu.graph.op import GRAPHCORE, Op
from ipu_emu.graph.tensor import Role, Tensor
from ipu_emu.onnx.external_data import Places, reference, stored_type
from ipu_emu.onnx.tensors import pieces_of, proto_of
from ipu_emu.onnx.wire import Piece, with_initializers
from popdist_py.files.atomic_write import replace_file

PRODUCER = "ipu_emu"
#: The first opset of ai.onnx in which a Constant may be of integers.
_CONSTANT_OF_ANY_TYPE = 9
#: From this IR version on, initializers need not be inputs.
_INITIALIZERS_ONLY = 4
_NONE: Mapping[str, NDArray[Any]] = MappingProxyType({})


#: Fields of an initializer that hold its data or their location.
_DATA = (
    "raw_data", "float_data", "double_data", "int32_data", "int64_data", "uint64_data", "external_data",
    "data_location",
)  # fmt: skip


def to_model(graph: Graph, *, opset: int, external: Places = MappingProxyType({})) -> bytes:
    """Serialise ``graph`` as a ModelProto of ai.onnx ``opset`` and ai.graphcore 1; ``external`` data stay outside."""
    outside = graph.with_role(Role.INPUT, Role.WEIGHT)
    proto = helper.make_graph(
        _nodes(graph, opset),
        graph.name,
        [_value_info(tensor) for tensor in outside],
        [_value_info(graph.tensor(id)) for id in graph.outputs],
    )
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid(GRAPHCORE, 1)]
    model = helper.make_model(proto, producer_name=PRODUCER, opset_imports=opsets, ir_version=3 if opset <= 8 else 4)
    helper.set_model_props(model, graph.metadata)
    weights = {tensor.id: graph.data[tensor.id] for tensor in outside if tensor.role is Role.WEIGHT}
    return with_initializers(model, _pieces(weights, external))


def _pieces(data: Mapping[str, NDArray[Any]], external: Places) -> Iterator[Sequence[Piece]]:
    """Yield initializers, serialised in pieces."""
    for id, array in data.items():
        if id in external:
            yield [reference(id, array.dtype, array.shape, external[id]).SerializeToString()]
        else:
            yield pieces_of(id, array)


def _value_info(tensor: Tensor) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(tensor.id, tensor.dtype.onnx, tensor.shape)


def _nodes(graph: Graph, opset: int) -> list[onnx.NodeProto]:
    return [node for op in graph.ops for node in (_typed_constant(op, opset) or [_node(op, opset)])]


def _typed_constant(op: Op, opset: int) -> list[onnx.NodeProto] | None:
    """A constant of integers or booleans, for an opset whose Constant is floating-point: a Constant and a Cast."""
    value = op.attributes.get("value")
    if op.type != "Constant" or opset >= _CONSTANT_OF_ANY_TYPE or not isinstance(value, np.ndarray):
        return None
    real = next((t for t in (np.float32, np.float64) if (value.astype(t).astype(value.dtype) == value).all()), None)
    if value.dtype.kind not in "iub" or real is None:
        return None
    number, id = helper.np_dtype_to_tensor_dtype(value.dtype), f"{op.outputs[0]}/number"
    plain = replace(op, outputs=(id,), attributes={**op.attributes, "value": value.astype(real)})
    return [_node(plain, opset), _node(replace(op, type="Cast", inputs=(id,), attributes={"to": number}), opset)]


def _node(op: Op, opset: int) -> onnx.NodeProto:
    attributes = {name: _exported(name, value, opset) for name, value in op.attributes.items()}
    # ONNX cannot infer the type of an empty list. It is the default of every attribute except the axes of reductions:
    # without them all axes are reduced, with an empty list none is.
    stored = {name: value for name, value in attributes.items() if not (isinstance(value, list) and not value)}
    node = helper.make_node(op.type, op.inputs, op.outputs, name=op.name or None, domain=op.domain)
    node.attribute.extend(helper.make_attribute(name, value) for name, value in sorted(stored.items()))
    if op.type.startswith("Reduce") and attributes.get("axes") == []:
        node.attribute.append(helper.make_attribute("axes", [], attr_type=onnx.AttributeProto.INTS))
    return node


def _exported(name: str, value: Any, opset: int) -> Any:
    """Return the ONNX form of an attribute."""
    if isinstance(value, np.ndarray):
        return proto_of("", value)
    return _graph(name, value, opset) if isinstance(value, Graph) else value


def _graph(name: str, body: Graph, opset: int) -> onnx.GraphProto:
    return helper.make_graph(
        _nodes(body, opset),
        name,
        [_value_info(body.tensor(id)) for id in body.inputs],
        [_value_info(body.tensor(id)) for id in body.outputs],
        [proto_of(tensor.id, body.data[tensor.id]) for tensor in body.with_role(Role.WEIGHT)],
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

    @property
    def _protos(self) -> list[onnx.TensorProto]:
        return list(self._model.graph.initializer)

    def initializers(
        self, data: Mapping[str, NDArray[Any]], added: Mapping[str, NDArray[Any]] = _NONE
    ) -> dict[str, NDArray[Any]]:
        """Return the values of the model's initializers, in their order and types, then those ``added``."""
        both = {**data, **added}
        own = {p.name: np.asarray(both[p.name], stored_type(p)) for p in self._protos}
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
        return with_initializers(model, _pieces(initializers, external))


def write_model(file: str | os.PathLike[str], model: bytes) -> None:
    """Write a serialised model atomically; raise EmulatorError if that fails."""
    try:
        replace_file(file, model)
    except OSError as error:
        raise EmulatorError(
            f"Cannot write the model '{file}': {error.strerror}; name a file that can be written"
        ) from error
