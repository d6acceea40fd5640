"""Determinant: of square matrices [..., n, n]."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from ipu_emu.ops.core import Node, OpDef, OutputTypes, flops
from ipu_emu.ops.core.axis_sums import folded
from ipu_emu.ops.core.kernel_helpers import allocating_kernel
from ipu_emu.ops.core.shape_rules import like_second

_Array = Any


def _shape(node: Node) -> OutputTypes:
    x = node.input(0)
    if x.rank < 2 or x.shape[-1] != x.shape[-2]:
        raise node.fail(f"the input must be square matrices [..., n, n], found {x}")
    return [(x.dtype, x.shape[:-2])]


def _diagonalised(x: _Array) -> tuple[_Array, _Array, _Array, _Array]:
    """(E, d, F, det E det F) with E x F = diag(d), by eliminating the largest element left of each [n, n] of ``x``.

    E and F are products of exchanges, whose determinants are 1 or -1, and of triangular matrices with ones.
    """
    n = x.shape[-1]
    left = x.astype(np.float64).reshape(prod(x.shape[:-2]), n, n)
    e, f = (np.broadcast_to(np.eye(n), left.shape).copy() for _ in range(2))
    sign, batch = np.ones(len(left)), np.arange(len(left))
    for k in range(n):
        row, column = np.divmod(np.abs(left[:, k:, k:]).reshape(len(left), (n - k) ** 2).argmax(1), n - k)
        for matrix, place in ((left, row + k), (e, row + k), (left.mT, column + k), (f.mT, column + k)):
            matrix[batch, place], matrix[:, k] = matrix[:, k].copy(), matrix[batch, place]
        sign *= np.where((row == 0) == (column == 0), 1, -1)
        pivot = np.where(left[:, k, k] == 0, 1, left[:, k, k])[:, None]
        down, across = left[:, k + 1 :, k] / pivot, left[:, k, k + 1 :] / pivot
        e[:, k + 1 :] -= down[:, :, None] * e[:, k, None]
        f[:, :, k + 1 :] -= f[:, :, k, None] * across[:, None]
        left[:, k + 1 :] -= down[:, :, None] * left[:, k, None]
        left[:, k, k + 1 :] = 0
    return e, left.diagonal(0, 1, 2), f, sign


def _det(node: Node, x: _Array) -> _Array:
    _, diagonal, _, sign = _diagonalised(x)
    return (folded(np.multiply, diagonal, (1,)) * sign).reshape(x.shape[:-2])


def _back(node: Node, g: _Array, x: _Array) -> _Array:
    """g times the matrix of cofactors, det(E) det(F) E^T diag(products of the other d) F^T, for E x F = diag(d).

    Unlike det(x) x^-T, this is correct for singular matrices too.
    """
    e, diagonal, f, sign = _diagonalised(x)
    n = x.shape[-1]
    others = folded(np.multiply, np.where(np.eye(n, dtype=bool), 1.0, diagonal[:, None]), (2,)) * sign[:, None]
    cofactors = np.zeros_like(e)
    for k in range(n):
        cofactors += (e[:, k] * others[:, k, None])[:, :, None] * f[:, None, :, k]
    return cofactors.reshape(x.shape) * g[..., None, None]


_cost = flops(lambda node: node.inputs[-1].nelms * node.inputs[-1].shape[-1] if node.inputs[-1] else 0)

OPS = [
    OpDef("Det", (1, 1), _shape, allocating_kernel(_det), _cost, lambda d: d.g.op("DetGrad", d.x)),
    # DetGrad(g, x)
    OpDef("DetGrad", (2, 2), like_second, allocating_kernel(_back), _cost),
]
