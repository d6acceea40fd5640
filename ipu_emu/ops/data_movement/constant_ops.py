"""Constant ops: their result is known when the graph is built, from shapes, attributes and other constants."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ipu_emu.graph.dtype import dtype_named, dtype_numbered
from ipu_emu.graph.op import GRAPHCORE
from ipu_emu.ops.core import Node, OpDef, copy_cost
from ipu_emu.ops.core.shape_rules import as_declared

#: An array; numpy's stubs call most results Any.
_Array = Any


def _known(type: str, inputs: tuple[int, int], value: Callable[[Node], _Array], domain: str = "") -> OpDef:
    return _several(type, inputs, lambda node: [value(node)], domain)


def _several(
    type: str, inputs: tuple[int, int], values: Callable[[Node], Sequence[_Array]], domain: str = ""
) -> OpDef:
    return OpDef(type, inputs, as_declared, None, copy_cost, domain=domain, constant_outputs=values)


def _value(node: Node, index: int, what: str) -> _Array:
    """The value of input ``index``, which must be constant."""
    node.input(index)
    value = node.values[index]
    if value is None:
        raise node.fail(f"{what} (input {index}) is not a constant, so the shape of the result is not known")
    return value


#: Attributes of Constant and their element types; ``value`` holds an array.
_KINDS: dict[str, Any] = {
    "value": None,
    "value_int": np.int64,
    "value_ints": np.int64,
    "value_float": np.float32,
    "value_floats": np.float32,
}


def _constant(node: Node) -> _Array:
    names = [name for name in _KINDS if name in node.op.attributes]
    if len(names) != 1:
        others = ", ".join(set(node.op.attributes) & {"sparse_value", "value_string", "value_strings"})
        raise node.fail(f"{others or 'the attribute with its value'} is no dense array of numbers; give value")
    value = node.op.attributes[names[0]]
    if names[0] == "value" and not isinstance(value, np.ndarray):
        raise node.fail("the attribute 'value' is not an array")
    return np.array(value, dtype=_KINDS[names[0]], order="C")


def _shape(node: Node) -> _Array:
    sizes = np.array(node.input(0).shape, np.int64)
    return sizes[node.attribute("start", 0) : node.attribute("end", None)]


def _constant_of_shape(node: Node) -> _Array:
    fill = node.attribute("value", np.zeros(1, np.float32))
    return np.full(_value(node, 0, "the shape").reshape(-1).tolist(), fill.reshape(-1)[0], fill.dtype)


def _range(node: Node) -> _Array:
    start, limit, step = (_value(node, i, "a bound").reshape(-1)[0] for i in range(3))
    count = max(int(np.ceil((limit - start) / step)), 0)
    return (start + np.arange(count) * step).astype(node.input(0).dtype.numpy)


def _eye_like(node: Node) -> _Array:
    x = node.input(0)
    if x.rank != 2:
        raise node.fail(f"the input must be a matrix, found {x}")
    dtype = dtype_numbered(node.attribute("dtype", x.dtype.onnx))
    return np.eye(x.shape[0], x.shape[1], k=node.attribute("k", 0), dtype=dtype.numpy)


def _init(node: Node) -> _Array:
    """Zeros, even where PopART leaves the content undefined, so that results are reproducible."""
    kind = node.attribute("data_type", "FLOAT")
    dtype = dtype_named(kind) if isinstance(kind, str) else dtype_numbered(kind)
    return np.zeros(tuple(node.attribute("shape", [])), dtype.numpy)


def _compress(node: Node) -> _Array:
    return np.compress(_value(node, 1, "the condition"), _value(node, 0, "the input"), node.attribute("axis", None))


def _unique(node: Node) -> list[_Array]:
    x, axis = _value(node, 0, "the input"), node.attribute("axis", None)
    values, first, inverse, counts = np.unique(x, True, True, True, axis)
    inverse = inverse.reshape(-1)
    if not node.attribute("sorted", 1):
        order = np.argsort(first)
        place = np.argsort(order)
        values = np.take(values, order, 0 if axis is None else axis)
        first, counts, inverse = first[order], counts[order], place[inverse]
    return [values, *(indices.astype(np.int64) for indices in (first, inverse, counts))]


OPS = [
    _known("Constant", (0, 0), _constant),
    _known("ConstantOfShape", (1, 1), _constant_of_shape),
    _known("Shape", (1, 1), _shape),
    _known("Size", (1, 1), lambda node: np.array(node.input(0).nelms, np.int64)),
    _known("Range", (3, 3), _range),
    _known("EyeLike", (1, 1), _eye_like),
    _known("Init", (0, 0), _init, GRAPHCORE),
    _known("NonZero", (1, 1), lambda node: np.array(np.nonzero(_value(node, 0, "the input")), np.int64)),
    _known("Compress", (2, 2), _compress),
    _several("Unique", (1, 1), _unique),
]
