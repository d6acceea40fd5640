"""Softmax: softmax, its logarithm and Hardmax, over the axes from one axis on."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import prod

from ipu_emu.ops.core import BoundOp, Call, Kernel, Node, OpDef, OutputTypes, always, call_chain, per_element
from ipu_emu.ops.core.kernel_helpers import in_float32, view, with_contiguous_operands
from ipu_emu.ops.core.rewrite import Rewrite
from ipu_emu.ops.core.row_kernels import log_softmax, log_softmax_grad, softmax, softmax_grad
from ipu_emu.ops.core.shape_rules import axis_of, same
from ipu_emu.ops.reduction.sorting_kernels import mark_largest


def _rows(node: Node) -> tuple[int, int]:
    """The input as a matrix, flattened at ``axis``."""
    x, axis = node.input(0), node.attribute("axis", 1)
    if not -x.rank <= axis <= x.rank:
        raise node.fail(f"axis {axis} is out of range for {x}; use {-x.rank} to {x.rank}")
    axis = axis + x.rank if axis < 0 else axis
    return prod(x.shape[:axis]), prod(x.shape[axis:])


def _shape(node: Node) -> OutputTypes:
    _rows(node) if node.op.version < 13 else axis_of(node, node.attribute("axis", -1))
    return same(node)


def _along_one_axis(rewrite: Rewrite, node: Node) -> None:
    """From opset 13 on these ops act along one axis; in older opsets, on all axes from ``axis`` on."""
    if node.op.version < 13:
        return
    last = node.input(0).rank - 1
    axis = axis_of(node, node.attribute("axis", -1))
    perm = list(range(last + 1))
    perm[axis], perm[last] = last, axis
    if axis == last:
        rewrite.op(node.op.type, node.op.inputs[0], into=node.op.outputs[0], axis=last)
        return
    turned = rewrite.op("Transpose", node.op.inputs[0], perm=perm)
    rewrite.op("Transpose", rewrite.op(node.op.type, turned, axis=last), into=node.op.outputs[0], perm=perm)


def _hardmax(bound: BoundOp) -> Call:
    rows = _rows(bound.node)
    return partial(mark_largest, view(bound.input(0), rows), view(bound.outputs[0], rows))


def _of_rows(function: Callable[..., Call]) -> Kernel:
    """The kernel of ``function(*operands, rows, columns)``."""
    return with_contiguous_operands(lambda bound: function(*bound.inputs, *bound.outputs, *_rows(bound.node)))


def _log_softmax(bound: BoundOp) -> Call:
    x, (rows, columns) = bound.input(0), _rows(bound.node)
    largest, total = (scratch.view(x.dtype)[:rows] for scratch in bound.scratch)
    return call_chain(*log_softmax(x, bound.outputs[0], largest, total, rows, columns))


def _two_per_row(node: Node) -> list[int]:
    """Scratch of two numbers for each row, of float32 or float64."""
    return [_rows(node)[0] * max(node.input(0).dtype.itemsize, 4) // 4] * 2


OPS = [
    OpDef("Hardmax", (1, 1), _shape, with_contiguous_operands(_hardmax), per_element(1), expand=_along_one_axis),
    OpDef(
        "Softmax",
        (1, 1),
        _shape,
        in_float32(_of_rows(softmax)),
        per_element(12),
        lambda d: d.g.op("SoftmaxGrad", d.y, axis=d.attribute("axis", 1)),
        expand=_along_one_axis,
        takes_half=always,
    ),
    OpDef(
        "LogSoftmax",
        (1, 1),
        _shape,
        with_contiguous_operands(_log_softmax),
        per_element(12),
        lambda d: d.g.op("LogSoftmaxGrad", d.y, axis=d.attribute("axis", 1)),
        _two_per_row,
        expand=_along_one_axis,
    ),
    OpDef("SoftmaxGrad", (2, 2), _shape, in_float32(_of_rows(softmax_grad)), per_element(4), takes_half=always),
    OpDef("LogSoftmaxGrad", (2, 2), _shape, _of_rows(log_softmax_grad), per_element(11)),
]
