"""Adaptive update: the update op of AdaGrad, RMSProp, CenteredRMSProp and AdaDelta, in place.

Formulas: compiler/optimisers/adaptive_rule.py. All forms share one kernel; attributes choose between them.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gcl.kernels.jit import jit
from ipu_emu.ops.core import BoundOp, Call, Node, OpDef, OutputTypes, call_chain, per_element
from ipu_emu.ops.core.kernel_helpers import copies_in_place, flat
from ipu_emu.ops.core.shape_rules import like_inputs

_Array = NDArray[Any]


@jit
def adaptive(
    w: _Array,
    v1: _Array,
    v2: _Array,
    v3: _Array,
    g: _Array,
    rate: _Array,
    decay: _Array,
    one_less_alpha: _Array,
    momentum: _Array,
    eps: _Array,
    scale: _Array,
    form: int,
    third: bool,
    l2: bool,
    tf: bool,
) -> None:
    """One update of ``w`` and its states (all [n]); states that a form does not use are ignored."""
    c, mm, e, s, r, k = one_less_alpha[()], momentum[()], eps[()], scale[()], rate[()], decay[()]
    a = np.float32(1.0 - np.float64(c))
    inside = k if l2 else np.float32(0)
    outside = np.float32(0) if l2 else k
    rate_in_state = tf and third
    # The common form has a loop of its own without branches, which is vectorised.
    if form == 1 and not tf and not third:
        for i in range(w.size):
            d = s * g[i] + inside * w[i]
            v1[i] = a * v1[i] + c * (d * d)
            w[i] = w[i] - r * (outside * w[i] + d / (np.sqrt(v1[i]) + e))
        return
    for i in range(w.size):
        d = s * g[i] + inside * w[i]
        v1[i] = v1[i] + d * d if form == 0 else a * v1[i] + c * (d * d)
        square = v1[i]
        if form == 2:
            v2[i] = a * v2[i] + c * d
            square = square - v2[i] * v2[i]
        if form == 3:
            x = d * np.sqrt(v2[i] + e) / np.sqrt(square + e)
            v2[i] = a * v2[i] + c * (x * x)
        elif tf:
            x = d / np.sqrt(square + e)
        else:
            x = d / (np.sqrt(square) + e)
        if rate_in_state:
            v3[i] = mm * v3[i] + r * x
            w[i] = w[i] - (outside * w[i] + v3[i])
            continue
        if third:
            x = mm * v3[i] + x
            v3[i] = x
        w[i] = w[i] - r * (outside * w[i] + x)


def _adaptive(bound: BoundOp) -> Call:
    second, third = bool(bound.node.attribute("second", False)), bool(bound.node.attribute("third", False))
    states = 1 + second + third
    w, *state_arrays, g = flat(*bound.outputs, bound.input(1 + states))
    v1, v2 = state_arrays[0], state_arrays[1] if second else state_arrays[0]
    v3 = state_arrays[-1] if third else state_arrays[0]
    scalars: list[Any] = [bound.input(i) for i in range(2 + states, 8 + states)]
    form, l2 = int(bound.node.attribute("form", 1)), bool(bound.node.attribute("l2", False))
    flags: list[Any] = [form, third, l2, bool(bound.node.attribute("tf_variant", False))]
    return call_chain(*copies_in_place(bound), partial(adaptive, w, v1, v2, v3, g, *scalars, *flags))


def _made(node: Node) -> OutputTypes:
    states = 1 + bool(node.attribute("second", False)) + bool(node.attribute("third", False))
    return like_inputs(*range(1 + states))(node)


OPS = [
    # (w, v1[, v2][, v3], g, rate, decay, 1 - alpha, momentum, eps, gradient scaling)
    OpDef("AdaptiveUpdate", (9, 11), _made, _adaptive, per_element(12), updates=(0, 1, 2, 3), elementwise=True),
]
