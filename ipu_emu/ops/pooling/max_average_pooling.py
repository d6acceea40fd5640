"""Max and average pooling: the largest or the mean element of every window.

Operands are stored [C, H, W, N]: every inner loop runs over the batch.
"""

from __future__ import annotations

from functools import partial
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gcl.kernels.jit import jit
from ipu_emu.graph import Tensor
from ipu_emu.graph.dtype import INT64
from ipu_emu.ops.codegen.window_maxima import window_maxima_call, window_maxima_gradient_call
from ipu_emu.ops.core import Node, OutputTypes, Rewrite, flops
from ipu_emu.ops.core.kernel_helpers import view
from ipu_emu.ops.core.op_definition import BoundOp, Call, Expand, OpDef, expanded_op
from ipu_emu.ops.core.shape_rules import like_second, shape_attribute
from ipu_emu.ops.core.sliding_windows import Windows
from ipu_emu.ops.core.spatial_rank import pooling_as_2d

# Kernels: every tensor is [C H W, N]; a line is one pixel of all samples


#: Sizes of an image and of the result, of windows, strides, padding before and dilations: (height, width) of each.
_Numbers = tuple[int, ...]


@jit
def max_pool(x: NDArray[Any], y: NDArray[Any], row: NDArray[Any], numbers: _Numbers) -> None:
    """Each line of y is the maximum of the lines of x in its window; NaN counts as the largest.

    ``row`` [W, N] is the maximum of the image rows of a window, so that most of the work is on whole rows.
    """
    height, width, out_height, out_width, kh, kw, sh, sw, ph, pw, dh, dw = numbers
    flat = row.reshape(-1)
    for image_row in range(y.shape[0] // out_width if out_width else 0):
        c, h = image_row // out_height, image_row % out_height
        flat[:] = -np.inf
        for i in range(kh):
            u = h * sh - ph + i * dh
            if 0 <= u < height:
                first = (c * height + u) * width
                source = x[first : first + width].reshape(-1)
                for n in range(flat.size):
                    value = source[n]
                    flat[n] = value if (value > flat[n]) | np.isnan(value) else flat[n]
        for w in range(out_width):
            best = y[image_row * out_width + w]
            best[:] = -np.inf
            for j in range(kw):
                v = w * sw - pw + j * dw
                if 0 <= v < width:
                    line = row[v]
                    for n in range(best.size):
                        value = line[n]
                        best[n] = value if (value > best[n]) | np.isnan(value) else best[n]


@jit
def max_pool_grad(
    g: NDArray[Any], x: NDArray[Any], y: NDArray[Any], dx: NDArray[Any], left: NDArray[Any], numbers: _Numbers
) -> None:
    """Add each element of ``g`` to the first element of its window that equals the maximum, or is NaN.

    ``left`` [N] holds the part of g that is not yet added, so that the inner loop has no branch.
    """
    height, width, out_height, out_width, kh, kw, sh, sw, ph, pw, dh, dw = numbers
    dx[:] = 0
    for line in range(y.shape[0]):
        c, h, w = line // (out_height * out_width), line // out_width % out_height, line % out_width
        best = y[line]
        for n in range(left.size):
            left[n] = g[line, n]
        for i in range(kh):
            for j in range(kw):
                u, v = h * sh - ph + i * dh, w * sw - pw + j * dw
                if 0 <= u < height and 0 <= v < width:
                    source, target = x[(c * height + u) * width + v], dx[(c * height + u) * width + v]
                    for n in range(best.size):
                        is_largest = (source[n] == best[n]) | np.isnan(source[n])
                        target[n] += left[n] if is_largest else np.float32(0)
                        left[n] = np.float32(0) if is_largest else left[n]


@jit
def average_pool(x: NDArray[Any], y: NDArray[Any], counts: NDArray[Any], numbers: _Numbers) -> None:
    """Each line of y is the sum of the lines of x in its window, divided by ``counts`` [OH OW]."""
    height, width, out_height, out_width, kh, kw, sh, sw, ph, pw, dh, dw = numbers
    for line in range(y.shape[0]):
        c, h, w = line // (out_height * out_width), line // out_width % out_height, line % out_width
        total = y[line]
        total[:] = 0
        for i in range(kh):
            for j in range(kw):
                u, v = h * sh - ph + i * dh, w * sw - pw + j * dw
                if 0 <= u < height and 0 <= v < width:
                    source = x[(c * height + u) * width + v]
                    for n in range(total.size):
                        total[n] += source[n]
        share = counts[line % counts.size]
        for n in range(total.size):
            total[n] /= share


@jit
def average_pool_grad(g: NDArray[Any], dx: NDArray[Any], counts: NDArray[Any], numbers: _Numbers) -> None:
    """Spread each element of ``g`` evenly over its window."""
    height, width, out_height, out_width, kh, kw, sh, sw, ph, pw, dh, dw = numbers
    dx[:] = 0
    for line in range(g.shape[0]):
        c, h, w = line // (out_height * out_width), line // out_width % out_height, line % out_width
        row, share = g[line], counts[line % counts.size]
        for i in range(kh):
            for j in range(kw):
                u, v = h * sh - ph + i * dh, w * sw - pw + j * dw
                if 0 <= u < height and 0 <= v < width:
                    target = dx[(c * height + u) * width + v]
                    for n in range(row.size):
                        target[n] += row[n] / share


# Ops


def _data(node: Node) -> Tensor:
    x = node.input(0)
    if x.rank < 3:
        raise node.fail(f"data must be [N, C, ...], found {x}")
    return x


def _shape(node: Node) -> OutputTypes:
    x = _data(node)
    pooled = x.dtype, (*x.shape[:2], *Windows.of_pooling(node, x.shape).output)
    if len(node.op.outputs) > 1 and node.op.type == "MaxPool":
        return [pooled, (INT64, pooled[1])]
    return [pooled]


def _max_expand(rewrite: Rewrite, node: Node) -> None:
    """If the op has an output for the indices of the maxima, compute them by a separate op."""
    if len(node.op.outputs) == 1:
        pooling_as_2d(rewrite, node)
        return
    y = rewrite.op("MaxPool", *node.op.inputs, into=node.op.outputs[0], **node.op.attributes)
    rewrite.op("MaxPoolPlaces", node.op.inputs[0], y, into=node.op.outputs[1], **node.op.attributes)


def _lines(array: NDArray[Any]) -> NDArray[Any]:
    return view(_images(array), (prod(array.shape[1:]), array.shape[0]))


def _numbers(windows: Windows) -> tuple[int, ...]:
    return tuple(map(int, (*windows.input, *windows.output, *windows.numbers)))


def _counts(node: Node, windows: Windows) -> NDArray[np.float32]:
    """Elements in each window, [OH OW]; padding counts only with ``count_include_pad``."""
    padding = node.attribute("count_include_pad", 0)
    axis_counts = [np.array(windows.counts(axis, padding=bool(padding)), np.float32) for axis in range(2)]
    return np.maximum(np.outer(*axis_counts).reshape(-1), np.float32(1))


def _max_pool(bound: BoundOp) -> Call:
    x, y = bound.input(0), bound.outputs[0]
    compiled = _compiled_max_pool(bound.node, x, y)
    if compiled:
        return compiled
    row = bound.scratch[0].view(x.dtype)[: x.shape[3] * x.shape[0]].reshape(x.shape[3], x.shape[0])
    return partial(max_pool, _lines(x), _lines(y), row, _numbers(Windows.of_pooling(bound.node, x.shape)))


def _compiled_max_pool(node: Node, x: NDArray[Any], y: NDArray[Any]) -> Call | None:
    """The compiled kernel; None for element types and windows that it does not support."""
    if x.dtype != np.float32:
        return None
    return window_maxima_call(*map(_images, (x, y)), *_taps(Windows.of_pooling(node, x.shape)))


def _images(array: NDArray[Any]) -> NDArray[Any]:
    """``array`` [N, C, H, W] as it is stored."""
    return array.transpose(1, 2, 3, 0)


def _taps(windows: Windows) -> list[NDArray[np.int64]]:
    """The image rows, then columns, that the taps of each window read; -1 outside of the image."""
    both = ((np.array(windows.places(axis)), windows.input[axis]) for axis in range(2))
    return [np.where(places < size, places, -1) for places, size in both]


def _max_pool_grad(bound: BoundOp) -> Call:
    g, x, y, dx = bound.input(0), bound.input(1), bound.input(2), bound.outputs[0]
    arrays, windows = (g, x, y, dx), Windows.of_pooling(bound.node, x.shape)
    if all(array.dtype == np.float32 for array in arrays):
        compiled = window_maxima_gradient_call(*map(_images, arrays), *_taps(windows))
        if compiled:
            return compiled
    lines = _lines(g), _lines(x), _lines(y), _lines(dx), bound.scratch[0]
    return partial(max_pool_grad, *lines, _numbers(windows))


def _average_pool(bound: BoundOp) -> Call:
    x, y = bound.input(0), bound.outputs[0]
    windows = Windows.of_pooling(bound.node, x.shape)
    return partial(average_pool, _lines(x), _lines(y), _counts(bound.node, windows), _numbers(windows))


def _average_pool_grad(bound: BoundOp) -> Call:
    g, dx = bound.input(0), bound.outputs[0]
    windows = Windows.of_pooling(bound.node, dx.shape)
    return partial(average_pool_grad, _lines(g), _lines(dx), _counts(bound.node, windows), _numbers(windows))


def _image_row(node: Node) -> list[int]:
    """float32 elements of one image row of all samples."""
    x = node.input(0)
    return [prod(x.shape[3:]) * x.shape[0] * max(x.dtype.itemsize // 4, 1)]


def _batch(node: Node) -> list[int]:
    return [node.input(0).shape[0]]


def _global_shape(node: Node) -> OutputTypes:
    x = _data(node)
    return [(x.dtype, (*x.shape[:2], *(1 for _ in x.shape[2:])))]


def _global(type: str) -> Expand:
    """Expand a global pooling, which reduces each channel of a sample to one number."""

    def expand(rewrite: Rewrite, node: Node) -> None:
        axes = list(range(2, len(rewrite.shape(node.op.inputs[0]))))
        rewrite.op(type, node.op.inputs[0], into=node.op.outputs[0], axes=axes, keepdims=1)

    return expand


_cost = flops(lambda node: node.outputs[0].nelms * prod(node.attribute("kernel_shape", [1])))

OPS = [
    OpDef(
        "MaxPool",
        (1, 1),
        _shape,
        _max_pool,
        _cost,
        lambda d: d.g.op("MaxPoolGrad", d.x, d.y, **d.node.op.attributes),
        _image_row,
        batch_innermost=(0, -1),
        expand=_max_expand,
    ),
    OpDef("MaxPoolGrad", (3, 3), like_second, _max_pool_grad, _cost, None, _batch, batch_innermost=(0, 1, 2, -1)),
    OpDef(
        "AveragePool",
        (1, 1),
        _shape,
        _average_pool,
        _cost,
        lambda d: d.g.op("AveragePoolGrad", shape=list(d.shape), **d.node.op.attributes),
        batch_innermost=(0, -1),
        expand=pooling_as_2d,
    ),
    expanded_op("GlobalAveragePool", (1, 1), _global_shape, _global("ReduceMean"), _cost),
    expanded_op("GlobalMaxPool", (1, 1), _global_shape, _global("ReduceMax"), _cost),
    OpDef("AveragePoolGrad", (1, 1), shape_attribute, _average_pool_grad, _cost, batch_innermost=(0, -1)),
]
