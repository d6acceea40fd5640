"""Clipping: scale the gradients of some weights together, in place, so that their L2 norm is at most a maximum.

norm = GradientNorm(g)                      on the IPU of each gradient
factor = ClipFactor(norm..., scale)         on one of them
g = ClipGradient(g, factor)                 on the IPU of each gradient
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ipu_emu.graph.dtype import FLOAT, dtype_named
from ipu_emu.ops.core.cost import flops
from ipu_emu.ops.core.kernel_helpers import chain, storage
from ipu_emu.ops.core.node import Made, Node
from ipu_emu.ops.core.op_definition import Bound, OpDef, Step
from ipu_emu.ops.updates.adam_update import brought, norm

__all__ = ["OPS"]


def measure(gradient: NDArray[Any], out: NDArray[Any]) -> None:
    out[()] = norm(gradient)


def limit(norms: Sequence[NDArray[Any]], scale: NDArray[Any], out: NDArray[Any], max_norm: float) -> None:
    """out = max_norm / max(max_norm, norm), the norm being that of ``scale`` times all gradients."""
    whole = float(np.sqrt(sum(float(part[()]) ** 2 for part in norms))) * float(scale[()])
    out[()] = max_norm / max(max_norm, whole)


def _norm(bound: Bound) -> Step:
    return partial(measure, storage(bound.input(0)), bound.outputs[0])


def _factor(bound: Bound) -> Step:
    *norms, scale = (bound.input(index) for index in range(len(bound.inputs)))
    return partial(limit, norms, scale, bound.outputs[0], float(bound.node.attribute("max_norm", 1.0)))


def _clip(bound: Bound) -> Step:
    gradient = storage(bound.outputs[0])
    return chain(*brought(bound), partial(np.multiply, gradient, bound.input(1), gradient))


def _double(node: Node) -> Made:
    return [(dtype_named("DOUBLE"), ())]


def _scalar(node: Node) -> Made:
    return [(FLOAT, ())]


def _gradient(node: Node) -> Made:
    return [(node.input(0).dtype, node.input(0).shape)]


_MOST = 4096

OPS = [
    OpDef(
        "GradientNorm",
        (1, 1),
        lambda node: [(dtype_named("DOUBLE"), ())],
        _norm,
        flops(lambda node: 2 * node.input(0).nelms),
    ),
    # (norm..., what the gradients are multiplied by in the updates)
    OpDef("ClipFactor", (2, _MOST), _scalar, _factor, flops(lambda node: 2 * len(node.inputs))),
    # (g, factor)
    OpDef("ClipGradient", (2, 2), _gradient, _clip, flops(lambda node: node.input(0).nelms), updates=(0,)),
]
