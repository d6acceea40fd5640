"""Static sequences: sequences of tensors whose lengths are known become their tensors, as exporters leave them.

    parts = SplitToSequence(x, axis=1)         x0, x1 = Split(x, axis=1)
    y = SequenceAt(parts, 1)           ->      y = Identity(x1)
    z = ConcatFromSequence(parts)              z = Concat(x0, x1)

Sequences of unknown length, in loops, and as inputs or outputs of the model are not supported.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from ipu_emu.onnx.tensors import TensorReader

_INTEGERS = (onnx.TensorProto.INT32, onnx.TensorProto.INT64)
#: The first opset in which sizes and axes are inputs.
_BY_INPUT = 13


def without_sequences(model: onnx.ModelProto, opset: int, tensors: TensorReader) -> onnx.ModelProto:
    """Return ``model`` with the tensors of its sequences instead of them."""
    if not any(node.op_type in _RULES and node.domain in ("", "ai.onnx") for node in model.graph.node):
        return model
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    _Removal(copy, opset, tensors).run()
    return copy


class _UnknownError(Exception):
    """A value that a node needs is unknown."""


class _Removal:
    def __init__(self, model: onnx.ModelProto, opset: int, tensors: TensorReader) -> None:
        self.graph, self.opset, self.array = model.graph, opset, tensors.array
        self.sequences: dict[str, list[str]] = {}
        self.known = {
            tensor.name: self.array(tensor) for tensor in model.graph.initializer if tensor.data_type in _INTEGERS
        }
        self.sizes = _sizes(model)
        self.nodes: list[onnx.NodeProto] = []
        self.names = 0

    def run(self) -> None:
        for node in self.graph.node:
            if node.op_type == "Constant" and node.attribute and node.attribute[0].name == "value":
                self.known[node.output[0]] = self.array(node.attribute[0].t)
            rule = _RULES.get(node.op_type)
            if rule is None and not (node.op_type == "Identity" and node.input[0] in self.sequences):
                self.nodes.append(node)
                continue
            before = len(self.nodes)
            try:
                if any(
                    info.name in node.output and info.type.HasField("sequence_type") for info in self.graph.output
                ):
                    raise _UnknownError
                self.sequences |= (
                    {node.output[0]: self.sequences[node.input[0]]} if rule is None else rule(self, node)
                )
            except (_UnknownError, KeyError, IndexError):
                del self.nodes[before:]
                self.nodes.append(node)
        del self.graph.node[:]
        self.graph.node.extend(self.nodes)

    def number(self, id: str) -> int:
        """The value of a position."""
        if id not in self.known:
            raise _UnknownError
        return int(self.known[id].reshape(()))

    def add(self, type: str, inputs: Sequence[str], outputs: Sequence[str], **attributes: Any) -> None:
        self.nodes.append(helper.make_node(type, inputs, outputs, **attributes))

    def name(self, base: str) -> str:
        self.names += 1
        return f"{base}/item/{self.names}"

    def constant(self, base: str, values: Sequence[int]) -> str:
        id = self.name(base)
        self.add("Constant", [], [id], value=numpy_helper.from_array(np.array(values, np.int64)))
        return id

    def with_axes(self, type: str, id: str, out: str, axis: int) -> None:
        """Add a Squeeze or an Unsqueeze."""
        if self.opset >= _BY_INPUT:
            self.add(type, [id, self.constant(out, [axis])], [out])
        else:
            self.add(type, [id], [out], axes=[axis])


_Made = Mapping[str, list[str]]


def _construct(removal: _Removal, node: onnx.NodeProto) -> _Made:
    return {node.output[0]: list(node.input)}


def _at(removal: _Removal, node: onnx.NodeProto) -> _Made:
    chosen = removal.sequences[node.input[0]][removal.number(node.input[1])]
    removal.add("Identity", [chosen], [node.output[0]])
    return {}


def _insert(removal: _Removal, node: onnx.NodeProto) -> _Made:
    parts = list(removal.sequences[node.input[0]])
    place = removal.number(node.input[2]) if len(node.input) > 2 and node.input[2] else len(parts)
    return {node.output[0]: [*parts[:place], node.input[1], *parts[place:]]}


def _erase(removal: _Removal, node: onnx.NodeProto) -> _Made:
    parts = list(removal.sequences[node.input[0]])
    place = removal.number(node.input[1]) if len(node.input) > 1 and node.input[1] else len(parts) - 1
    parts.pop(place)
    return {node.output[0]: parts}


def _length(removal: _Removal, node: onnx.NodeProto) -> _Made:
    value = np.array(len(removal.sequences[node.input[0]]), np.int64)
    removal.add("Constant", [], [node.output[0]], value=numpy_helper.from_array(value))
    removal.known[node.output[0]] = value
    return {}


def _concat(removal: _Removal, node: onnx.NodeProto) -> _Made:
    attributes = {attribute.name: attribute.i for attribute in node.attribute}
    parts = removal.sequences[node.input[0]]
    if attributes.get("new_axis", 0):
        wide = [removal.name(node.output[0]) for _ in parts]
        for part, out in zip(parts, wide, strict=True):
            removal.with_axes("Unsqueeze", part, out, attributes["axis"])
        parts = wide
    removal.add("Concat", parts, [node.output[0]], axis=attributes["axis"])
    return {}


def _split(removal: _Removal, node: onnx.NodeProto) -> _Made:
    attributes = {attribute.name: attribute.i for attribute in node.attribute}
    axis, source = attributes.get("axis", 0), node.input[0]
    size = removal.sizes[source][axis]
    by_element = len(node.input) < 2 or not node.input[1]
    if size is None or (not by_element and node.input[1] not in removal.known):
        raise _UnknownError
    lengths = np.array(1) if by_element else removal.known[node.input[1]]
    step = int(lengths.reshape(-1)[0])
    sizes = [int(part) for part in lengths] if lengths.ndim else [min(step, size - i) for i in range(0, size, step)]
    parts = [removal.name(node.output[0]) for _ in sizes]
    if removal.opset >= _BY_INPUT:
        removal.add("Split", [source, removal.constant(node.output[0], sizes)], parts, axis=axis)
    else:
        removal.add("Split", [source], parts, axis=axis, split=sizes)
    if not by_element or attributes.get("keepdims", 1):
        return {node.output[0]: parts}
    narrow = [removal.name(node.output[0]) for _ in parts]
    for part, out in zip(parts, narrow, strict=True):
        removal.with_axes("Squeeze", part, out, axis)
    return {node.output[0]: narrow}


_RULES: dict[str, Callable[[_Removal, onnx.NodeProto], _Made]] = {
    "ConcatFromSequence": _concat,
    "SequenceAt": _at,
    "SequenceConstruct": _construct,
    "SequenceEmpty": _construct,
    "SequenceErase": _erase,
    "SequenceInsert": _insert,
    "SequenceLength": _length,
    "SplitToSequence": _split,
}


def _sizes(model: onnx.ModelProto) -> dict[str, list[int | None]]:
    """The shapes of tensors as far as ONNX infers them."""
    try:
        inferred = onnx.shape_inference.infer_shapes(model)
    except onnx.shape_inference.InferenceError:
        inferred = model
    graph = inferred.graph
    shapes: dict[str, list[int | None]] = {tensor.name: list(tensor.dims) for tensor in graph.initializer}
    for info in (*graph.input, *graph.value_info, *graph.output):
        dims = info.type.tensor_type.shape.dim
        shapes[info.name] = [dim.dim_value if dim.HasField("dim_value") else None for dim in dims]
    return shapes
