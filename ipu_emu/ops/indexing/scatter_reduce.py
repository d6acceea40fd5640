"""Scatter with a reduction: elements of a source are combined into a result, at indices along one axis.

ScatterReduce (aiGraphcore), Scatter and ScatterElements (ONNX) are one op, whose inputs have another order. The
indices, expanded to the rank of the source, name the places of the leading corner of the source that has their
shape; the other axes of source and result agree.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ipu_emu.errors import EmulatorError
from ipu_emu.graph.op import GRAPHCORE
from ipu_emu.ops.core import Adjoint, BoundOp, Call, Node, OpDef, OutputTypes, Value, call_chain, copy_cost, listed
from ipu_emu.ops.core.gather_kernels import (
    SCATTER_REDUCTIONS,
    along,
    broadcast_along,
    put_elements,
    take_elements,
    zero_unindexed,
)
from ipu_emu.ops.core.kernel_helpers import allocating_kernel, with_contiguous_operands
from ipu_emu.ops.core.shape_rules import same, shape_attribute
from ipu_emu.ops.indexing.index_arrays import (
    ONNX_REDUCTIONS,
    check_integer_indices,
    check_reduction,
    combine_at,
    index_arrays,
    indexed_axis,
)

#: An array; numpy's stubs call most results Any.
_Array = Any


@dataclass(frozen=True)
class _Form:
    """The differences between the ops: the name in errors, the inputs of source and initial values, and defaults."""

    name: str
    source: int
    initial: int
    axis: int
    reduction: str
    reductions: tuple[str, ...]
    broadcasts: int


_GRAPHCORE = _Form("ScatterReduceOp", 0, 2, -1, "sum", ("sum", "max", "min", "mul", "none"), 1)
_ONNX = _Form("ScatterOp", 2, 0, 0, "none", ONNX_REDUCTIONS, 0)
_FORMS = {"ScatterReduce": _GRAPHCORE, "Scatter": _ONNX, "ScatterElements": _ONNX}


def _form(node: Node) -> _Form:
    return _FORMS.get(node.op.type, _GRAPHCORE)


# Shapes


def _axis(node: Node) -> int:
    """The axis along which indices count, from the front."""
    form = _form(node)
    return indexed_axis(node, node.input(form.source).rank, form.axis, f"{form.name}::setup")


def _shape(node: Node) -> OutputTypes:
    form = _form(node)
    source, indices = node.input(form.source), node.input(1)
    check_integer_indices(node, indices)
    axis = _axis(node)
    check_reduction(node, form.reduction, form.reductions)
    if form is _GRAPHCORE:
        _check_numbers(node)
    corner = _corner(node, source.shape, indices.shape, axis)
    result = (*corner[:axis], int(node.attribute("axis_size", 0)), *corner[axis + 1 :])
    if not node.has_input(form.initial):
        return [(source.dtype, result)]
    initial = node.input(form.initial)
    if initial.dtype is not source.dtype:
        raise node.fail(f"{source} and {initial} must have one type; cast one of them")
    if initial.rank != source.rank or any(
        n > size for i, (n, size) in enumerate(zip(corner, initial.shape, strict=True)) if i != axis
    ):
        raise node.fail(f"{source} at indices of shape {list(corner)} does not fit into {initial} along axis {axis}")
    return [(initial.dtype, initial.shape)]


def _check_numbers(node: Node) -> None:
    for name, default in (("axis_size", 0), ("group_size", 1)):
        value = node.attribute(name, default)
        if value <= 0:
            raise EmulatorError(f"ScatterReduceOp {name} = {value} is not valid: must be > 0.")
    broadcasts = node.attribute("enable_index_broadcast", 1)
    if broadcasts not in (0, 1):
        raise EmulatorError(
            f"ScatterReduceOp enable_index_broadcast = {broadcasts} is not valid: must be either 0 or 1."
        )
    groups = int(node.attribute("group_size", 1))
    if groups == 1:
        return
    tensors = [tensor for tensor in node.inputs if tensor is not None]
    if any(tensor.shape[:1] != (groups,) for tensor in tensors) or not _axis(node):
        listing = ", ".join(map(str, tensors))
        raise node.fail(f"{listing}: all inputs need a first axis of {groups} groups, and the axis must not be 0")


def _corner(node: Node, source: tuple[int, ...], indices: tuple[int, ...], axis: int) -> tuple[int, ...]:
    """The shape of the part of the source that is scattered."""
    expanded = _expanded(node, source, indices, axis)
    if not node.attribute("enable_index_broadcast", _form(node).broadcasts) or expanded == source:
        return expanded
    first = 1 if node.attribute("group_size", 1) > 1 else 0
    if any(n != 1 for i, n in enumerate(expanded) if i != axis and i >= first):
        raise EmulatorError(
            f"Partial broadcasting of indices is not currently supported. Op {node.op.label} has indices "
            f"{list(indices)} for data {list(source)}; give one index per slice along axis {axis}, or one per element"
        )
    return (*source[:axis], expanded[axis], *source[axis + 1 :])


def _expanded(node: Node, source: tuple[int, ...], indices: tuple[int, ...], axis: int) -> tuple[int, ...]:
    """The shape of the indices with the rank of the source: a vector (one per group) belongs to ``axis``."""
    rank = len(source)
    if len(indices) > rank:
        raise EmulatorError(
            f"Invalid rank for indices input. Indices rank {len(indices)} must be <= data input rank {rank}."
        )
    groups = indices[:1] if node.attribute("group_size", 1) > 1 else ()
    own = indices[len(groups) :]
    if len(own) == 1 and len(indices) < rank:
        own = (1,) * (axis - len(groups)) + own
    expanded = groups + own + (1,) * (rank - len(groups) - len(own))
    if any(n > size for n, size in zip(expanded, source, strict=True)):
        shapes = f"'indices' shape {listed(indices)} to match 'src' shape {listed(source)}"
        raise EmulatorError(f"Failed to expand {shapes} using reduction axis = {axis}.")
    return expanded


# Kernels


def _scatter(bound: BoundOp) -> Call:
    node, out, form = bound.node, bound.outputs[0], _form(bound.node)
    source, axis, reduction = bound.input(form.source), _axis(node), node.attribute("reduction", form.reduction)
    indices = _rows_of_indices(node, bound.input(1), source.shape, out.shape, axis)
    if indices is None or source.dtype.kind == "b":
        return allocating_kernel(_scatter_numpy)(bound)
    rows = along(out, axis)
    put = partial(put_elements, indices, along(source, axis), rows, SCATTER_REDUCTIONS[reduction])
    if node.has_input(form.initial):
        return call_chain(partial(np.copyto, out, bound.input(form.initial)), put)
    start = partial(out.fill, _start(reduction, out.dtype))
    if reduction not in ("max", "min"):
        return call_chain(start, put)
    indexed = bound.scratch[0].view(bool)[: out.size].reshape(rows.shape)
    return call_chain(start, put, partial(zero_unindexed, indices, indexed, rows))


def _rows_of_indices(
    node: Node, indices: _Array, source: tuple[int, ...], out: tuple[int, ...], axis: int
) -> NDArray[Any] | None:
    """The indices as [outer, n, inner], for the compiled kernels; None where only a corner is scattered."""
    complete = _corner(node, source, indices.shape, axis) == source
    if not complete or 0 in (*source, *out) or source[:axis] + source[axis + 1 :] != out[:axis] + out[axis + 1 :]:
        return None
    return broadcast_along(indices.reshape(_expanded(node, source, indices.shape, axis)), source, axis)


def _start(reduction: str, dtype: Any) -> Any:
    """The value of a place without an initial value, with which the first element is combined."""
    if reduction in ("max", "min"):
        low, high = (False, True) if dtype.kind == "b" else (-np.inf, np.inf)
        if dtype.kind in "iu":
            low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
        return low if reduction == "max" else high
    return 1 if reduction == "mul" else 0


def _scatter_numpy(node: Node, *inputs: _Array) -> _Array:
    form = _form(node)
    source, reduction = inputs[form.source], node.attribute("reduction", form.reduction)
    initial = inputs[form.initial] if node.has_input(form.initial) else None
    shape = node.outputs[0].shape
    out = np.full(shape, _start(reduction, source.dtype), source.dtype) if initial is None else initial.copy()
    places, corner = _places(node, source.shape, inputs[1], out.shape, _axis(node))
    combine_at(out, places, source[corner], reduction)
    if initial is None and reduction in ("max", "min"):
        indexed = np.zeros(shape, bool)
        indexed[places] = True
        out[~indexed] = 0
    return out


def _places(
    node: Node, source: tuple[int, ...], indices: _Array, out: tuple[int, ...], axis: int
) -> tuple[tuple[_Array, ...], tuple[slice, ...]]:
    """The place of each element of the corner that is scattered, and the corner."""
    corner = _corner(node, source, indices.shape, axis)
    wide = np.broadcast_to(indices.reshape(_expanded(node, source, indices.shape, axis)), corner)
    return index_arrays(wide, axis, out[axis]), tuple(slice(n) for n in corner)


# Gradients


def _grad(d: Adjoint) -> list[Value | None]:
    form = _form(d.node)
    of_source, of_initial = _grads(d, d.input(form.source), d.optional(form.initial))
    grads = {form.source: of_source, form.initial: of_initial}
    return [grads.get(index) for index in range(len(d.operands))]


def _grads(d: Adjoint, source: Value, initial: Value | None) -> tuple[Value, Value | None]:
    """The gradients of the source and of the initial values."""
    reduction = d.attribute("reduction", _form(d.node).reduction)
    taken = _taken(d, d.g, source)
    if reduction in ("sum", "add"):
        return taken, d.g
    if reduction == "none":
        return taken, _rule(d, "ClearIndexed", d.g, source) if initial else None
    result = _taken(d, d.y, source)
    if reduction == "mul":
        return taken * (result / source), d.g * (d.y / initial) if initial else None
    return _where_equal(source, result, taken), _where_equal(initial, d.y, d.g) if initial else None


def _where_equal(a: Value, b: Value, g: Value) -> Value:
    return a.op("Equal", b).op("Where", g, g.like(0.0))


def _taken(d: Adjoint, values: Value, source: Value) -> Value:
    """The elements of ``values``, which has the result's shape, at the indices; zeros outside the corner."""
    return _rule(d, "TakeIndexed", values, source)


def _rule(d: Adjoint, type: str, values: Value, source: Value) -> Value:
    form = _form(d.node)
    return values.op(
        type,
        d.input(1),
        shape=list(source.tensor.shape),
        axis=_axis(d.node),
        group_size=d.attribute("group_size", 1),
        enable_index_broadcast=d.attribute("enable_index_broadcast", form.broadcasts),
    )


def _take(bound: BoundOp) -> Call:
    values, out, axis = bound.input(0), bound.outputs[0], bound.node.attribute("axis", 0)
    indices = _rows_of_indices(bound.node, bound.input(1), out.shape, values.shape, axis)
    if indices is None:
        return allocating_kernel(_take_numpy)(bound)
    return partial(take_elements, along(values, axis), indices, along(out, axis))


def _take_numpy(node: Node, values: _Array, indices: _Array) -> _Array:
    out = np.zeros(node.attribute("shape", []), values.dtype)
    places, corner = _places(node, out.shape, indices, values.shape, node.attribute("axis", 0))
    out[corner] = values[places]
    return out


def _clear(node: Node, values: _Array, indices: _Array) -> _Array:
    out = values.copy()
    out[_places(node, tuple(node.attribute("shape", [])), indices, out.shape, node.attribute("axis", 0))[0]] = 0
    return out


def _bit_per_place(node: Node) -> list[int]:
    return [-(-node.outputs[0].nelms // 4)]


def _op(type: str, inputs: tuple[int, int], domain: str = "") -> OpDef:
    kernel = with_contiguous_operands(_scatter)
    return OpDef(type, inputs, _shape, kernel, copy_cost, _grad, _bit_per_place, domain=domain)


OPS = [
    _op("ScatterReduce", (2, 3), GRAPHCORE),
    _op("Scatter", (3, 3)),
    _op("ScatterElements", (3, 3)),
    OpDef("TakeIndexed", (2, 2), shape_attribute, with_contiguous_operands(_take), copy_cost),
    OpDef("ClearIndexed", (2, 2), same, allocating_kernel(_clear), copy_cost),
]
