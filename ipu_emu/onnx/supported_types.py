"""Supported types: 64-bit integers become 32-bit integers, the widest that IPUs support.

    labels: INT64 (input)          labels: INT32; INT64 step data are converted
    best = ArgMax(scores)          best: INT32, not ONNX's INT64
    Equal(best, labels)            of INT32
    shape, axes: INT64 constants   unchanged, but cast if another operand is INT32

The bodies of loops and branches, and their outputs, keep their types. PopART does so with
``enableSupportedDataTypeCasting``, its default.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ipu_emu.graph import Graph, Op, Role, Tensor, dtype_named
from ipu_emu.graph.body_inputs import Kind
from ipu_emu.graph.dtype import INT32, INT64, UINT32, DType
from ipu_emu.ops import append

__all__ = ["append_supported", "supported"]

_SUPPORTED = {INT64: INT32, dtype_named("UINT64"): UINT32}
_NUMBERS = {wide.onnx: narrow for wide, narrow in _SUPPORTED.items()}
#: Attributes that hold the number of an element type.
_TYPES = ("to", "dtype")


def supported(kind: Kind) -> Kind:
    """Return the type that IPUs have for that of an input, and its shape."""
    return _SUPPORTED.get(kind[0], kind[0]), kind[1]


def append_supported(graph: Graph, op: Op) -> list[Tensor]:
    """Append an op as ``append`` does, with the types that IPUs have."""
    inputs = _matched(graph, op)
    made = append(graph, op if inputs == op.inputs else replace(op, inputs=inputs))
    wide = [tensor for tensor in made if tensor.role is Role.COMPUTED and tensor.dtype in _SUPPORTED]
    if not wide or graph.parent is not None or any(isinstance(value, Graph) for value in op.attributes.values()):
        return made
    graph.tensors |= {tensor.id: replace(tensor, dtype=_SUPPORTED[tensor.dtype]) for tensor in wide}
    graph.ops[-1] = replace(graph.ops[-1], attributes=_attributes(op))
    return [graph.tensors[tensor.id] for tensor in made]


def _attributes(op: Op) -> dict[str, Any]:
    return {
        key: _NUMBERS[value].onnx if key in _TYPES and value in _NUMBERS else value
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
