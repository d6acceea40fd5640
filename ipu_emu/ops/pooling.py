"""Pooling: the largest or the mean element of every window.

Operands are stored [C, H, W, N]; every inner loop runs over the batch.
"""

from __future__ import annotations

from functools import partial
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gcl.jit import jit
from ipu_emu.ops.adjoint import Adjoint, Value
from ipu_emu.ops.cost import flops
from ipu_emu.ops.node import Made, Node
from ipu_emu.ops.registry import Bound, OpDef, Step
from ipu_emu.ops.windows import Windows

__all__ = ["OPS"]


def _windows(node: Node, data: tuple[int, ...]) -> Windows:
    return Windows.of(node, data[2:], tuple(node.attribute("kernel_shape", [])))


def _shape(node: Node) -> Made:
    x = node.input(0)
    if x.rank != 4:
        raise node.fail(f"data [N, C, H, W] is needed, found {x}")
    if len(node.op.outputs) > 1:
        raise node.fail("a second output (indices) is not supported; ask for 1 output")
    return [(x.dtype, (*x.shape[:2], *_windows(node, x.shape).output))]


@jit
def max_pool(
    x: NDArray[Any],
    y: NDArray[Any],
    kh: int,
    kw: int,
    sh: int,
    sw: int,
    ph: int,
    pw: int,
    dh: int,
    dw: int,
) -> None:
    """y[c, h, w, n] = the largest element of its window in x; both [C, H, W, N]."""
    height, width, batch = x.shape[1], x.shape[2], x.shape[3]
    for c in range(y.shape[0]):
        for h in range(y.shape[1]):
            for w in range(y.shape[2]):
                best = y[c, h, w]
                best[:] = -np.inf
                for i in range(kh):
                    for j in range(kw):
                        u, v = h * sh - ph + i * dh, w * sw - pw + j * dw
                        if 0 <= u < height and 0 <= v < width:
                            line = x[c, u, v]
                            for n in range(batch):
                                best[n] = line[n] if line[n] > best[n] else best[n]


@jit
def max_pool_grad(
    g: NDArray[Any],
    x: NDArray[Any],
    y: NDArray[Any],
    dx: NDArray[Any],
    left: NDArray[Any],
    kh: int,
    kw: int,
    sh: int,
    sw: int,
    ph: int,
    pw: int,
    dh: int,
    dw: int,
) -> None:
    """Give each element of ``g`` to the first element of its window that equals the largest.

    ``left`` [N] holds what is still to be given, so that the inner loop has no branch.
    """
    height, width, batch = x.shape[1], x.shape[2], x.shape[3]
    dx[:] = 0
    for c in range(y.shape[0]):
        for h in range(y.shape[1]):
            for w in range(y.shape[2]):
                best = y[c, h, w]
                left[:] = g[c, h, w]
                for i in range(kh):
                    for j in range(kw):
                        u, v = h * sh - ph + i * dh, w * sw - pw + j * dw
                        if 0 <= u < height and 0 <= v < width:
                            line, target = x[c, u, v], dx[c, u, v]
                            for n in range(batch):
                                give = left[n] if line[n] == best[n] else np.float32(0)
                                target[n] += give
                                left[n] -= give


@jit
def average_pool(
    x: NDArray[Any],
    y: NDArray[Any],
    pad_counts: int,
    kh: int,
    kw: int,
    sh: int,
    sw: int,
    ph: int,
    pw: int,
    dh: int,
    dw: int,
) -> None:
    """y[c, h, w, n] = the mean of its window in x; both [C, H, W, N]."""
    height, width, batch = x.shape[1], x.shape[2], x.shape[3]
    for c in range(y.shape[0]):
        for h in range(y.shape[1]):
            for w in range(y.shape[2]):
                total = y[c, h, w]
                total[:] = 0
                count = 0
                for i in range(kh):
                    for j in range(kw):
                        u, v = h * sh - ph + i * dh, w * sw - pw + j * dw
                        if 0 <= u < height and 0 <= v < width:
                            count += 1
                            line = x[c, u, v]
                            for n in range(batch):
                                total[n] += line[n]
                share = np.float32(kh * kw if pad_counts else max(count, 1))
                for n in range(batch):
                    total[n] /= share


@jit
def average_pool_grad(
    g: NDArray[Any],
    dx: NDArray[Any],
    share: NDArray[Any],
    pad_counts: int,
    kh: int,
    kw: int,
    sh: int,
    sw: int,
    ph: int,
    pw: int,
    dh: int,
    dw: int,
) -> None:
    """Spread each element of ``g`` evenly over its window."""
    height, width, batch = dx.shape[1], dx.shape[2], dx.shape[3]
    dx[:] = 0
    for c in range(g.shape[0]):
        for h in range(g.shape[1]):
            for w in range(g.shape[2]):
                top, side = h * sh - ph, w * sw - pw
                count = 0
                for i in range(kh):
                    for j in range(kw):
                        if 0 <= top + i * dh < height and 0 <= side + j * dw < width:
                            count += 1
                for n in range(batch):
                    share[n] = g[c, h, w, n] / np.float32(kh * kw if pad_counts else max(count, 1))
                for i in range(kh):
                    for j in range(kw):
                        u, v = top + i * dh, side + j * dw
                        if 0 <= u < height and 0 <= v < width:
                            target = dx[c, u, v]
                            for n in range(batch):
                                target[n] += share[n]


def _stored(array: NDArray[Any]) -> NDArray[Any]:
    return array.transpose(1, 2, 3, 0)


def _pads_count(node: Node) -> int:
    return int(node.attribute("count_include_pad", 0))


def _max_pool(bound: Bound) -> Step:
    x, y = bound.input(0), bound.outputs[0]
    return partial(max_pool, _stored(x), _stored(y), *_windows(bound.node, x.shape).numbers)


def _max_pool_grad(bound: Bound) -> Step:
    g, x, y, dx = bound.input(0), bound.input(1), bound.input(2), bound.outputs[0]
    arrays = _stored(g), _stored(x), _stored(y), _stored(dx), bound.scratch[0]
    return partial(max_pool_grad, *arrays, *_windows(bound.node, x.shape).numbers)


def _average_pool(bound: Bound) -> Step:
    x, y = bound.input(0), bound.outputs[0]
    numbers = _windows(bound.node, x.shape).numbers
    return partial(average_pool, _stored(x), _stored(y), _pads_count(bound.node), *numbers)


def _average_pool_grad(bound: Bound) -> Step:
    g, dx = bound.input(0), bound.outputs[0]
    numbers = _windows(bound.node, dx.shape).numbers
    return partial(average_pool_grad, _stored(g), _stored(dx), bound.scratch[0], _pads_count(bound.node), *numbers)


def _average_grad_rule(d: Adjoint) -> Value:
    return d.g.op("AveragePoolGrad", shape=list(d.shape), **d.node.op.attributes)


def _second(node: Node) -> Made:
    return [(node.input(1).dtype, node.input(1).shape)]


def _by_attribute(node: Node) -> Made:
    return [(node.input(0).dtype, tuple(node.attribute("shape", [])))]


def _batch(node: Node) -> list[int]:
    return [node.input(0).shape[0]]


_cost = flops(lambda node: node.outputs[0].nelms * prod(node.attribute("kernel_shape", [1])))

OPS = [
    OpDef(
        "MaxPool",
        (1, 1),
        _shape,
        _max_pool,
        _cost,
        lambda d: d.g.op("MaxPoolGrad", d.x, d.y, **d.node.op.attributes),
        spatial=(0, -1),
    ),
    OpDef("MaxPoolGrad", (3, 3), _second, _max_pool_grad, _cost, None, _batch, spatial=(0, 1, 2, -1)),
    OpDef("AveragePool", (1, 1), _shape, _average_pool, _cost, _average_grad_rule, spatial=(0, -1)),
    OpDef("AveragePoolGrad", (1, 1), _by_attribute, _average_pool_grad, _cost, None, _batch, spatial=(0, -1)),
]
