"""Gradient clipping: scales gradients in place so that their joint L2 norm is at most a maximum.

norm = GradientNorm(g)                      on the IPU of each gradient
factor = ClipFactor(norm..., scale)         on one of them
g = ClipGradient(g, factor)                 on the IPU of each gradient
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from math import fsum, sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ipu_emu.graph.dtype import FLOAT, dtype_named
from ipu_emu.ops.core import BoundOp, Call, OpDef, call_chain, flops
from ipu_emu.ops.core.kernel_helpers import copies_in_place, storage
from ipu_emu.ops.core.shape_rules import same
from ipu_emu.ops.updates.adam_update import norm


def measure(gradient: NDArray[Any], out: NDArray[Any]) -> None:
    out[()] = norm(gradient)


def limit(norms: Sequence[NDArray[Any]], scale: NDArray[Any], out: NDArray[Any], max_norm: float) -> None:
    """out = max_norm / max(max_norm, norm), norm = the L2 norm of ``scale`` times all gradients."""
    norm = sqrt(fsum(float(part[()] * part[()]) for part in norms)) * float(scale[()])
    out[()] = max_norm / max(max_norm, norm)


def _factor(bound: BoundOp) -> Call:
    *norms, scale = (bound.input(index) for index in range(len(bound.inputs)))
    return partial(limit, norms, scale, bound.outputs[0], float(bound.node.attribute("max_norm", 1.0)))


def _clip(bound: BoundOp) -> Call:
    gradient = storage(bound.outputs[0])
    return call_chain(*copies_in_place(bound), partial(np.multiply, gradient, bound.input(1), gradient))


_MOST = 4096

OPS = [
    OpDef(
        "GradientNorm",
        (1, 1),
        lambda node: [(dtype_named("DOUBLE"), ())],
        lambda bound: partial(measure, storage(bound.input(0)), bound.outputs[0]),
        flops(lambda node: 2 * node.input(0).nelms),
    ),
    # (norm..., the factor by which the updates multiply the gradients)
    OpDef("ClipFactor", (2, _MOST), lambda node: [(FLOAT, ())], _factor, flops(lambda node: 2 * len(node.inputs))),
    # (g, factor)
    OpDef("ClipGradient", (2, 2), same, _clip, flops(lambda node: node.input(0).nelms), updates=(0,)),
]
