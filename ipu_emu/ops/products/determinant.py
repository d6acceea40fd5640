"""Determinant: of square matrices [..., n, n]."""

from __future__ import annotations

from typing import Any

import numpy as np

from ipu_emu.ops.core.cost import flops
from ipu_emu.ops.core.kernel_helpers import allocating_kernel
from ipu_emu.ops.core.node import Node, OutputTypes
from ipu_emu.ops.core.op_definition import OpDef

__all__ = ["OPS"]

_Array = Any


def _shape(node: Node) -> OutputTypes:
    x = node.input(0)
    if x.rank < 2 or x.shape[-1] != x.shape[-2]:
        raise node.fail(f"the input must be square matrices [..., n, n], found {x}")
    return [(x.dtype, x.shape[:-2])]


def _det(node: Node, x: _Array) -> _Array:
    return np.linalg.det(x)


def _back_shape(node: Node) -> OutputTypes:
    return [(node.input(1).dtype, node.input(1).shape)]


def _back(node: Node, g: _Array, x: _Array) -> _Array:
    """g times the matrix of cofactors, det(U V) U diag(products of the other singular values) V, for X = U S V.

    Unlike det(X) X^-T, this is correct for singular matrices too.
    """
    u, s, v = np.linalg.svd(x.astype(np.float64))
    others = np.where(np.eye(s.shape[-1], dtype=bool), 1.0, s[..., None, :]).prod(-1)
    cofactors = (u * others[..., None, :]) @ v * np.linalg.det(u @ v)[..., None, None]
    return cofactors * g[..., None, None]


_cost = flops(lambda node: node.inputs[-1].nelms * node.inputs[-1].shape[-1] if node.inputs[-1] else 0)

OPS = [
    OpDef("Det", (1, 1), _shape, allocating_kernel(_det), _cost, lambda d: d.g.op("DetGrad", d.x)),
    # DetGrad(g, x)
    OpDef("DetGrad", (2, 2), _back_shape, allocating_kernel(_back), _cost),
]
