"""Graph reader: the graph of a parsed ONNX model.

Models stored in BFLOAT16 are computed in FLOAT: results are not rounded to the 8 bits that BFLOAT16 keeps.

    initializer w: BFLOAT16        w: FLOAT
    Cast(x, to=BFLOAT16)     ->    Cast(x, to=FLOAT)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import onnx
from numpy.typing import NDArray
from onnx import helper

from ipu_emu.errors import EmulatorError
from ipu_emu.graph import Graph, Op, Role, Tensor
from ipu_emu.graph.body_inputs import Kind, body_input_kinds
from ipu_emu.graph.dtype import FLOAT, dtype_numbered, dtype_of
from ipu_emu.graph.graph import IMPORTED_FROM, SIGNATURE
from ipu_emu.graph.op import GRAPHCORE
from ipu_emu.onnx.properties import ModelProperties, grouped_variables
from ipu_emu.onnx.tensors import array_of
from ipu_emu.onnx.write import PRODUCER
from ipu_emu.ops.communication.collective_ops import MODEL_COLLECTIVES, REPLICA_COUNT

__all__ = ["Describe", "GraphReader", "declared"]

#: A function that adds an op to a graph and infers its outputs.
Append = Callable[[Graph, Op], object]
#: A function that returns type and shape of an input.
Describe = Callable[[onnx.ValueInfoProto], Kind]

_STORED = onnx.TensorProto.BFLOAT16
#: Attributes that hold the number of an element type.
_TYPES = ("to", "dtype", "output_dtype", "stash_type")


def declared(info: onnx.ValueInfoProto) -> Kind:
    """Return type and shape as the model declares them; open sizes are 0."""
    kind = info.type.tensor_type
    return dtype_numbered(_computed(kind.elem_type)), tuple(int(size.dim_value) for size in kind.shape.dim)


def _computed(number: int) -> int:
    """Return the element type in which a stored one is computed."""
    return FLOAT.onnx if number == _STORED else number


@dataclass(frozen=True)
class GraphReader:
    """Reads models of the opset ``version``.

    ``append`` adds each node with the tensors that it makes; ``describe`` returns type and shape of an input.
    """

    append: Append
    describe: Describe
    version: int
    replicas: int | None

    def read(self, model: onnx.ModelProto, data: Mapping[str, NDArray[Any]]) -> Graph:
        """Return the graph of ``model``, whose initializers have ``data``."""
        graph = Graph(metadata=_metadata(model), name=model.graph.name)
        for info in model.graph.input:
            if info.name not in data:
                graph.add(Tensor(info.name, *self.describe(info), Role.INPUT))
        self._add_weights(graph, data)
        self._add_nodes(graph, model.graph)
        graph.outputs = [info.name for info in model.graph.output]
        for id in graph.outputs:
            graph.tensor(id)
        for id in graph.tensors:
            if not isinstance(id, str):  # protobuf returns bytes that are not UTF-8 as bytes
                raise EmulatorError(f"The ModelProto is malformed: the name {id!r} is not in UTF-8")
        return graph

    def _add_weights(self, graph: Graph, data: Mapping[str, NDArray[Any]]) -> None:
        """Add weights; those of groups of replicas have a leading axis, with one entry for each group."""
        if self.replicas is not None:
            for id, members in ModelProperties.of(graph.metadata).groups.items():
                if id in data:
                    members.shape_on_replica(data[id].shape, self.replicas, id)
        groups = grouped_variables(graph.metadata, self.replicas)
        for id, array in data.items():
            shape = array.shape[1:] if id in groups else array.shape
            graph.add(Tensor(id, dtype_of(array), shape, Role.WEIGHT, groups.get(id)), array)

    def _add_nodes(self, graph: Graph, proto: onnx.GraphProto) -> None:
        for node in proto.node:
            self.append(graph, self._op(graph, node))

    def _op(self, graph: Graph, node: onnx.NodeProto) -> Op:
        domain = "" if node.domain == "ai.onnx" else node.domain
        for text in (node.op_type, domain, node.name, *node.input, *node.output, *(a.name for a in node.attribute)):
            if not isinstance(text, str):
                raise EmulatorError(f"The ModelProto is malformed: the name {text!r} is not in UTF-8")
        attributes = {a.name: _attribute(a) for a in node.attribute if not a.HasField("g")}
        if domain == GRAPHCORE and node.op_type in MODEL_COLLECTIVES and (self.replicas or 1) > 1:
            attributes[REPLICA_COUNT] = self.replicas  # on which groups and shards depend
        return Op(
            node.op_type,
            tuple(node.input),
            tuple(node.output),
            attributes | self._bodies(graph, node, attributes),
            domain,
            self.version if domain == "" else 1,
            node.name,
        )

    def _bodies(self, parent: Graph, node: onnx.NodeProto, attributes: Mapping[str, Any]) -> dict[str, Graph]:
        """Return the subgraphs of a node; an invalid branch that is never taken is replaced by the taken one."""
        bodies: dict[str, Graph] = {}
        refused = []
        taken = _taken_branch(parent, node)
        for attribute in (a for a in node.attribute if a.HasField("g")):
            try:
                bodies[attribute.name] = self._body(parent, node, attribute.g, attributes)
            except EmulatorError:
                if taken in (None, attribute.name):
                    raise
                refused.append(attribute.name)
        return bodies | {name: bodies[taken] for name in refused if taken in bodies}

    def _body(
        self, parent: Graph, node: onnx.NodeProto, proto: onnx.GraphProto, attributes: Mapping[str, Any]
    ) -> Graph:
        """Return the graph of a subgraph, such as a loop body; types of its inputs may come from the node."""
        graph = Graph(
            parent=parent, inputs=[info.name for info in proto.input], outputs=[o.name for o in proto.output]
        )
        operands = [parent.tensor(id) if id else None for id in node.input]
        hints = body_input_kinds(node.domain, node.op_type, self.version, attributes, operands)
        for index, info in enumerate(proto.input):
            kind = hints[index] if index < len(hints) else declared(info)
            graph.add(Tensor(info.name, *kind, Role.COMPUTED))
        for initializer in proto.initializer:
            array = array_of(initializer)
            graph.add(Tensor(initializer.name, dtype_of(array), array.shape, Role.CONSTANT), array)
        self._add_nodes(graph, proto)
        for id in graph.outputs:
            graph.tensor(id)
        return graph


def _metadata(model: onnx.ModelProto) -> dict[str, str]:
    """Return the metadata properties of a model; raise EmulatorError if one is not text."""
    imported = {IMPORTED_FROM: model.producer_name or "another program"} if model.producer_name != PRODUCER else {}
    signature = {entry.key: entry.value for entry in model.graph.metadata_props if entry.key == SIGNATURE}
    properties = {entry.key: entry.value for entry in model.metadata_props}
    if not all(isinstance(text, str) for pair in properties.items() for text in pair):  # bytes that are not UTF-8
        raise EmulatorError("The ModelProto is malformed: a metadata property is not text in UTF-8")
    return imported | signature | properties


def _taken_branch(parent: Graph, node: onnx.NodeProto) -> str | None:
    """Return the name of the branch that an If with a constant condition takes, else None."""
    condition = parent.data.get(node.input[0]) if node.op_type == "If" and node.input else None
    if condition is None or parent.tensor(node.input[0]).role is not Role.CONSTANT:
        return None
    return "then_branch" if condition.all() else "else_branch"


def _attribute(proto: onnx.AttributeProto) -> Any:
    value = helper.get_attribute_value(proto)
    if isinstance(value, onnx.TensorProto):
        return array_of(value)
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, int) and proto.name in _TYPES:
        return _computed(value)
    if isinstance(value, int | float | str):
        return value
    return [item.decode() if isinstance(item, bytes) else item for item in value]
