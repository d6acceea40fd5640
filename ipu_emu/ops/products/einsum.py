"""Einsum: sums of products of elements, as transposes and matrix products.

bhid,bhjd->bhij      two operands at a time, from the left:
                     axes that are not needed any more  summed
                     axes of both that are needed       batch
                     axes of both that are not needed   the inner axis of the product
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from ipu_emu.ops.core import Node, OutputTypes, Rewrite, expanded_op, flops

#: Axes by their letters; the axes of "..." are numbers, 0 for the last one.
_Axes = list[str]


def _equation(node: Node) -> tuple[list[_Axes], _Axes]:
    """The axes of each operand and of the result."""
    text = str(node.attribute("equation", "")).replace(" ", "")
    left, arrow, right = text.partition("->")
    terms = left.split(",")
    if len(terms) != len(node.inputs):
        raise node.fail(f"equation '{text}' has {len(terms)} terms for {len(node.inputs)} operands")
    operands = [_axes(node, term, node.input(index).rank) for index, term in enumerate(terms)]
    every = [axis for axes in operands for axis in axes]
    dots = sorted({axis for axis in every if axis.isdigit()}, key=int, reverse=True)
    if arrow:
        before, ellipsis, after = right.partition("...")
        result = [*before, *(dots if ellipsis else []), *after]
    else:
        result = [*dots, *sorted({axis for axis in every if every.count(axis) == 1 and not axis.isdigit()})]
    if len(set(result)) != len(result) or not set(result) <= set(every):
        raise node.fail(f"equation '{text}' has the result axes {result}, but the operands have {sorted(set(every))}")
    return operands, result


def _axes(node: Node, term: str, rank: int) -> _Axes:
    before, ellipsis, after = term.partition("...")
    hidden = rank - len(before) - len(after)
    if hidden < 0 or (hidden and not ellipsis):
        raise node.fail(f"'{term}' does not name the {rank} axes of its operand")
    return [*before, *(str(i) for i in reversed(range(hidden))), *after]


def _sizes(node: Node, operands: Sequence[_Axes]) -> dict[str, int]:
    sizes: dict[str, int] = {}
    for index, axes in enumerate(operands):
        for axis, size in zip(axes, node.input(index).shape, strict=True):
            if sizes.get(axis, 1) == 1:
                sizes[axis] = size
            elif size not in (1, sizes[axis]):
                raise node.fail(f"axis {axis} has {sizes[axis]} and {size} elements; it must have one size")
    return sizes


def _shape(node: Node) -> OutputTypes:
    operands, result = _equation(node)
    sizes = _sizes(node, operands)
    return [(node.input(0).dtype, tuple(sizes[axis] for axis in result))]


class _Product:
    """Appends the ops of the product; a value is an id with its axes."""

    def __init__(self, rewrite: Rewrite, sizes: dict[str, int]) -> None:
        self.rewrite, self.sizes = rewrite, sizes

    def shape(self, axes: _Axes) -> list[int]:
        return [self.sizes[axis] for axis in axes]

    def operand(self, id: str, axes: _Axes) -> tuple[str, _Axes]:
        """An operand expanded to full size, with the diagonal of axes that occur twice."""
        if list(self.rewrite.shape(id)) != self.shape(axes):
            id = self.rewrite.op("SpreadTo", id, shape=self.shape(axes))
        for axis in dict.fromkeys(axes):
            while axes.count(axis) > 1:
                first = axes.index(axis)
                second, size = axes.index(axis, first + 1), self.sizes[axis]
                rest = [place for place in range(len(axes)) if place not in (first, second)]
                id = self.rewrite.op("Transpose", id, perm=[*rest, first, second])
                axes = [axes[place] for place in rest]
                id = self.rewrite.op("ReshapeTo", id, shape=[*self.shape(axes), size * size])
                diagonal = self.rewrite.constant(np.arange(size, dtype=np.int64) * (size + 1))
                id, axes = self.rewrite.op("Gather", id, diagonal, axis=len(axes)), [*axes, axis]
        return id, axes

    def summed(self, id: str, axes: _Axes, needed: set[str]) -> tuple[str, _Axes]:
        """The value summed over all axes that are not in ``needed``."""
        gone = [index for index, axis in enumerate(axes) if axis not in needed]
        if gone:
            id = self.rewrite.op("ReduceSum", id, axes=gone, keepdims=0)
        return id, [axis for axis in axes if axis in needed]

    def matrix(self, id: str, axes: _Axes, *groups: _Axes) -> str:
        """The value with each group of axes merged into one axis."""
        order = [axes.index(axis) for group in groups for axis in group]
        turned = self.rewrite.op("Transpose", id, perm=order) if order != sorted(order) else id
        return self.rewrite.op("ReshapeTo", turned, shape=[prod(self.shape(group)) for group in groups])

    def times(self, a: tuple[str, _Axes], b: tuple[str, _Axes], needed: set[str]) -> tuple[str, _Axes]:
        first, x = self.summed(*a, needed | set(b[1]))
        second, y = self.summed(*b, needed | set(x))
        batch = [axis for axis in x if axis in y and axis in needed]
        depth = [axis for axis in x if axis in y and axis not in needed]
        rows, columns = ([axis for axis in own if axis not in other] for own, other in ((x, y), (y, x)))
        left, right = self.matrix(first, x, batch, rows, depth), self.matrix(second, y, batch, depth, columns)
        axes = [*batch, *rows, *columns]
        return self.rewrite.op("ReshapeTo", self.rewrite.op("MatMul", left, right), shape=self.shape(axes)), axes


def _expand(rewrite: Rewrite, node: Node) -> None:
    operands, result = _equation(node)
    product = _Product(rewrite, _sizes(node, operands))
    values = [product.operand(id, axes) for id, axes in zip(node.op.inputs, operands, strict=True)]
    value, others = values[0], values[1:]
    while others:
        later = {axis for _, axes in others[1:] for axis in axes}
        value, others = product.times(value, others[0], later | set(result)), others[1:]
    id, axes = product.summed(*value, set(result))
    rewrite.op("Transpose", id, into=node.op.outputs[0], perm=[axes.index(axis) for axis in result])


def _work(node: Node) -> int:
    operands, _ = _equation(node)
    return 2 * prod(_sizes(node, operands).values())


OPS = [expanded_op("Einsum", (1, None), _shape, _expand, flops(_work))]
