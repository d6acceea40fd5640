"""Spline convolution: convolution on graphs with B-spline kernels, in two ops (aiGraphcore).

    SplineBasis       places [E, D] in [0, 1], sizes [D], open [D]  ->  factors [E, S], rows of the kernel [E, S]
    SplineWeighting   x [E, I], kernel [K, I, O], factors, rows     ->  y [E, O]

Each edge uses S = (degree + 1)^D rows of the kernel. The grid has sizes[0] x sizes[1] x ... = K rows, the first
dimension varying fastest. A dimension that is not open wraps round.
Source: Fey et al. 2018, and its package torch-spline-conv, whose ops these are.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ipu_emu.graph.dtype import INT32
from ipu_emu.graph.op import GRAPHCORE
from ipu_emu.ops.core import Node, OpDef, OutputTypes, flops
from ipu_emu.ops.core.kernel_helpers import allocating_kernel

_Array = NDArray[Any]

#: The pieces of a uniform B-spline by degree: coefficients of the powers of the position between two knots, 1 first.
_PIECES = {
    1: np.array([[1, -1], [0, 1]]),
    2: np.array([[1, -2, 1], [1, 2, -2], [0, 0, 1]]) / 2,
    3: np.array([[1, -3, 3, -1], [4, 0, -6, 3], [1, 3, 3, -3], [0, 0, 0, 1]]) / 6,
}


def _basis_shape(node: Node) -> OutputTypes:
    places, sizes, opened = (node.input(index) for index in range(3))
    if places.rank != 2 or sizes.shape != places.shape[1:] or opened.shape != sizes.shape:
        raise node.fail(f"inputs must be places [E, D], D sizes and D flags, found {places}, {sizes} and {opened}")
    degree = int(node.attribute("degree", 1))
    if degree not in _PIECES:
        raise node.fail(f"degree {degree} is not one of {', '.join(map(str, _PIECES))}")
    shape = (places.shape[0], (degree + 1) ** places.shape[1])
    return [(places.dtype, shape), (INT32, shape)]


def _basis(node: Node, places: _Array, sizes: _Array, opened: _Array) -> tuple[_Array, _Array]:
    degree = int(node.attribute("degree", 1))
    edges, dimensions = places.shape
    factors, rows, stride = np.ones((edges, 1)), np.zeros((edges, 1), np.int64), 1
    for d in range(dimensions):
        size = int(sizes[d])
        at = places[:, d].astype(np.float64) * (size - degree * int(bool(opened[d])))
        knot = np.floor(at)
        own = (knot[:, None].astype(np.int64) + np.arange(degree + 1)) % size
        factors = (factors[:, None] * _pieces(at - knot, degree)[:, :, None]).reshape(edges, -1)
        rows = (rows[:, None] + stride * own[:, :, None]).reshape(edges, -1)
        stride *= size
    return factors, rows


def _pieces(at: _Array, degree: int) -> _Array:
    """The pieces of a B-spline [edges, pieces] between two knots, by Horner's rule."""
    total = np.zeros((len(at), degree + 1))
    for coefficients in _PIECES[degree].T[::-1]:
        total = total * at[:, None] + coefficients
    return total


def _weighting_shape(node: Node) -> OutputTypes:
    x, kernel, factors, rows = (node.input(index) for index in range(4))
    ranks = (x.rank, kernel.rank, factors.rank) == (2, 3, 2)
    if not ranks or x.shape[1] != kernel.shape[1] or factors.shape[0] != x.shape[0] or rows.shape != factors.shape:
        raise node.fail(
            f"inputs must be x [E, I], a kernel [K, I, O], factors [E, S] and rows [E, S]; found {x}, {kernel}, "
            f"{factors} and {rows}"
        )
    return [(x.dtype, (x.shape[0], kernel.shape[2]))]


def _weighting(_: Node, x: _Array, kernel: _Array, factors: _Array, rows: _Array) -> _Array:
    y = np.zeros((x.shape[0], kernel.shape[2]), np.float32)
    for s in range(factors.shape[1]):
        chosen = kernel[rows[:, s]]
        for i in range(x.shape[1]):
            y += (factors[:, s] * x[:, i])[:, None] * chosen[:, i]
    return y


@flops
def _basis_work(node: Node) -> int:
    factors = node.outputs[0]
    return 2 * node.input(0).shape[1] * (int(node.attribute("degree", 1)) + 1) * factors.nelms


@flops
def _weighting_work(node: Node) -> int:
    return 2 * node.input(2).nelms * node.input(1).shape[1] * node.input(1).shape[2]


OPS = [
    OpDef("SplineBasis", (3, 3), _basis_shape, allocating_kernel(_basis), _basis_work, domain=GRAPHCORE),
    OpDef(
        "SplineWeighting", (4, 4), _weighting_shape, allocating_kernel(_weighting), _weighting_work, domain=GRAPHCORE
    ),
]
