"""Graph reader: the graph of a parsed ONNX model, with types that IPUs support.

64-bit integers become 32-bit integers, and BFLOAT16 becomes FLOAT: results are not rounded to its 8 bits.

    labels: INT64 (input)          labels: INT32; INT64 step data are converted
    best = ArgMax(scores)          best: INT32, not ONNX's INT64
    Equal(best, labels)            of INT32
    shape, axes: INT64 constants   unchanged, but cast if another operand is INT32
    Cast(x, to=BFLOAT16)           Cast(x, to=FLOAT)

The bodies of loops and branches, and their outputs, keep their integers. PopART does so with
``enableSupportedDataTypeCasting``, its default.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import onnx
from numpy.typing import NDArray
from onnx import helper

from ipu_emu.errors import EmulatorError, OpenShapeError
from ipu_emu.graph import Graph, Op, Role, Tensor, dtype_named
from ipu_emu.graph.body_inputs import Kind, body_input_kinds
from ipu_emu.graph.dtype import FLOAT, INT32, INT64, UINT32, DType, dtype_numbered, dtype_of
from ipu_emu.graph.graph import IMPORTED_FROM, SIGNATURE
from ipu_emu.graph.op import GRAPHCORE
from ipu_emu.onnx.files import ParsedModel
from ipu_emu.onnx.properties import ModelProperties, grouped_variables
from ipu_emu.onnx.write import PRODUCER
from ipu_emu.ops import append
from ipu_emu.ops.communication.collective_ops import MODEL_COLLECTIVES, REPLICA_COUNT

_SUPPORTED = {INT64: INT32, dtype_named("UINT64"): UINT32}
_NUMBERS = {wide.onnx: narrow for wide, narrow in _SUPPORTED.items()}
#: Attributes that hold the number of an element type: of integers, of any.
_INTEGER_TYPES = ("to", "dtype")
_TYPES = (*_INTEGER_TYPES, "output_dtype", "stash_type")


@dataclass(frozen=True)
class GraphReader:
    """Reads the graph of ``model`` with the arguments of ``read``."""

    model: ParsedModel
    replicas: int | None
    as_written: bool
    supported_types: bool
    inputs: Mapping[str, Kind]
    batch: int | None

    @property
    def _narrows(self) -> bool:
        return self.supported_types and not self.as_written

    def read(self, rewritten: onnx.ModelProto, data: Mapping[str, NDArray[Any]]) -> Graph:
        """Return the graph of a model that is ``rewritten`` with known ops, and whose initializers have ``data``."""
        proto = rewritten.graph
        graph = Graph(metadata=_metadata(rewritten), name=proto.name)
        for info in proto.input:
            if info.name not in data:
                dtype, shape = self.inputs.get(info.name) or self._input(info)
                dtype = _SUPPORTED.get(dtype, dtype) if self._narrows else dtype
                graph.add(Tensor(info.name, dtype, shape, Role.INPUT))
        self._add_weights(graph, data)
        self._add_nodes(graph, proto)
        graph.outputs = [info.name for info in proto.output]
        for id in graph.outputs:
            graph.tensor(id)
        for id in graph.tensors:
            if not isinstance(id, str):  # protobuf returns bytes that are not UTF-8 as bytes
                raise EmulatorError(f"The ModelProto is malformed: the name {id!r} is not in UTF-8")
        return graph

    def has_open_batch(self, graph: onnx.GraphProto) -> bool:
        """Whether inputs have an open first size."""
        return any(_is_open(size) for info in graph.input for size in info.type.tensor_type.shape.dim[:1])

    def _input(self, info: onnx.ValueInfoProto) -> Kind:
        dtype, shape = _declared(info)
        dims = info.type.tensor_type.shape.dim
        if self.as_written or not any(map(_is_open, dims)):
            return dtype, shape
        sizes: list[Any] = [(d.dim_param or str(d.dim_value or "?")) if _is_open(d) else d.dim_value for d in dims]
        if isinstance(sizes[0], str) and self.batch is not None:
            sizes[0] = self.batch
        if any(isinstance(size, str) for size in sizes):
            raise OpenShapeError(info.name, sizes)
        return dtype, tuple(sizes)

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
        add = _append_supported if self._narrows else append
        for node in proto.node:
            add(graph, self._op(graph, node))

    def _op(self, graph: Graph, node: onnx.NodeProto) -> Op:
        domain = "" if node.domain == "ai.onnx" else node.domain
        for text in (node.op_type, domain, node.name, *node.input, *node.output, *(a.name for a in node.attribute)):
            if not isinstance(text, str):
                raise EmulatorError(f"The ModelProto is malformed: the name {text!r} is not in UTF-8")
        attributes = {a.name: self._attribute(a) for a in node.attribute if not a.HasField("g")}
        if domain == GRAPHCORE and node.op_type in MODEL_COLLECTIVES and (self.replicas or 1) > 1:
            attributes[REPLICA_COUNT] = self.replicas  # on which groups and shards depend
        return Op(
            node.op_type,
            tuple(node.input),
            tuple(node.output),
            attributes | self._bodies(graph, node, attributes),
            domain,
            self.model.opset if domain == "" else 1,
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
        hints = body_input_kinds(node.domain, node.op_type, self.model.opset, attributes, operands)
        for index, info in enumerate(proto.input):
            kind = hints[index] if index < len(hints) else _declared(info)
            graph.add(Tensor(info.name, *kind, Role.COMPUTED))
        for initializer in proto.initializer:
            array = self.model.tensors.array(initializer)
            graph.add(Tensor(initializer.name, dtype_of(array), array.shape, Role.CONSTANT), array)
        self._add_nodes(graph, proto)
        for id in graph.outputs:
            graph.tensor(id)
        return graph

    def _attribute(self, proto: onnx.AttributeProto) -> Any:
        value = helper.get_attribute_value(proto)
        if isinstance(value, onnx.TensorProto):
            return self.model.tensors.array(value)
        if isinstance(value, onnx.SparseTensorProto):
            raise EmulatorError(f"The attribute {proto.name} is sparse; write the dense tensor as value")
        if isinstance(value, bytes):
            return value.decode()
        if isinstance(value, int) and proto.name in _TYPES:
            return _computed(value)
        if isinstance(value, int | float | str):
            return value
        return [item.decode() if isinstance(item, bytes) else item for item in value]


def _is_open(size: onnx.TensorShapeProto.Dimension) -> bool:
    return not size.HasField("dim_value") or size.dim_value < 0


def _declared(info: onnx.ValueInfoProto) -> Kind:
    """Return type and shape as the model declares them; open sizes are 0."""
    kind = info.type.tensor_type
    return dtype_numbered(_computed(kind.elem_type)), tuple(int(size.dim_value) for size in kind.shape.dim)


def _computed(number: int) -> int:
    """Return the element type in which a stored one is computed."""
    return FLOAT.onnx if number == onnx.TensorProto.BFLOAT16 else number


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


def _append_supported(graph: Graph, op: Op) -> list[Tensor]:
    """Append an op as ``append`` does, with the types that IPUs have."""
    inputs = _matched(graph, op)
    outputs = append(graph, op if inputs == op.inputs else replace(op, inputs=inputs))
    wide = [tensor for tensor in outputs if tensor.role is Role.COMPUTED and tensor.dtype in _SUPPORTED]
    if not wide or graph.parent is not None or any(isinstance(value, Graph) for value in op.attributes.values()):
        return outputs
    graph.tensors |= {tensor.id: replace(tensor, dtype=_SUPPORTED[tensor.dtype]) for tensor in wide}
    graph.ops[-1] = replace(graph.ops[-1], attributes=_attributes(op))
    return [graph.tensors[tensor.id] for tensor in outputs]


def _attributes(op: Op) -> dict[str, Any]:
    return {
        key: _NUMBERS[value].onnx if key in _INTEGER_TYPES and value in _NUMBERS else value
        for key, value in op.attributes.items()
    }


def _matched(graph: Graph, op: Op) -> tuple[str, ...]:
    """Return the inputs of ``op``; 64-bit inputs are cast if other inputs of the same kind have 32 bits."""
    types = {graph.tensor(id).dtype for id in op.inputs if id}
    met = {wide: narrow for wide, narrow in _SUPPORTED.items() if wide in types and narrow in types}
    return tuple(_cast(graph, id, met) if id else id for id in op.inputs)


def _cast(graph: Graph, id: str, met: Mapping[DType, DType]) -> str:
    dtype = met.get(graph.tensor(id).dtype)
    if dtype is None:
        return id
    name = f"{id}/{dtype}"
    if not graph.knows(name):
        append(graph, Op("Cast", (id,), (name,), {"to": dtype.onnx}))
    return name
