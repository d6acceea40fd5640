"""Shape rules that families share."""

from __future__ import annotations

from math import prod

import numpy as np

from ipu_emu.ops.node import Made, Node

__all__ = ["axes_of", "broadcast", "inferred", "same", "scalar_or_same"]


def same(node: Node) -> Made:
    """The type and shape of input 0."""
    tensor = node.input(0)
    return [(tensor.dtype, tensor.shape)]


def broadcast(node: Node) -> Made:
    """NumPy's broadcasting of two operands of one type."""
    a, b = node.input(0), node.input(1)
    if a.dtype != b.dtype:
        raise node.fail(f"inputs have different types, {a} and {b}; cast one of them")
    axis = node.attribute("axis", None)
    if axis is not None and axis % max(a.rank, 1) + b.rank != a.rank:
        raise node.fail(f"axis {axis} does not align {b} with the last axes of {a}; reshape it first")
    try:
        return [(a.dtype, np.broadcast_shapes(a.shape, b.shape))]
    except ValueError:
        raise node.fail(f"shapes of {a} and {b} do not broadcast") from None


def scalar_or_same(node: Node) -> Made:
    """What a loss makes: one number, or with NoReduction a number for each element."""
    tensor = node.input(0)
    whole = node.attribute("reduction", "Mean") == "NoReduction"
    return [(tensor.dtype, tensor.shape if whole else ())]


def axes_of(node: Node, axes: list[int] | None) -> tuple[int, ...]:
    """Sorted axes of input 0, all of them for None; raise where one is out of range."""
    rank = node.input(0).rank
    if not axes:
        return tuple(range(rank))
    for axis in axes:
        if not -rank <= axis < rank:
            raise node.fail(f"axis {axis} was asked for; {node.input(0)} has axes {-rank} to {rank - 1}")
    return tuple(sorted({axis % rank for axis in axes}))


def inferred(node: Node, asked: list[int]) -> tuple[int, ...]:
    """The shape that ``asked`` means for input 0: 0 copies a dimension, one -1 takes what is left."""
    data = node.input(0)
    copies = not node.attribute("allowzero", 0)
    shape = [data.shape[i] if size == 0 and copies and i < data.rank else int(size) for i, size in enumerate(asked)]
    if shape.count(-1) == 1:
        known = prod(size for size in shape if size != -1)
        shape[shape.index(-1)] = data.nelms // known if known else 0
    if any(size < 0 for size in shape) or prod(shape) != data.nelms:
        raise node.fail(f"cannot reshape {data} ({data.nelms} elements) to {list(asked)}")
    return tuple(shape)
