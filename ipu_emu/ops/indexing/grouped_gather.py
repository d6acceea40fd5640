"""Grouped gather: a gather of rows within each group of a tensor (aiGraphcore)."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ipu_emu.graph.op import GRAPHCORE
from ipu_emu.ops.core import Adjoint, BoundOp, Call, Node, OpDef, OutputTypes, Value, call_chain, copy_cost
from ipu_emu.ops.core.gather_kernels import added_rows
from ipu_emu.ops.core.kernel_helpers import with_contiguous_operands
from ipu_emu.ops.core.shape_rules import shape_attribute
from ipu_emu.ops.indexing.index_arrays import check_integer_indices, indexed_axis


def _shape(node: Node) -> OutputTypes:
    x, indices, axis = node.input(0), node.input(1), indexed_axis(node, node.input(0).rank, 0, "GatherOp::setup")
    check_integer_indices(node, indices)
    groups = int(node.attribute("group_size", 1))
    if groups == 1:
        return [(x.dtype, (*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :]))]
    if x.shape[:1] != (groups,) or indices.shape[:1] != (groups,) or not axis:
        raise node.fail(f"axis 0 of {x} and {indices} must have the {groups} groups, and axis must be above 0")
    return [(x.dtype, (groups, *x.shape[1:axis], *indices.shape[1:], *x.shape[axis + 1 :]))]


def _groups(bound: BoundOp, x: NDArray[Any], *others: NDArray[Any]) -> tuple[int, list[tuple[NDArray[Any], ...]]]:
    """The axis within a group, and the parts of the arrays of each group."""
    axis = int(bound.node.attribute("axis", 0)) % x.ndim
    if bound.node.attribute("group_size", 1) == 1:
        return axis, [(x, *others)]
    return axis - 1, list(zip(x, *others, strict=True))


def _gather(bound: BoundOp) -> Call:
    axis, groups = _groups(bound, bound.input(0), bound.input(1), bound.outputs[0])
    return call_chain(*(partial(np.take, x, indices, axis, out, "wrap") for x, indices, out in groups))


def _grad(d: Adjoint) -> list[Value | None]:
    axis, groups = d.attribute("axis", 0), d.attribute("group_size", 1)
    return [d.g.op("GroupedGatherGrad", d.input(1), shape=list(d.shape), axis=axis, group_size=groups), None]


def _back(bound: BoundOp) -> Call:
    axis, groups = _groups(bound, bound.outputs[0], bound.input(0), bound.input(1))
    return call_chain(*(added_rows(g, indices, total, axis) for total, g, indices in groups))


OPS = [
    OpDef("GroupedGather", (2, 2), _shape, with_contiguous_operands(_gather), copy_cost, _grad, domain=GRAPHCORE),
    OpDef("GroupedGatherGrad", (2, 2), shape_attribute, with_contiguous_operands(_back), copy_cost),
]
