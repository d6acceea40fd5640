"""Automatic loss scaling: counts large gradients, undoes the scale factor, and adjusts it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gcl.kernels.jit import jit
from ipu_emu.graph.dtype import FLOAT
from ipu_emu.ops.core import BoundOp, Call, Node, OpDef, call_chain, flops
from ipu_emu.ops.core.kernel_helpers import copies_in_place, storage
from ipu_emu.ops.core.shape_rules import same

#: The largest FLOAT16.
_LARGEST = 65504.0
_MOST = 4096


@jit
def count_above(x: NDArray[Any], edge: float) -> int:
    """The number of elements of ``x`` ([n]) whose magnitude is at least ``edge``, or that are not finite."""
    count = 0
    for i in range(x.size):
        if not abs(x[i]) < edge:
            count += 1
    return count


def count_large(gradients: Sequence[NDArray[Any]], edge: float, out: NDArray[Any]) -> None:
    """out = [number of elements below ``edge``, number of the others]"""
    out[1] = sum(count_above(gradient, edge) for gradient in gradients)
    out[0] = sum(gradient.size for gradient in gradients) - out[1]


def _count(bound: BoundOp) -> Call:
    edge = float(bound.node.attribute("edge", 0.125)) * _LARGEST
    gradients = [storage(bound.input(i)) for i in range(len(bound.node.inputs))]
    return partial(count_large, gradients, edge, bound.outputs[0])


def unscale(gradient: NDArray[Any], factor: NDArray[Any]) -> None:
    """Divide by ``factor``, a power of two."""
    np.multiply(gradient, np.float32(1) / factor[()], gradient)


def _unscale(bound: BoundOp) -> Call:
    return call_chain(*copies_in_place(bound), partial(unscale, storage(bound.outputs[0]), bound.input(1)))


def adjust_loss_scale(factor: NDArray[Any], numbers: NDArray[Any], most: float) -> None:
    """Halve ``factor`` if more than the fraction ``most`` of the elements was large, else double it."""
    small, large = map(float, numbers)
    halves = large > most / (1 - most) * small if most < 1 else False
    factor[()] *= np.float32(0.5 if halves else 2)


def adjust_at_times(
    factor: NDArray[Any], numbers: NDArray[Any], seen: NDArray[Any], most: float, period: int
) -> None:
    """Do so at the first update and every ``period`` updates later; ``seen`` counts updates since the last time."""
    if seen[()] == 0:
        adjust_loss_scale(factor, numbers, most)
    seen[()] = (seen[()] + 1) % period


def _change(bound: BoundOp) -> Call:
    most = float(bound.node.attribute("most", 1e-7))
    return call_chain(*copies_in_place(bound), partial(adjust_loss_scale, bound.outputs[0], bound.input(1), most))


def _change_at_times(bound: BoundOp) -> Call:
    most, period = float(bound.node.attribute("most", 1e-7)), int(bound.node.attribute("period", 1))
    factor, seen = bound.outputs
    return call_chain(*copies_in_place(bound), partial(adjust_at_times, factor, bound.input(2), seen, most, period))


def _elements(node: Node) -> int:
    return sum(tensor.nelms for tensor in node.inputs if tensor is not None)


OPS = [
    OpDef("CountLargeGradients", (1, _MOST), lambda node: [(FLOAT, (2,))], _count, flops(_elements)),
    # (g, factor)
    OpDef("UndoLossScale", (2, 2), same, _unscale, flops(_elements), updates=(0,)),
    # (factor, [small, large])
    OpDef("ChangeLossScale", (2, 2), lambda node: [(FLOAT, ())], _change, flops(lambda node: 8), updates=(0,)),
    # (factor, updates since the last change, [small, large])
    OpDef(
        "ChangeLossScaleAtTimes",
        (3, 3),
        lambda node: [(FLOAT, ()), (FLOAT, ())],
        _change_at_times,
        flops(lambda node: 8),
        updates=(0, 1),
    ),
]
