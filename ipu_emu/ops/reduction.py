"""Ops that add up axes."""

from __future__ import annotations

from functools import partial
from math import prod

import numpy as np

from ipu_emu.ops.adjoint import Adjoint, Value
from ipu_emu.ops.arrays import chain, scalar
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
    return partial(np.add.reduce, bound.input(0), axes, None, bound.outputs[0], keep)


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
