"""Axis reductions: sums, means, norms and extremes along axes."""

from __future__ import annotations

from functools import partial
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gcl.kernels.jit import jit
from ipu_emu.graph.dtype import FLOAT, FLOAT16
from ipu_emu.ops.core import Adjoint, BoundOp, Call, Node, OpDef, OutputTypes, Value, call_chain, flops, nothing
from ipu_emu.ops.core.array_functions import function
from ipu_emu.ops.core.axis_sums import axis_sum, folding, sum_of
from ipu_emu.ops.core.image_kernels import are_images, image_sum
from ipu_emu.ops.core.kernel_helpers import allocating_kernel, scalar, view, with_contiguous_operands
from ipu_emu.ops.core.shape_rules import reduced_axes, same, shape_attribute


def _axes(node: Node) -> tuple[int, ...]:
    """The axes to reduce: an attribute, or an input in newer opsets.

    An empty attribute reduces nothing (PopART), an empty input all axes, unless an attribute disables that (ONNX).
    """
    axes = node.attribute_or_constant("axes", 1)
    if axes == [] and node.op.version > 11 and not node.attribute("noop_with_empty_axes", 0):
        axes = None
    return () if axes is None and node.attribute("noop_with_empty_axes", 0) else reduced_axes(node, axes)


def _kept(node: Node) -> tuple[int, ...]:
    """Shape of the result with the reduced axes kept as size 1."""
    axes = _axes(node)
    return tuple(1 if i in axes else size for i, size in enumerate(node.input(0).shape))


def _shape(node: Node) -> OutputTypes:
    x, axes = node.input(0), _axes(node)
    if node.attribute("keepdims", 1):
        return [(x.dtype, _kept(node))]
    return [(x.dtype, tuple(size for i, size in enumerate(x.shape) if i not in axes))]


def _sum(bound: BoundOp) -> Call:
    return _sum_along(bound.input(0), bound.outputs[0], _axes(bound.node))


def _sum_along(x: NDArray[Any], y: NDArray[Any], axes: tuple[int, ...]) -> Call:
    by_image = axes == (2, 3) and are_images(x) and y.dtype == np.float32
    return image_sum(x, y) if by_image else axis_sum(x, y, axes)


def _count(node: Node) -> int:
    axes = _axes(node)
    return prod(node.input(0).shape[axis] for axis in axes)


def _mean(bound: BoundOp) -> Call:
    y, count = bound.outputs[0], _count(bound.node)
    if y.dtype.kind != "f":
        return call_chain(_sum(bound), lambda: np.copyto(y, y / max(count, 1), "unsafe"))
    return call_chain(_sum(bound), partial(np.divide, y, scalar(count), y))


def sum_to(bound: BoundOp) -> Call:
    """Undo a broadcast from the shape of the output to that of the input."""
    x, y = bound.input(0), bound.outputs[0]
    lead = x.ndim - y.ndim
    axes = tuple(i for i in range(x.ndim) if i < lead or (y.shape[i - lead] == 1 and x.shape[i] != 1))
    return _sum_along(x, y[(None,) * lead], axes)


# Other ways to combine


def _log(x: NDArray[Any], out: NDArray[Any]) -> None:
    function("log")(x, out=out)


def _root(x: NDArray[Any], out: NDArray[Any]) -> None:
    """out = sqrt(x); roots of integers are truncated."""
    np.copyto(out, np.sqrt(x), "unsafe") if out.dtype.kind in "iu" else np.sqrt(x, out)


def _sum_of(*, before: Any = None, after: Any = None) -> Any:
    """A kernel of ``after(sum(before(x)))`` with the axes of the node."""

    def kernel(bound: BoundOp) -> Call:
        x, y, axes = bound.input(0), bound.outputs[0], _axes(bound.node)
        changed = view(bound.scratch[0].view(x.dtype)[: x.size], x.shape) if before else x
        steps: list[Call] = [partial(before, x, changed)] if before else []
        steps.append(axis_sum(changed, y, axes))
        return call_chain(*steps, *([partial(after, y, y)] if after else []))

    return kernel


def _extreme(function: Any, *, largest: bool) -> Any:
    """A kernel of max or min; the maximum of no elements is the lowest value of the type."""

    def kernel(bound: BoundOp) -> Call:
        x, y = bound.input(0), bound.outputs[0]
        keep = bool(bound.node.attribute("keepdims", 1))
        if x.dtype.kind == "b":
            initial: Any = not largest
        elif x.dtype.kind == "f":
            initial = -np.inf if largest else np.inf
        else:
            initial = np.iinfo(x.dtype).min if largest else np.iinfo(x.dtype).max
        reduce = partial(function, x, _axes(bound.node), None, y, keep, initial)
        # Which of 0.0 and -0.0 is left depends on numpy's vectors; this makes it 0.0.
        return call_chain(reduce, partial(np.add, y, scalar(0), y)) if x.dtype.kind == "f" else reduce

    return kernel


def _log_sum_exp(bound: BoundOp) -> Call:
    """log(sum(exp(x))), shifted by the largest so that nothing overflows."""
    node, x, y, shape = bound.node, bound.input(0), bound.outputs[0], _kept(bound.node)
    if x.dtype.kind != "f" or not x.size:
        return allocating_kernel(_log_sum_exp_of_any)(bound)
    axes, total = _axes(node), y if node.attribute("keepdims", 1) else np.expand_dims(y, _axes(node))
    shifted = view(bound.scratch[0].view(x.dtype)[: x.size], x.shape)
    largest = view(bound.scratch[1].view(x.dtype)[: total.size], shape)
    odd = view(bound.scratch[2].view(bool)[: total.size], shape)
    return call_chain(
        partial(np.maximum.reduce, x, axes, None, largest, True),
        partial(np.isfinite, largest, odd),
        partial(np.logical_not, odd, odd),
        partial(np.copyto, largest, 0, where=odd),
        partial(np.subtract, x, largest, shifted),
        function("exp").bound(shifted, out=shifted),
        axis_sum(shifted, total, axes),
        function("log").bound(total, out=total),
        partial(np.add, total, largest, total),
    )


def _log_sum_exp_of_any(node: Node, x: Any) -> Any:
    total = sum_of(function("exp")(x), _axes(node))
    return function("log")(total).reshape(node.outputs[0].shape)


def _whole_and_kept(node: Node) -> list[int]:
    rows = prod(_kept(node))
    return [*_whole(node), -(-rows * max(node.input(0).dtype.itemsize, 4) // 4), -(-rows // 4)]


def _spread(d: Adjoint, value: Value) -> Value:
    """Broadcast a reduced value to the shape of the input."""
    return value.shaped(_kept(d.node)).spread_to(d.shape)


def _extreme_grad(d: Adjoint) -> list[Value | None]:
    """The elements that equal the result share the gradient, as in PyTorch and TensorFlow."""
    dtype, equal = d.g.tensor.dtype, d.x.op("Equal", _spread(d, d.y))
    wide = FLOAT if dtype is FLOAT16 else dtype
    count = equal.cast(wide).op("ReduceSum", axes=list(_axes(d.node)), keepdims=1)
    return [equal.op("Where", (_spread(d, d.g).cast(wide) / count).cast(dtype), d.g.like(0.0))]


def _product(bound: BoundOp) -> Call:
    x, y, axes = bound.input(0), bound.outputs[0], _axes(bound.node)
    if not x.size:
        return partial(y.fill, 1)
    order = [*axes, *(axis for axis in range(x.ndim) if axis not in axes)]
    left = view(bound.scratch[0].view(x.dtype)[: x.size], tuple(x.shape[axis] for axis in order))
    rows = view(left, (prod(left.shape[: len(axes)]), *left.shape[len(axes) :]))
    target = y.reshape(rows.shape[1:]) if y.size == 1 else y.squeeze(axes) if y.ndim == x.ndim else y
    copied = partial(np.copyto, left, x.transpose(order))
    first = rows[:1].reshape(rows.shape[1:])
    return call_chain(copied, *folding(np.multiply, rows), partial(np.copyto, target, first))


def _product_grad(d: Adjoint) -> list[Value | None]:
    others = d.x.op("OthersProduct", axes=list(_axes(d.node)))
    return [_spread(d, d.g) * others]


@jit
def others_product(x: NDArray[Any], out: NDArray[Any]) -> None:
    """out[o, j, i] = product of x[o, k, i] over all k but j"""
    n = x.shape[1]
    for o in range(x.shape[0]):
        for i in range(x.shape[2]):
            before = x.dtype.type(1)
            for j in range(n):
                out[o, j, i] = before
                before *= x[o, j, i]
            after = x.dtype.type(1)
            for j in range(n - 1, -1, -1):
                out[o, j, i] *= after
                after *= x[o, j, i]


def _others_product(bound: BoundOp) -> Call:
    x, axes = bound.input(0), list(bound.node.attribute("axes", []))
    if not axes or axes != list(range(axes[0], axes[0] + len(axes))):
        return allocating_kernel(_others_product_of_any)(bound)
    shape = (prod(x.shape[: axes[0]]), prod(x.shape[i] for i in axes), prod(x.shape[axes[-1] + 1 :]))
    return partial(others_product, view(x, shape), view(bound.outputs[0], shape))


def _others_product_of_any(node: Node, x: Any) -> Any:
    """For each element, the product of the others in its reduction; correct for zeros too."""
    axes = tuple(node.attribute("axes", []))
    if not axes:
        return np.ones_like(x)
    others = [axis for axis in range(x.ndim) if axis not in axes]
    order = [*others, *axes]
    rows = x.transpose(order).reshape([*(x.shape[axis] for axis in others), -1])
    before, after = np.ones_like(rows), np.ones_like(rows)
    before[..., 1:] = np.cumprod(rows[..., :-1], -1)
    after[..., :-1] = np.cumprod(rows[..., :0:-1], -1)[..., ::-1]
    turned = (before * after).reshape([x.shape[axis] for axis in order])
    return turned.transpose([order.index(axis) for axis in range(x.ndim)])


def _whole(node: Node) -> list[int]:
    return [-(-node.input(0).nelms * max(node.input(0).dtype.itemsize, 4) // 4)]


def _reduction(type: str, kernel: Any, grad: Any, workspace: Any = nothing) -> OpDef:
    return OpDef(type, (1, 2), _shape, kernel, _cost, grad, workspace, constant_inputs={1: "axes"})


_cost = flops(lambda node: node.input(0).nelms)

OPS = [
    _reduction("ReduceSum", _sum, lambda d: [d.g.shaped(_kept(d.node)).spread_to(d.shape)]),
    _reduction(
        "ReduceMean",
        _mean,
        lambda d: [d.g.scaled(1 / max(_count(d.node), 1)).shaped(_kept(d.node)).spread_to(d.shape)],
    ),
    _reduction("ReduceMax", _extreme(np.maximum.reduce, largest=True), _extreme_grad),
    _reduction("ReduceMin", _extreme(np.minimum.reduce, largest=False), _extreme_grad),
    _reduction("ReduceProd", _product, _product_grad, _whole),
    _reduction(
        "ReduceSumSquare",
        _sum_of(before=np.square),
        lambda d: [(_spread(d, d.g) * d.x).scaled(2.0)],
        _whole,
    ),
    _reduction(
        "ReduceL1",
        _sum_of(before=np.absolute),
        lambda d: [_spread(d, d.g) * d.x.op("Sign")],
        _whole,
    ),
    _reduction(
        "ReduceL2",
        _sum_of(before=np.square, after=_root),
        lambda d: [_spread(d, d.g / d.y) * d.x],
        _whole,
    ),
    _reduction(
        "ReduceLogSum",
        _sum_of(after=_log),
        lambda d: [_spread(d, d.g / d.y.op("Exp"))],
    ),
    _reduction(
        "ReduceLogSumExp",
        _log_sum_exp,
        lambda d: [_spread(d, d.g) * (d.x - _spread(d, d.y)).op("Exp")],
        _whole_and_kept,
    ),
    OpDef("OthersProduct", (1, 1), same, with_contiguous_operands(_others_product), _cost),
    OpDef("SumTo", (1, 1), shape_attribute, sum_to, _cost, lambda d: d.g.spread_to(d.shape)),
]
