"""BFLOAT16: converts models stored in this type to FLOAT, which represents all its values.

    initializer w: BFLOAT16        initializer w: FLOAT
    Cast(x, to=BFLOAT16)     ->    Cast(x, to=FLOAT)

So results are not rounded to the 8 bits that BFLOAT16 keeps.
"""

from __future__ import annotations

import numpy as np
import onnx
from onnx import numpy_helper

__all__ = ["with_floats"]

_STORED, _COMPUTED = onnx.TensorProto.BFLOAT16, onnx.TensorProto.FLOAT
#: Attributes that hold the number of an element type.
_TYPES = ("to", "dtype", "output_dtype", "stash_type")


def with_floats(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return ``model`` with FLOAT for BFLOAT16; the model itself if it has none."""
    if not _has(model.graph):
        return model
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    _change(copy.graph)
    return copy


def _has(graph: onnx.GraphProto) -> bool:
    infos = (*graph.input, *graph.output)
    return (
        any(one.data_type == _STORED for one in graph.initializer)
        or any(info.type.tensor_type.elem_type == _STORED for info in infos)
        or any(_names(attribute) for node in graph.node for attribute in node.attribute)
    )


def _names(attribute: onnx.AttributeProto) -> bool:
    """Whether an attribute names or contains the type."""
    if attribute.name in _TYPES and attribute.i == _STORED:
        return True
    return attribute.t.data_type == _STORED or any(_has(body) for body in _bodies(attribute))


def _bodies(attribute: onnx.AttributeProto) -> list[onnx.GraphProto]:
    return [*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs]


def _change(graph: onnx.GraphProto) -> None:
    for info in (*graph.input, *graph.output, *graph.value_info):
        if info.type.tensor_type.elem_type == _STORED:
            info.type.tensor_type.elem_type = _COMPUTED
    for initializer in graph.initializer:
        _widen(initializer)
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.name in _TYPES and attribute.i == _STORED:
                attribute.i = _COMPUTED
            if attribute.HasField("t"):
                _widen(attribute.t)
            for body in _bodies(attribute):
                _change(body)


def _widen(proto: onnx.TensorProto) -> None:
    if proto.data_type == _STORED:
        proto.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(proto).astype(np.float32), proto.name))
