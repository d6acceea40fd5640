"""Adam update: the update op of the Adam family, in place.

Formulas: compiler/optimisers/adam_rule.py. All forms share one kernel; attributes choose between them.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gcl.kernels.jit import jit
from ipu_emu.graph.dtype import FLOAT
from ipu_emu.ops.codegen.functions.compiled_functions import whole_power
from ipu_emu.ops.core import BoundOp, Call, Node, OpDef, OutputTypes, call_chain, per_element
from ipu_emu.ops.core.kernel_helpers import copies_in_place, flat, storage
from ipu_emu.ops.core.shape_rules import like_inputs, same

LAMB_DIRECTION, LAMB_STEP = "LambDirection", "LambStep"

_Array = NDArray[Any]


@jit
def norm(x: _Array) -> float:
    """The L2 norm of ``x`` ([n]), summed in double precision in one fixed order."""
    quads = x.size // 4 * 4
    a = b = c = d = 0.0
    for i in range(0, quads, 4):
        a += np.float64(x[i]) * x[i]
        b += np.float64(x[i + 1]) * x[i + 1]
        c += np.float64(x[i + 2]) * x[i + 2]
        d += np.float64(x[i + 3]) * x[i + 3]
    for i in range(quads, x.size):
        a += np.float64(x[i]) * x[i]
    root: float = np.sqrt((a + b) + (c + d))
    return root


@jit
def corrections(step: _Array, c1: Any, c2: Any, bias: bool) -> tuple[Any, Any]:
    """Increment ``step`` and return the bias corrections of both moments as factors."""
    count = step[()] + np.float32(1)
    step[()] = count
    first, second = np.float32(1), np.float32(1)
    if bias:
        first = np.float32(1.0 / (1.0 - whole_power(1.0 - np.float64(c1), int(count))))
        second = np.float32(1.0 / (1.0 - whole_power(1.0 - np.float64(c2), int(count))))
    return first, second


@jit
def adam(
    w: _Array,
    m: _Array,
    v: _Array,
    step: _Array,
    g: _Array,
    rate: _Array,
    decay: _Array,
    one_less_beta1: _Array,
    one_less_beta2: _Array,
    eps: _Array,
    scale: _Array,
    bias: bool,
    maximum: bool,
    l2: bool,
) -> None:
    """One update of ``w``, ``m``, ``v`` ([n]) and ``step`` (0-d)."""
    c1, c2 = one_less_beta1[()], one_less_beta2[()]
    b1, b2 = np.float32(1.0 - np.float64(c1)), np.float32(1.0 - np.float64(c2))
    first, second = corrections(step, c1, c2, bias)
    r, k, e, s = rate[()], decay[()], eps[()], scale[()]
    inside = k if l2 else np.float32(0)
    outside = np.float32(0) if l2 else k
    # One loop per form, without branches inside, so that each is vectorised.
    if maximum:
        for i in range(w.size):
            d = s * g[i] + inside * w[i]
            m[i] = b1 * m[i] + c1 * d
            v[i] = max(b2 * v[i], abs(d))
            w[i] = w[i] - r * (first * m[i] / (v[i] + e) + outside * w[i])
    else:
        for i in range(w.size):
            d = s * g[i] + inside * w[i]
            m[i] = b1 * m[i] + c1 * d
            v[i] = b2 * v[i] + c2 * (d * d)
            w[i] = w[i] - r * (first * m[i] / (np.sqrt(second * v[i]) + e) + outside * w[i])


@jit
def lamb_direction(
    w: _Array,
    m: _Array,
    v: _Array,
    step: _Array,
    g: _Array,
    decay: _Array,
    one_less_beta1: _Array,
    one_less_beta2: _Array,
    eps: _Array,
    scale: _Array,
    bias: bool,
    l2: bool,
    x: _Array,
) -> None:
    """Update ``m``, ``v`` ([n]) and ``step`` (0-d), and set ``x`` ([n]) to the direction of the update."""
    c1, c2 = one_less_beta1[()], one_less_beta2[()]
    b1, b2 = np.float32(1.0 - np.float64(c1)), np.float32(1.0 - np.float64(c2))
    first, second = corrections(step, c1, c2, bias)
    k, e, s = decay[()], eps[()], scale[()]
    inside = k if l2 else np.float32(0)
    outside = np.float32(0) if l2 else k
    for i in range(w.size):
        d = s * g[i] + inside * w[i]
        m[i] = b1 * m[i] + c1 * d
        v[i] = b2 * v[i] + c2 * (d * d)
        x[i] = first * m[i] / (np.sqrt(second * v[i]) + e) + outside * w[i]


@jit
def lamb_step(w: _Array, x: _Array, whole_w: _Array, whole_x: _Array, rate: _Array, max_norm: _Array) -> None:
    """w -= r x ([n]), r by the norms of the whole tensors, of which ``w`` and ``x`` may be shards."""
    of_w, of_x = norm(whole_w), norm(whole_x)
    ratio = 1.0
    if of_w > 0 and of_x > 0:
        ratio = min(of_w, np.float64(max_norm[()])) / of_x
    factor = rate[()] * np.float32(ratio)
    for i in range(w.size):
        w[i] = w[i] - factor * x[i]


def _adam(bound: BoundOp) -> Call:
    w, m, v, g = flat(*bound.outputs[:3], bound.input(4))
    rate, decay, c1, c2, eps, max_norm, scale = (bound.input(i) for i in range(5, 12))
    bias, maximum, norms, l2 = (bool(bound.node.attribute(n, False)) for n in ("bias", "maximum", "norms", "l2"))
    step = bound.outputs[3]
    if not norms:
        update = partial(adam, w, m, v, step, g, rate, decay, c1, c2, eps, scale, bias, maximum, l2)
        return call_chain(*copies_in_place(bound), update)
    x = bound.scratch[0]
    moved = partial(lamb_direction, w, m, v, step, g, decay, c1, c2, eps, scale, bias, l2, x)
    return call_chain(*copies_in_place(bound), moved, partial(lamb_step, w, x, w, x, rate, max_norm))


def _direction(bound: BoundOp) -> Call:
    w, m, v, x, g = flat(bound.input(0), bound.outputs[0], bound.outputs[1], bound.outputs[3], bound.input(4))
    decay, c1, c2, eps, scale = (bound.input(i) for i in range(5, 10))
    bias, l2 = (bool(bound.node.attribute(name, False)) for name in ("bias", "l2"))
    states = copies_in_place(bound, slice(1, 4))
    return call_chain(
        *states, partial(lamb_direction, w, m, v, bound.outputs[2], g, decay, c1, c2, eps, scale, bias, l2, x)
    )


def _walk(bound: BoundOp) -> Call:
    w, x = flat(bound.outputs[0], bound.input(1))
    norm_operands = (storage(bound.input(2)), storage(bound.input(3)))
    return call_chain(
        *copies_in_place(bound, slice(1)), partial(lamb_step, w, x, *norm_operands, bound.input(4), bound.input(5))
    )


def _states(node: Node) -> OutputTypes:
    return [*like_inputs(1, 2, 3)(node), (FLOAT, node.input(0).shape)]


OPS = [
    # (w, m, v, step, g, rate, decay, 1 - beta1, 1 - beta2, eps, max weight norm, gradient scaling)
    OpDef(
        "AdamUpdate",
        (12, 12),
        like_inputs(0, 1, 2, 3),
        _adam,
        per_element(14),
        None,
        lambda node: [node.input(0).nelms] if node.attribute("norms", False) else [],
        updates=(0, 1, 2, 3),
        elementwise=True,
    ),
    # The two halves of Lamb, between which the direction is gathered where replicas share an update:
    # (w, m, v, step, g, decay, 1 - beta1, 1 - beta2, eps, gradient scaling) -> (m, v, step, direction)
    OpDef(LAMB_DIRECTION, (10, 10), _states, _direction, per_element(10), updates=(1, 2, 3), elementwise=True),
    # (w, direction, whole w, whole direction, rate, max weight norm)
    OpDef(LAMB_STEP, (6, 6), same, _walk, per_element(4), updates=(0,), elementwise=True),
]
