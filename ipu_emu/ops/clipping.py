"""ClipNorm: scale the gradients of some weights together, in place, so that their L2 norm is at most a maximum."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ipu_emu.ops.adam import brought, norm
from ipu_emu.ops.arrays import chain, storage
from ipu_emu.ops.cost import flops
from ipu_emu.ops.node import Made, Node
from ipu_emu.ops.registry import Bound, OpDef, Step

__all__ = ["OPS"]


def clip(gradients: Sequence[NDArray[Any]], scale: NDArray[Any], max_norm: float) -> None:
    """Multiply all by max_norm / max(max_norm, norm), the norm being that of ``scale`` times the gradients."""
    parts = [norm(gradient) for gradient in gradients]
    whole = float(np.sqrt(sum(part * part for part in parts))) * float(scale[()])
    factor = np.float32(max_norm / max(max_norm, whole))
    for gradient in gradients:
        np.multiply(gradient, factor, gradient)


def _clip(bound: Bound) -> Step:
    gradients = [storage(out) for out in bound.outputs]
    scale = bound.input(len(bound.inputs) - 1)
    return chain(*brought(bound), partial(clip, gradients, scale, float(bound.node.attribute("max_norm", 1.0))))


def _made(node: Node) -> Made:
    return [(tensor.dtype, tensor.shape) for tensor in node.inputs[:-1] if tensor is not None]


_MOST = 4096

OPS = [
    # (g..., what the gradients are multiplied by in the updates)
    OpDef(
        "ClipNorm",
        (2, _MOST),
        _made,
        _clip,
        flops(lambda node: sum(3 * tensor.nelms for tensor in node.outputs)),
        updates=tuple(range(_MOST)),
    ),
]
