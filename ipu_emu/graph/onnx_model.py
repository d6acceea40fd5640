"""A graph as an ONNX ModelProto, and back."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import numpy as np
import onnx
import onnx.inliner
from onnx import helper

from ipu_emu.errors import EmulatorError
from ipu_emu.graph.dtype import DType, dtype_numbered
from ipu_emu.graph.graph import Graph
from ipu_emu.graph.onnx_tensors import array_of, proto_of, references
from ipu_emu.graph.op import GRAPHCORE, Op
from ipu_emu.graph.tensor import Role, Tensor

__all__ = [
    "Append",
    "External",
    "external_beside",
    "from_model",
    "initializers_of",
    "load_model",
    "metadata_of",
    "opset_of",
    "to_model",
    "write_external",
]

#: What adds an op to a graph and infers the tensors it makes; it lives in the room above.
Append = Callable[[Graph, Op], object]

_PRODUCER = "ipu_emu"
#: Opsets of ai.onnx; the newest is that of the onnx package.
_OLDEST, _DEFAULT = 6, 10


#: Ids of initializers whose data lie in a file, and the name of that file.
External = tuple[tuple[str, ...], str]


def to_model(graph: Graph, *, opset: int, external: External | None = None) -> bytes:
    """Serialise ``graph`` as a ModelProto of ai.onnx ``opset`` and ai.graphcore 1."""
    outside = graph.with_role(Role.INPUT, Role.WEIGHT)
    proto = helper.make_graph(
        [_node(op) for op in graph.ops],
        graph.name,
        [_value_info(tensor) for tensor in outside],
        [_value_info(graph.tensor(id)) for id in graph.outputs],
    )
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid(GRAPHCORE, 1)]
    model = helper.make_model(proto, producer_name=_PRODUCER, opset_imports=opsets, ir_version=3 if opset <= 8 else 4)
    helper.set_model_props(model, graph.metadata)
    # Last, and one by one: the helpers copy what they are given, and this is as large as the weights.
    for initializer in _initializers(graph, [t.id for t in outside if t.role is Role.WEIGHT], external):
        model.graph.initializer.append(initializer)
    return bytes(model.SerializeToString())


def _initializers(graph: Graph, ids: list[str], external: External | None) -> Iterator[onnx.TensorProto]:
    chosen, file = external or ((), "")
    kept = dict(zip(chosen, references(graph.data, chosen, file), strict=True))
    return (kept[id] if id in kept else proto_of(id, graph.data[id]) for id in ids)


def write_external(data: Mapping[str, np.ndarray], external: External) -> None:
    """Write the data of initializers to the file where a model looks for them."""
    ids, file = external
    with open(file, "wb") as stream:
        for id in ids:
            stream.write(np.ascontiguousarray(data[id]).tobytes())


def load_model(source: bytes | str | os.PathLike[str]) -> onnx.ModelProto:
    """Parse a ModelProto from bytes, or from the file of that name; raise EmulatorError if it is neither."""
    try:
        if isinstance(source, str | os.PathLike) and os.path.isfile(source):
            model = onnx.load(os.fspath(source), load_external_data=False)
            _load_external(model, os.path.dirname(os.path.abspath(source)))
        else:
            source = os.fspath(source).encode() if isinstance(source, str | os.PathLike) else bytes(source)
            model = onnx.load_model_from_string(source)
    except Exception as error:  # protobuf has no public base class for its parse errors
        raise EmulatorError(_unreadable(source)) from error
    if not model.HasField("graph"):
        raise EmulatorError(_unreadable(source))
    _check_opset(opset_of(model))
    return onnx.inliner.inline_local_functions(model) if model.functions else model


def _load_external(model: onnx.ModelProto, folder: str) -> None:
    """Fill in the data that lie in files: by absolute name, which ONNX does not take, or within ``folder``."""
    for proto in model.graph.initializer:
        if any(entry.key == "location" and os.path.isabs(entry.value) for entry in proto.external_data):
            proto.CopyFrom(proto_of(proto.name, array_of(proto)))
    onnx.load_external_data_for_model(model, folder)


def external_beside(model: str, external: External) -> External:
    """``external`` as the file ``model`` names it: relative, as ONNX wants it, where it lies in the same folder."""
    ids, file = external
    relative = os.path.relpath(file, os.path.dirname(os.path.abspath(model)))
    return ids, os.path.abspath(file) if relative.startswith("..") else relative


def from_model(
    model: onnx.ModelProto,
    append: Append,
    *,
    groups: Mapping[str, tuple[int, int] | None] = MappingProxyType({}),
    shapes: Mapping[str, tuple[DType, tuple[int, ...]]] = MappingProxyType({}),
) -> Graph:
    """Build the graph of ``model``; ``append`` adds each node with the tensors that it makes.

    Initializers named in ``groups`` have a leading axis, one entry for each group of replicas. ``shapes`` replaces
    type and shape of inputs.
    """
    try:
        return _built(model, append, groups, shapes)
    except EmulatorError:
        raise
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
        raise EmulatorError(f"The ModelProto is malformed: {type(error).__name__}: {error}") from error


def _built(
    model: onnx.ModelProto,
    append: Append,
    groups: Mapping[str, tuple[int, int] | None],
    shapes: Mapping[str, tuple[DType, tuple[int, ...]]],
) -> Graph:
    graph = Graph(metadata=metadata_of(model))
    version = opset_of(model)
    initializers = initializers_of(model)
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
    return graph


def _bodies(parent: Graph, node: onnx.NodeProto, version: int, append: Append) -> dict[str, Graph]:
    """The subgraphs of a node; the taken branch also stands for one that is never taken and fits nothing."""
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
    """The branch of an If whose condition is known."""
    condition = parent.data.get(node.input[0]) if node.op_type == "If" and node.input else None
    if condition is None or parent.tensor(node.input[0]).role is not Role.CONSTANT:
        return None
    return "then_branch" if condition.all() else "else_branch"


def _body(parent: Graph, node: onnx.NodeProto, proto: onnx.GraphProto, version: int, append: Append) -> Graph:
    """The graph of a loop, a branch or the like; what its inputs are may be known from the node alone."""
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


def _body_inputs(parent: Graph, node: onnx.NodeProto, version: int) -> list[tuple[DType, tuple[int, ...]]]:
    """Types and shapes of the inputs of a body, as far as the operands of its op say them."""
    operands = [parent.tensor(id) if id else None for id in node.input]
    kinds = [(tensor.dtype, tensor.shape) for tensor in operands if tensor is not None]
    if node.op_type == "Loop":
        return [(dtype_numbered(7), ()), (dtype_numbered(9), ()), *kinds[len(kinds) - (len(operands) - 2) :]]
    if node.op_type != "Scan":
        return kinds if node.domain == GRAPHCORE else []
    attributes = {attribute.name: helper.get_attribute_value(attribute) for attribute in node.attribute}
    states = len(kinds) - attributes["num_scan_inputs"]
    if version < 9:  # all operands have a batch axis
        samples = [(dtype, shape[1:]) for dtype, shape in kinds]
        return [*samples[:states], *((dtype, shape[1:]) for dtype, shape in samples[states:])]
    axes = attributes.get("scan_input_axes") or [0] * attributes["num_scan_inputs"]
    sliced = [
        (dtype, tuple(size for i, size in enumerate(shape) if i != axis % len(shape)))
        for (dtype, shape), axis in zip(kinds[states:], axes, strict=True)
    ]
    return [*kinds[:states], *sliced]


def metadata_of(model: onnx.ModelProto) -> dict[str, str]:
    """What a model says that ONNX has no field for."""
    return {entry.key: entry.value for entry in model.metadata_props}


def initializers_of(model: onnx.ModelProto) -> dict[str, np.ndarray]:
    """The data of a model's initializers by id, in order."""
    return {proto.name: array_of(proto) for proto in model.graph.initializer}


def opset_of(model: onnx.ModelProto) -> int:
    """The version of ai.onnx that a model is written in."""
    return next((entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx")), _DEFAULT)


def _check_opset(version: int) -> None:
    newest = onnx.defs.onnx_opset_version()
    if not _OLDEST <= version <= newest:
        raise EmulatorError(
            f"Encountered ONNX opset version {version}, Maximimum supported opset is {newest}, minimum {_OLDEST} and "
            f"default {_DEFAULT}."
        )


def _number(array: np.ndarray) -> int:
    return int(helper.np_dtype_to_tensor_dtype(array.dtype))


def _input(info: onnx.ValueInfoProto) -> Tensor:
    kind = info.type.tensor_type
    shape = tuple(int(dimension.dim_value) for dimension in kind.shape.dim)
    return Tensor(info.name, dtype_numbered(kind.elem_type), shape, Role.INPUT)


def _value_info(tensor: Tensor) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(tensor.id, tensor.dtype.onnx, tensor.shape)


def _node(op: Op) -> onnx.NodeProto:
    attributes = {name: _exported(name, value) for name, value in op.attributes.items()}
    # ONNX cannot tell the type of an empty list; it is the default in any case.
    kept = {name: value for name, value in attributes.items() if not (isinstance(value, list) and not value)}
    node = helper.make_node(op.type, op.inputs, op.outputs, name=op.name or None, domain=op.domain)
    node.attribute.extend(helper.make_attribute(name, value) for name, value in sorted(kept.items()))
    return node


def _exported(name: str, value: Any) -> Any:
    """An attribute as ONNX keeps it."""
    if isinstance(value, np.ndarray):
        return proto_of("", value)
    return _graph(name, value) if isinstance(value, Graph) else value


def _graph(name: str, body: Graph) -> onnx.GraphProto:
    return helper.make_graph(
        [_node(op) for op in body.ops],
        name,
        [_value_info(body.tensor(id)) for id in body.inputs],
        [_value_info(body.tensor(id)) for id in body.outputs],
        [proto_of(tensor.id, body.data[tensor.id]) for tensor in body.with_role(Role.WEIGHT)],
    )


def _op(graph: Graph, node: onnx.NodeProto, version: int, append: Append) -> Op:
    domain = "" if node.domain == "ai.onnx" else node.domain
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


def _unreadable(source: object) -> str:
    text = source.decode(errors="replace") if isinstance(source, bytes | bytearray) else str(source)
    shown = text if len(text) <= 200 else text[:200] + "..."
    return (
        f"Failed to load a ModelProto from the string '{shown}'.\n"
        "Check that it is either a valid path to an existing onnx model file, or is a valid onnx ModelProto string."
    )
