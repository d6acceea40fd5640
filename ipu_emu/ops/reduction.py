"""Ops that add up axes."""

from __future__ import annotations

from functools import partial
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ipu_emu.ops.adjoint import Adjoint, Value
from ipu_emu.ops.arrays import chain, scalar, view
from ipu_emu.ops.cost import flops
from ipu_emu.ops.node import Made, Node
from ipu_emu.ops.registry import Bound, OpDef, Step
from ipu_emu.ops.shapes import axes_of

__all__ = ["OPS"]


def _kept(node: Node) -> tuple[int, ...]:
    """Shape of the result with reduced axes kept as 1."""
    axes = axes_of(node, node.attribute("axes", None))
    return tuple(1 if i in axes else size for i, size in enumerate(node.input(0).shape))


def _shape(node: Node) -> Made:
    x, axes = node.input(0), axes_of(node, node.attribute("axes", None))
    if node.attribute("keepdims", 1):
        return [(x.dtype, _kept(node))]
    return [(x.dtype, tuple(size for i, size in enumerate(x.shape) if i not in axes))]


def _sum(bound: Bound) -> Step:
    axes = axes_of(bound.node, bound.node.attribute("axes", None))
    keep = bool(bound.node.attribute("keepdims", 1))
    x, y = bound.input(0), bound.outputs[0]
    rows = _as_rows(x, axes)
    if rows is not None and y.flags.c_contiguous:
        return partial(np.add.reduce, rows, 1, None, view(y, rows.shape[:1]))
    return partial(np.add.reduce, x, axes, None, y, keep)


def _as_rows(x: NDArray[Any], axes: tuple[int, ...]) -> NDArray[Any] | None:
    """``x`` as a matrix with a row for each sum, if it is stored so: numpy then adds in pairs, not one by one."""
    order = sorted(range(x.ndim), key=lambda axis: (-x.strides[axis], axis))
    kept = [axis for axis in order if axis not in axes]
    if order != kept + order[len(kept) :] or kept != sorted(kept):
        return None
    stored = x.transpose(order)
    return view(stored, (prod(x.shape[axis] for axis in kept), -1)) if stored.flags.c_contiguous and x.size else None


def _count(node: Node) -> int:
    axes = axes_of(node, node.attribute("axes", None))
    return prod(node.input(0).shape[axis] for axis in axes)


def _mean(bound: Bound) -> Step:
    y = bound.outputs[0]
    return chain(_sum(bound), partial(np.divide, y, scalar(_count(bound.node)), y))


def _sum_grad(d: Adjoint) -> Value:
    return d.g.shaped(_kept(d.node)).spread_to(d.shape)


def _mean_grad(d: Adjoint) -> Value:
    return d.g.scaled(1 / _count(d.node)).shaped(_kept(d.node)).spread_to(d.shape)


def _sum_to_shape(node: Node) -> Made:
    return [(node.input(0).dtype, tuple(node.attribute("shape", [])))]


def _sum_to(bound: Bound) -> Step:
    """Undo a broadcast from the shape of the output to that of the input."""
    x, y = bound.input(0), bound.outputs[0]
    lead = x.ndim - y.ndim
    axes = tuple(i for i in range(x.ndim) if i < lead or (y.shape[i - lead] == 1 and x.shape[i] != 1))
    return partial(np.add.reduce, x, axes, None, y[(None,) * lead] if lead else y, True)


_cost = flops(lambda node: node.input(0).nelms)

OPS = [
    OpDef("ReduceSum", (1, 1), _shape, _sum, _cost, _sum_grad),
    OpDef("ReduceMean", (1, 1), _shape, _mean, _cost, _mean_grad),
    OpDef("SumTo", (1, 1), _sum_to_shape, _sum_to, _cost, lambda d: d.g.spread_to(d.shape)),
]
