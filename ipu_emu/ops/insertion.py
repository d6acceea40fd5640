"""Insertion: adds an op and its output tensors to a graph."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ipu_emu.errors import EmulatorError, RefusedError
from ipu_emu.graph import Graph, Op, Role, StepPhase, Tensor
from ipu_emu.graph.dtype import FLOAT, FLOAT16, INT64, dtype_of
from ipu_emu.graph.op import GRAPHCORE
from ipu_emu.ops.core import BoundOp, Node, OpDef, input_node
from ipu_emu.ops.table import TABLE

#: More bytes than any system has: a larger tensor is a mistake.
_MOST_BYTES = 1 << 46

_Values = list[NDArray[Any]]


def append(graph: Graph, op: Op) -> list[Tensor]:
    """Infer the outputs of ``op`` and add both to ``graph``; raise EmulatorError if its inputs are invalid.

    Outputs that depend only on constants are computed now and become constants.
    """
    op = _as_dynamic_slice(graph, op)
    entry = TABLE[op]
    _check_inputs(entry, op)
    try:
        tensors, values = _made(graph, entry, op)
    except EmulatorError:
        raise
    except (ArithmeticError, AttributeError, LookupError, MemoryError, TypeError, ValueError) as error:
        raise EmulatorError(f"Op {op.label}: its inputs and attributes do not fit {op.type}: {error}") from error
    graph.append(op, tensors)
    graph.data |= {tensor.id: value for tensor, value in zip(tensors, values, strict=False)}
    return tensors


def append_unchecked(graph: Graph, op: Op) -> None:
    """Add an op without inferring its outputs, so that compiling the graph, not this call, reports invalid operands.

    The number of inputs and their existence are checked here.
    """
    _check_inputs(TABLE[op], op)
    inputs = [graph.tensor(id) for id in op.inputs if id]
    dtype, shape = (inputs[0].dtype, inputs[0].shape) if inputs else (FLOAT, ())
    graph.append(op, [Tensor(id, dtype, shape) for id in op.outputs if id])


def _check_inputs(entry: OpDef, op: Op) -> None:
    least, most = entry.inputs
    if len(op.inputs) < least or (most is not None and len(op.inputs) > most):
        bounds = f"{least}..{'inf' if most is None else most}"
        raise RefusedError(f"{op.type} has invalid number of inputs {len(op.inputs)}. Must be between {bounds}")
    if not op.outputs:
        raise EmulatorError(f"Op {op.label} has no outputs; name one")


def _made(graph: Graph, entry: OpDef, op: Op) -> tuple[list[Tensor], _Values]:
    """The output tensors of ``op``, and their values where they are known."""
    node = input_node(graph, op)
    if entry.constant_outputs is not None:
        arrays = list(entry.constant_outputs(node))
        outs = [(dtype_of(array), array.shape) for array in arrays]
    else:
        arrays, outs = [], entry.shape(node)
    if len(op.outputs) > len(outs):
        raise node.fail(f"{len(op.outputs)} outputs are named, but the op has {len(outs)}; name at most {len(outs)}")
    tensors = [Tensor(id, dtype, shape) for id, (dtype, shape) in zip(op.outputs, outs, strict=False)]
    for tensor in tensors:
        if tensor.nbytes > _MOST_BYTES:
            raise node.fail(f"{tensor} would take {tensor.nbytes} bytes, more than any system has")
    if entry.folded_outputs is not None:
        arrays = list(entry.folded_outputs(node) or [])
    elif entry.constant_outputs is None and _is_known(graph, entry, op):
        everything = _complete(op, tensors, outs)
        arrays = evaluate(entry, replace(node, outputs=everything), node.values)
    if arrays:
        tensors = [replace(tensor, role=Role.CONSTANT) for tensor in tensors]
        pairs = [(t, a) for t, a in zip(tensors, arrays, strict=False) if t.id]
        return [t for t, _ in pairs], [a for _, a in pairs]
    return [tensor for tensor in tensors if tensor.id], []


def _complete(op: Op, tensors: list[Tensor], types: list[Any]) -> tuple[Tensor, ...]:
    rest = [Tensor("", dtype, shape) for dtype, shape in types[len(op.outputs) :]]
    return (*tensors, *rest)


def _is_known(graph: Graph, entry: OpDef, op: Op) -> bool:
    """Whether all inputs have known values: constants, or integer tensors (such as shapes) that are not trained."""
    if entry.kernel is None or entry.random or entry.updates or entry.expand or not any(op.inputs):
        return False
    if op.phase is not StepPhase.FORWARD:
        return False
    inputs = [graph.tensors[id] for id in op.inputs if id]
    constant = all(t.role is Role.CONSTANT or (t.role is Role.WEIGHT and t.dtype is INT64) for t in inputs)
    return constant and all(t.id in graph.data for t in inputs)


def node_of(graph: Graph, op: Op) -> Node:
    """``op`` of ``graph`` with all its tensors."""
    node = input_node(graph, op)
    return Node(op, node.inputs, node.values, tuple(graph.tensor(id) for id in op.outputs))


# Slices of fixed size: their bounds are computed, but always the same distance apart


#: Ops that return a scalar unchanged.
_PASSES_ON = ("Identity", "Unsqueeze", "Squeeze", "Reshape")


def _as_dynamic_slice(graph: Graph, op: Op) -> Op:
    """A dynamic slice in place of a Slice of fixed size and computed start; any other ``op`` unchanged."""
    if op.type != "Slice" or op.domain or len(op.inputs) < 3 or op.inputs[1] in graph.data:
        return op
    more = [id for id in op.inputs[3:] if id]
    start, end = (_origin(graph, id) for id in op.inputs[1:3])
    size = end[1] - start[1]
    if start[0] != end[0] or size <= 0 or graph.tensor(op.inputs[1]).nelms != 1 or len(more) > 1:
        return op
    if more and op.inputs[3] not in graph.data:
        return op
    axes = graph.data[op.inputs[3]].reshape(-1).tolist() if more else [0]
    rank = graph.tensor(op.inputs[0]).rank
    attributes = {"axes": [axis % max(rank, 1) for axis in axes], "sizes": [size]}
    return replace(op, type="DynamicSlice", domain=GRAPHCORE, inputs=op.inputs[:2], attributes=attributes, version=1)


def _origin(graph: Graph, id: str) -> tuple[str, int]:
    """The tensor that ``id`` is computed from by adding constants, and the sum of these."""
    above, makers = 0, {output: op for op in graph.ops for output in op.outputs}
    while id in makers:
        op = makers[id]
        known = [other for other in op.inputs if _is_fixed_number(graph, other)]
        if op.type in _PASSES_ON:
            id = op.inputs[0]
        elif op.type == "Add" and len(known) == 1:
            above += int(graph.data[known[0]].item())
            id = next(other for other in op.inputs if other != known[0])
        else:
            break
    return id, above


def _is_fixed_number(graph: Graph, id: str) -> bool:
    """Whether ``id`` is a constant scalar."""
    tensor = graph.tensor(id)
    fixed = tensor.role is Role.CONSTANT or tensor.dtype is INT64
    return fixed and id in graph.data and tensor.nelms == 1


def evaluate(entry: OpDef, node: Node, inputs: Sequence[NDArray[Any] | None]) -> list[NDArray[Any]]:
    """The outputs of ``node`` for ``inputs``; the types of its outputs must be known."""
    assert entry.kernel is not None
    operands = [*node.inputs, *node.outputs]
    spatial = {index % len(operands) for index in entry.batch_innermost}
    halves = entry.takes_half(node)
    arrays = [None if t is None else _place(t, i in spatial, halves) for i, t in enumerate(operands)]
    for place, value in zip(arrays, inputs, strict=False):
        if place is not None and value is not None:
            np.copyto(place, value)
    outputs = [array for array in arrays[len(node.inputs) :] if array is not None]
    scratch = tuple(np.zeros(size, np.float32) for size in entry.workspace(node))
    with np.errstate(all="ignore"):
        entry.kernel(BoundOp(node, tuple(arrays[: len(node.inputs)]), tuple(outputs), scratch))()
        return [np.ascontiguousarray(a, t.dtype.numpy) for a, t in zip(outputs, node.outputs, strict=True)]


def _place(tensor: Tensor, batch_innermost: bool, halves: bool) -> NDArray[Any]:
    """A zeroed array in the kernel's storage order; float32 for FLOAT16, unless the kernel takes halves."""
    kind = np.dtype(np.float32) if tensor.dtype is FLOAT16 and not halves else tensor.dtype.numpy
    if not batch_innermost or tensor.rank < 2:
        return np.zeros(tensor.shape, kind)
    stored: NDArray[Any] = np.zeros((*tensor.shape[1:], tensor.shape[0]), kind)
    return np.moveaxis(stored, -1, 0)
