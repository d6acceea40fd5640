"""Automatic loss scaling: counts large gradients, undoes the scale factor, and adjusts it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gcl.kernels.jit import jit
from ipu_emu.graph.dtype import FLOAT, FLOAT16
from ipu_emu.ops.core.call_chain import call_chain
from ipu_emu.ops.core.cost import flops
from ipu_emu.ops.core.kernel_helpers import copies_in_place, storage
from ipu_emu.ops.core.node import Node, OutputTypes
from ipu_emu.ops.core.op_definition import BoundOp, Call, OpDef

__all__ = ["OPS"]

#: The loss scale is not raised above this: the largest power of two in FLOAT16.
_LARGEST = 32768.0
_MOST = 4096


@jit
def count_above(x: NDArray[Any], edge: float) -> int:
    """The number of elements of ``x`` ([n]) whose magnitude is at least ``edge``, or that are not finite."""
    count = 0
    for i in range(x.size):
        if not abs(x[i]) < edge:
            count += 1
    return count


def count_large(gradients: Sequence[NDArray[Any]], edges: Sequence[float], out: NDArray[Any]) -> None:
    """out = [number of elements at or above their edge, number of all elements]"""
    out[0] = sum(count_above(gradient, edge) for gradient, edge in zip(gradients, edges, strict=True))
    out[1] = sum(gradient.size for gradient in gradients)


def _count(bound: BoundOp) -> Call:
    location = float(bound.node.attribute("edge", 0.125))
    tensors = [tensor for tensor in bound.node.inputs if tensor is not None]
    edges = [location * (65504.0 if t.dtype is FLOAT16 else float(np.finfo(np.float32).max)) for t in tensors]
    gradients = [storage(bound.input(i)) for i in range(len(tensors))]
    return partial(count_large, gradients, edges, bound.outputs[0])


def unscale(gradient: NDArray[Any], factor: NDArray[Any]) -> None:
    """Divide by ``factor``, a power of two."""
    np.multiply(gradient, np.float32(1) / factor[()], gradient)


def _unscale(bound: BoundOp) -> Call:
    return call_chain(*copies_in_place(bound), partial(unscale, storage(bound.outputs[0]), bound.input(1)))


def _unscaled(node: Node) -> OutputTypes:
    return [(node.input(0).dtype, node.input(0).shape)]


def adjust_loss_scale(
    factor: NDArray[Any], seen: NDArray[Any], counts: NDArray[Any], scaling: NDArray[Any], most: float, period: int
) -> None:
    """Every ``period`` updates, halve ``factor`` if more than the fraction ``most`` was large, else double it.

    ``seen`` holds [large elements, all elements, updates] since the last adjustment.
    """
    seen[:2] += counts
    seen[2] += 1
    if seen[2] < period:
        return
    if seen[0] > most * seen[1]:
        factor[()] *= np.float32(0.5)
    elif float(scaling[()]) * float(factor[()]) * 2 <= _LARGEST:
        factor[()] *= np.float32(2)
    seen.fill(0)


def _change(bound: BoundOp) -> Call:
    most, period = float(bound.node.attribute("most", 1e-7)), int(bound.node.attribute("period", 1))
    factor, seen = bound.outputs
    return call_chain(
        *copies_in_place(bound),
        partial(adjust_loss_scale, factor, seen, bound.input(2), bound.input(3), most, period),
    )


def _elements(node: Node) -> int:
    return sum(tensor.nelms for tensor in node.inputs if tensor is not None)


OPS = [
    OpDef("CountLargeGradients", (1, _MOST), lambda node: [(FLOAT, (2,))], _count, flops(_elements)),
    # (g, factor)
    OpDef("UndoLossScale", (2, 2), _unscaled, _unscale, flops(_elements), updates=(0,)),
    # (factor, seen, counts, loss scaling)
    OpDef(
        "ChangeLossScale",
        (4, 4),
        lambda node: [(FLOAT, ()), (FLOAT, (3,))],
        _change,
        flops(lambda node: 8),
        updates=(0, 1),
    ),
]
