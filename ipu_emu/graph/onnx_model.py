"""ONNX model: conversion of a graph to an ONNX ModelProto, and back."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import numpy as np
import onnx
from onnx import helper

from ipu_emu.errors import EmulatorError
from ipu_emu.graph.body_inputs import Kind, body_input_kinds
from ipu_emu.graph.dtype import DType, dtype_numbered
from ipu_emu.graph.external_data import Places, reference
from ipu_emu.graph.graph import Graph
from ipu_emu.graph.onnx_files import Large, initializers_of, opset_of
from ipu_emu.graph.onnx_tensors import array_of, pieces_of, proto_of
from ipu_emu.graph.op import GRAPHCORE, Op
from ipu_emu.graph.protobuf_wire import with_initializers
from ipu_emu.graph.tensor import Role, Tensor

__all__ = [
    "IMPORTED_FROM",
    "SIGNATURE",
    "Append",
    "from_model",
    "metadata_of",
    "to_model",
]

#: A function that adds an op to a graph and infers its outputs; defined in ipu_emu.ops.
Append = Callable[[Graph, Op], object]

_PRODUCER = "ipu_emu"
#: The first opset of ai.onnx in which a Constant may be of integers.
_CONSTANT_OF_ANY_TYPE = 9
#: The metadata property with the name of the program that exported a model.
IMPORTED_FROM = "imported_from"
#: The property of a graph in which PyTorch's exporter lists the parameters and buffers of the module.
SIGNATURE = "pkg.torch.export.ExportedProgram.graph_signature"


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
    model = helper.make_model(proto, producer_name=_PRODUCER, opset_imports=opsets, ir_version=3 if opset <= 8 else 4)
    helper.set_model_props(model, graph.metadata)
    weights = ((tensor.id, graph.data[tensor.id]) for tensor in outside if tensor.role is Role.WEIGHT)
    pieces = (
        [reference(id, data, external[id]).SerializeToString()] if id in external else pieces_of(id, data)
        for id, data in weights
    )
    return with_initializers(model, pieces)


def from_model(
    model: onnx.ModelProto,
    append: Append,
    *,
    groups: Mapping[str, tuple[int, int] | None] = MappingProxyType({}),
    shapes: Mapping[str, tuple[DType, tuple[int, ...]]] = MappingProxyType({}),
    large: Large = MappingProxyType({}),
) -> Graph:
    """Build the graph of ``model``; ``append`` adds each node with the tensors that it makes.

    Initializers named in ``groups`` have a leading axis, one entry for each group of replicas. ``shapes`` replaces
    type and shape of inputs; ``large`` has the data that ``load_light`` took out of the model.
    """
    try:
        return _built(model, append, groups, shapes, large)
    except EmulatorError:
        raise
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
        raise EmulatorError(f"The ModelProto is malformed: {type(error).__name__}: {error}") from error


def _built(
    model: onnx.ModelProto,
    append: Append,
    groups: Mapping[str, tuple[int, int] | None],
    shapes: Mapping[str, tuple[DType, tuple[int, ...]]],
    large: Large,
) -> Graph:
    imported = {IMPORTED_FROM: model.producer_name or "another program"} if model.producer_name != _PRODUCER else {}
    signature = {one.key: one.value for one in model.graph.metadata_props if one.key == SIGNATURE}
    graph = Graph(metadata=imported | signature | metadata_of(model), name=model.graph.name)
    version = opset_of(model)
    initializers = initializers_of(model, large)
    for info in model.graph.input:
        if info.name not in initializers:
            graph.add(_input(info) if info.name not in shapes else Tensor(info.name, *shapes[info.name], Role.INPUT))
    for id, array in initializers.items():
        shape = array.shape[1:] if id in groups else array.shape
        graph.add(Tensor(id, dtype_numbered(_number(array)), shape, Role.WEIGHT, groups.get(id)), array)
    for node in model.graph.node:
        append(graph, _op(graph, node, version, append))
    graph.outputs = [info.name for info in model.graph.output]
    for id in graph.outputs:
        graph.tensor(id)
    for id in graph.tensors:
        if not isinstance(id, str):  # protobuf returns bytes that are not UTF-8 as bytes
            raise EmulatorError(f"The ModelProto is malformed: the name {id!r} is not in UTF-8")
    return graph


def _bodies(parent: Graph, node: onnx.NodeProto, version: int, append: Append) -> dict[str, Graph]:
    """Return the subgraphs of a node; a branch that is never taken and is invalid is replaced by the taken one."""
    made: dict[str, Graph] = {}
    refused = []
    taken = _taken_branch(parent, node)
    for attribute in (a for a in node.attribute if a.HasField("g")):
        try:
            made[attribute.name] = _body(parent, node, attribute.g, version, append)
        except EmulatorError:
            if taken in (None, attribute.name):
                raise
            refused.append(attribute.name)
    return made | {name: made[taken] for name in refused if taken in made}


def _taken_branch(parent: Graph, node: onnx.NodeProto) -> str | None:
    """Return the name of the branch that an If with a constant condition takes, else None."""
    condition = parent.data.get(node.input[0]) if node.op_type == "If" and node.input else None
    if condition is None or parent.tensor(node.input[0]).role is not Role.CONSTANT:
        return None
    return "then_branch" if condition.all() else "else_branch"


def _body(parent: Graph, node: onnx.NodeProto, proto: onnx.GraphProto, version: int, append: Append) -> Graph:
    """Return the graph of a subgraph, such as a loop body; types of its inputs may come from the node."""
    graph = Graph(parent=parent, inputs=[info.name for info in proto.input], outputs=[o.name for o in proto.output])
    hints = _body_inputs(parent, node, version)
    for index, info in enumerate(proto.input):
        kind = hints[index] if index < len(hints) else None
        graph.add(Tensor(info.name, *kind, Role.COMPUTED) if kind else replace(_input(info), role=Role.COMPUTED))
    for initializer in proto.initializer:
        array = array_of(initializer)
        graph.add(Tensor(initializer.name, dtype_numbered(_number(array)), array.shape, Role.CONSTANT), array)
    for inner in proto.node:
        append(graph, _op(graph, inner, version, append))
    for id in graph.outputs:
        graph.tensor(id)
    return graph


def _body_inputs(parent: Graph, node: onnx.NodeProto, version: int) -> list[Kind]:
    operands = [parent.tensor(id) if id else None for id in node.input]
    attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute if not a.HasField("g")}
    return body_input_kinds(node.domain, node.op_type, version, attributes, operands)


def metadata_of(model: onnx.ModelProto) -> dict[str, str]:
    """Return the metadata properties of a model; raise EmulatorError if one is not text."""
    pairs = [(entry.key, entry.value) for entry in model.metadata_props]
    if not all(isinstance(text, str) for pair in pairs for text in pair):  # bytes that are not UTF-8
        raise EmulatorError("The ModelProto is malformed: a metadata property is not text in UTF-8")
    return dict(pairs)


def _number(array: np.ndarray) -> int:
    return int(helper.np_dtype_to_tensor_dtype(array.dtype))


def _input(info: onnx.ValueInfoProto) -> Tensor:
    kind = info.type.tensor_type
    shape = tuple(int(dimension.dim_value) for dimension in kind.shape.dim)
    return Tensor(info.name, dtype_numbered(kind.elem_type), shape, Role.INPUT)


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
    number, id = _number(value), f"{op.outputs[0]}/number"
    plain = replace(op, outputs=(id,), attributes={**op.attributes, "value": value.astype(real)})
    return [_node(plain, opset), _node(replace(op, type="Cast", inputs=(id,), attributes={"to": number}), opset)]


def _node(op: Op, opset: int) -> onnx.NodeProto:
    attributes = {name: _exported(name, value, opset) for name, value in op.attributes.items()}
    # ONNX cannot infer the type of an empty list. It is the default of every attribute except the axes of reductions:
    # without them all axes are reduced, with an empty list none is.
    kept = {name: value for name, value in attributes.items() if not (isinstance(value, list) and not value)}
    node = helper.make_node(op.type, op.inputs, op.outputs, name=op.name or None, domain=op.domain)
    node.attribute.extend(helper.make_attribute(name, value) for name, value in sorted(kept.items()))
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


def _op(graph: Graph, node: onnx.NodeProto, version: int, append: Append) -> Op:
    domain = "" if node.domain == "ai.onnx" else node.domain
    for text in (node.op_type, domain, node.name, *node.input, *node.output, *(a.name for a in node.attribute)):
        if not isinstance(text, str):
            raise EmulatorError(f"The ModelProto is malformed: the name {text!r} is not in UTF-8")
    return Op(
        node.op_type,
        tuple(node.input),
        tuple(node.output),
        {a.name: _attribute(a) for a in node.attribute if not a.HasField("g")}
        | _bodies(graph, node, version, append),
        domain,
        version if domain == "" else 1,
        node.name,
    )


def _attribute(proto: onnx.AttributeProto) -> Any:
    value = helper.get_attribute_value(proto)
    if isinstance(value, onnx.TensorProto):
        return array_of(value)
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, int | float | str):
        return value
    return [item.decode() if isinstance(item, bytes) else item for item in value]
