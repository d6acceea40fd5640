"""Sequence slice: runs of rows copied from one tensor into another, at offsets known only when the op runs."""

from __future__ import annotations

from functools import partial
from typing import Any

from numpy.typing import NDArray

from gcl.kernels.jit import bare, bare_part
from ipu_emu.graph.op import GRAPHCORE
from ipu_emu.ops.core import Adjoint, BoundOp, Call, Node, OpDef, OutputTypes, Value, copy_cost
from ipu_emu.ops.core.kernel_helpers import with_contiguous_operands
from ipu_emu.ops.core.shape_rules import like_inputs, like_second


# Loops over elements compile in a quarter of the time of numpy's assignments, which check shapes with messages.
@bare_part
def _fill(out: NDArray[Any], start: NDArray[Any], clear: bool) -> None:
    """out = start, or zeros."""
    for row in range(out.shape[0]):
        for column in range(out.shape[1]):
            if clear:
                out[row, column] = 0
            else:
                out[row, column] = start[row, column]


@bare
def copy_runs(
    source: NDArray[Any],
    start: NDArray[Any],
    counts: NDArray[Any],
    first: NDArray[Any],
    to: NDArray[Any],
    out: NDArray[Any],
    clear: bool,
) -> None:
    """out = start, or zeros, with out[to[i] : to[i] + counts[i]] = source[first[i] : first[i] + counts[i]] for all i.

    Rows out of range are skipped.
    """
    _fill(out, start, clear)
    for i in range(counts.size):
        for k in range(counts[i]):
            row, place = int(first[i]) + k, int(to[i]) + k
            if 0 <= row < source.shape[0] and 0 <= place < out.shape[0]:
                for column in range(out.shape[1]):
                    out[place, column] = source[row, column]


@bare
def return_runs(
    g: NDArray[Any],
    counts: NDArray[Any],
    first: NDArray[Any],
    to: NDArray[Any],
    d_source: NDArray[Any],
    d_start: NDArray[Any],
    clear: bool,
) -> None:
    """The adjoint of ``copy_runs``: each row of g is added to the gradient of the row that was copied there last."""
    _fill(d_source, d_source, True)
    _fill(d_start, g, clear)
    for place in range(g.shape[0]):
        for i in range(counts.size - 1, -1, -1):
            row = int(first[i]) + place - int(to[i])
            if 0 <= place - int(to[i]) < counts[i] and 0 <= row < d_source.shape[0]:
                for column in range(g.shape[1]):
                    d_source[row, column] += g[place, column]
                    d_start[place, column] = 0
                break


def _shape(node: Node) -> OutputTypes:
    source, start = node.input(0), node.input(1)
    if source.rank < 1 or start.rank != source.rank or source.shape[1:] != start.shape[1:]:
        raise node.fail(f"{source} and {start} must have rows of the same shape")
    runs = [node.input(index) for index in range(2, 5)]
    if any(run.rank != 1 or run.shape != runs[0].shape or not run.dtype.is_integer for run in runs):
        raise node.fail(f"{', '.join(map(str, runs))} must be integer vectors of the same length")
    return like_second(node)


def _rows(array: NDArray[Any]) -> NDArray[Any]:
    return array.reshape(array.shape[0], -1)


def _slice(bound: BoundOp) -> Call:
    source, start, counts, first, to = (bound.input(index) for index in range(5))
    clear = bool(bound.node.attribute("zeroUnused", 0))
    return partial(copy_runs, _rows(source), _rows(start), counts, first, to, _rows(bound.outputs[0]), clear)


def _rule(d: Adjoint) -> list[Value | None]:
    clear = d.attribute("zeroUnused", 0)
    gradients = d.x.ops(2, "SequenceSliceGrad", d.input(1), *d.inputs[2:], d.g, zeroUnused=clear)
    return [gradients[0], gradients[1], None, None, None]


def _back(bound: BoundOp) -> Call:
    counts, first, to, g = (bound.input(index) for index in range(2, 6))
    d_source, d_start = bound.outputs
    clear = bool(bound.node.attribute("zeroUnused", 0))
    return partial(return_runs, _rows(g), counts, first, to, _rows(d_source), _rows(d_start), clear)


OPS = [
    OpDef("SequenceSlice", (5, 5), _shape, with_contiguous_operands(_slice), copy_cost, _rule, domain=GRAPHCORE),
    # SequenceSliceGrad(source, start, counts, first, to, g)
    OpDef("SequenceSliceGrad", (6, 6), like_inputs(0, 1), with_contiguous_operands(_back), copy_cost),
]
