"""Adam: the update op of the Adam family, in place.

Formulas: transforms/adam.py. All forms are one kernel; what they differ in are attributes.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gcl.jit import jit
from ipu_emu.ops.arrays import chain, flat
from ipu_emu.ops.cost import per_element
from ipu_emu.ops.node import Made, Node
from ipu_emu.ops.registry import Bound, OpDef, Step

__all__ = ["OPS", "brought", "norm"]

_Array = NDArray[Any]


@jit
def norm(x: _Array) -> float:
    """The L2 norm of ``x`` ([n]), summed in double precision in one fixed order."""
    whole = x.size // 4 * 4
    a = b = c = d = 0.0
    for i in range(0, whole, 4):
        a += np.float64(x[i]) * x[i]
        b += np.float64(x[i + 1]) * x[i + 1]
        c += np.float64(x[i + 2]) * x[i + 2]
        d += np.float64(x[i + 3]) * x[i + 3]
    for i in range(whole, x.size):
        a += np.float64(x[i]) * x[i]
    root: float = np.sqrt((a + b) + (c + d))
    return root


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
    max_norm: _Array,
    scale: _Array,
    bias: bool,
    maximum: bool,
    norms: bool,
    l2: bool,
    x: _Array,
) -> None:
    """One update of ``w``, ``m``, ``v`` ([n]) and ``step`` (0-d); ``x`` is room for the direction if norms count."""
    one = np.float32(1)
    c1, c2 = one_less_beta1[()], one_less_beta2[()]
    b1, b2 = np.float32(1.0 - np.float64(c1)), np.float32(1.0 - np.float64(c2))
    count = step[()] + one
    step[()] = count
    first, second = one, one
    if bias:
        first = np.float32(1.0 / (1.0 - (1.0 - np.float64(c1)) ** np.float64(count)))
        second = np.float32(1.0 / (1.0 - (1.0 - np.float64(c2)) ** np.float64(count)))
    r, k, e, s = rate[()], decay[()], eps[()], scale[()]
    inside = k if l2 else np.float32(0)
    outside = np.float32(0) if l2 else k
    # One loop for each form, without branches inside, so that each is compiled to vector instructions.
    if maximum:
        for i in range(w.size):
            d = s * g[i] + inside * w[i]
            m[i] = b1 * m[i] + c1 * d
            v[i] = max(b2 * v[i], abs(d))
            w[i] = w[i] - r * (first * m[i] / (v[i] + e) + outside * w[i])
    elif norms:
        for i in range(w.size):
            d = s * g[i] + inside * w[i]
            m[i] = b1 * m[i] + c1 * d
            v[i] = b2 * v[i] + c2 * (d * d)
            x[i] = first * m[i] / (np.sqrt(second * v[i]) + e) + outside * w[i]
    else:
        for i in range(w.size):
            d = s * g[i] + inside * w[i]
            m[i] = b1 * m[i] + c1 * d
            v[i] = b2 * v[i] + c2 * (d * d)
            w[i] = w[i] - r * (first * m[i] / (np.sqrt(second * v[i]) + e) + outside * w[i])
    if norms:
        of_w, of_x = norm(w), norm(x)
        ratio = 1.0
        if of_w > 0 and of_x > 0:
            ratio = min(of_w, np.float64(max_norm[()])) / of_x
        factor = r * np.float32(ratio)
        for i in range(w.size):
            w[i] = w[i] - factor * x[i]


def brought(bound: Bound) -> list[Step]:
    """Copies of what an update in place changes, to where it is changed, if that is not the same memory."""
    pairs = zip(bound.outputs, bound.inputs, strict=False)
    return [partial(np.copyto, out, x) for out, x in pairs if x is not None and not np.shares_memory(out, x)]


def _adam(bound: Bound) -> Step:
    w, m, v, g = flat(*bound.outputs[:3], bound.input(4))
    given: list[Any] = [bound.input(i) for i in range(5, 12)]
    given += [bool(bound.node.attribute(name, False)) for name in ("bias", "maximum", "norms", "l2")]
    given.append(bound.scratch[0] if bound.scratch else w)
    return chain(*brought(bound), partial(adam, w, m, v, bound.outputs[3], g, *given))


def _made(node: Node) -> Made:
    return [(tensor.dtype, tensor.shape) for tensor in (node.input(i) for i in range(4))]


OPS = [
    # (w, m, v, step, g, rate, decay, 1 - beta1, 1 - beta2, eps, max weight norm, gradient scaling)
    OpDef(
        "AdamUpdate",
        (12, 12),
        _made,
        _adam,
        per_element(14),
        None,
        lambda node: [node.input(0).nelms] if node.attribute("norms", False) else [],
        updates=(0, 1, 2, 3),
        elementwise=True,
    ),
]
