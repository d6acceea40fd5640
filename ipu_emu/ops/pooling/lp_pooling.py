"""Lp pooling: the p-norm of every window, y = (sum |x|^p)^(1/p), or of every channel."""

from __future__ import annotations

from functools import reduce

import numpy as np

from ipu_emu.ops.core import Node, OutputTypes, Rewrite, expanded_op, flops
from ipu_emu.ops.core.sliding_windows import Windows

_WINDOW = ("auto_pad", "ceil_mode", "dilations", "kernel_shape", "pads", "strides")


def _checked(node: Node) -> tuple[int, ...]:
    x = node.input(0)
    if x.rank < 3 or _p(node) < 1:
        raise node.fail(f"data must be [N, C, ...] and p at least 1, found {x} and {_p(node)}")
    return x.shape


def _p(node: Node) -> float:
    return float(node.attribute("p", 2))


def _shape(node: Node) -> OutputTypes:
    return [(node.input(0).dtype, (*_checked(node)[:2], *Windows.of_pooling(node, node.input(0).shape).output))]


def _global_shape(node: Node) -> OutputTypes:
    shape = _checked(node)
    return [(node.input(0).dtype, (*shape[:2], *(1 for _ in shape[2:])))]


def _powers(rewrite: Rewrite, node: Node) -> str:
    """|x|^p"""
    x, p = node.op.inputs[0], _p(node)
    if p == 2:
        return rewrite.op("Mul", x, x)
    return _power(rewrite, node, rewrite.op("Abs", x), p)


def _power(rewrite: Rewrite, node: Node, id: str, p: float) -> str:
    if p == 1:
        return id
    return rewrite.op("Pow", id, rewrite.constant(np.array(p, node.input(0).dtype.numpy)))


def _root(rewrite: Rewrite, node: Node, id: str) -> None:
    p = _p(node)
    root = rewrite.op("Sqrt", id) if p == 2 else _power(rewrite, node, id, 1 / p)
    rewrite.op("Identity", root, into=node.op.outputs[0])


def _expand(rewrite: Rewrite, node: Node) -> None:
    """Average pooling of |x|^p, times the number of elements in each window, to the power 1/p."""
    windows = Windows.of_pooling(node, node.input(0).shape)
    attributes = {name: node.op.attributes[name] for name in _WINDOW if name in node.op.attributes}
    means = rewrite.op("AveragePool", _powers(rewrite, node), **attributes)
    axes = [np.array(windows.counts(axis, padding=False)) for axis in range(len(windows.input))]
    counts = reduce(np.multiply.outer, axes).astype(node.input(0).dtype.numpy)
    _root(rewrite, node, rewrite.op("Mul", means, rewrite.constant(counts)))


def _expand_global(rewrite: Rewrite, node: Node) -> None:
    axes = list(range(2, node.input(0).rank))
    _root(rewrite, node, rewrite.op("ReduceSum", _powers(rewrite, node), axes=axes, keepdims=1))


_cost = flops(lambda node: 3 * node.input(0).nelms)

OPS = [
    expanded_op("LpPool", (1, 1), _shape, _expand, _cost),
    expanded_op("GlobalLpPool", (1, 1), _global_shape, _expand_global, _cost),
]
