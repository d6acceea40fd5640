"""Updates: accumulation of gradients and the three forms of SGD, each in place.

Source: PopART 3.4, ``willow/src/optimizer.cpp``. Scalars are 0-d tensors, so that the host can change them.
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
from ipu_emu.ops.shapes import same

__all__ = ["OPS"]


@jit
def sgd_plain(w: NDArray[Any], g: NDArray[Any], rate: NDArray[Any], decay: NDArray[Any], out: NDArray[Any]) -> None:
    """out = decay w - rate g"""
    r, d = rate[()], decay[()]
    for i in range(w.size):
        out[i] = d * w[i] - r * g[i]


@jit
def sgd_separate(
    w: NDArray[Any],
    v: NDArray[Any],
    g: NDArray[Any],
    rate: NDArray[Any],
    momentum: NDArray[Any],
    gradient: NDArray[Any],
    decay: NDArray[Any],
    nesterov: NDArray[Any],
    w_out: NDArray[Any],
    v_out: NDArray[Any],
) -> None:
    """v = momentum v + d, w = w - rate v (Nesterov: w - rate (d + momentum v)), with d = gradient g + decay w"""
    r, m, s, k, look_ahead = rate[()], momentum[()], gradient[()], decay[()], nesterov[()] != 0
    for i in range(w.size):
        d = s * g[i] + k * w[i]
        velocity = m * v[i] + d
        v_out[i] = velocity
        w_out[i] = w[i] - r * (d + m * velocity if look_ahead else velocity)


@jit
def sgd_combined(
    w: NDArray[Any],
    a: NDArray[Any],
    g: NDArray[Any],
    rate: NDArray[Any],
    momentum: NDArray[Any],
    gradient: NDArray[Any],
    decay: NDArray[Any],
    nesterov: NDArray[Any],
    w_out: NDArray[Any],
    a_out: NDArray[Any],
) -> None:
    """As ``sgd_separate``, with a = momentum v + decay w prepared at the end of the step before."""
    r, m, s, k, look_ahead = rate[()], momentum[()], gradient[()], decay[()], nesterov[()] != 0
    for i in range(w.size):
        velocity = a[i] + s * g[i]
        new = w[i] - r * (s * g[i] + k * w[i] + m * velocity if look_ahead else velocity)
        w_out[i] = new
        a_out[i] = m * velocity + k * new


def _plain(bound: Bound) -> Step:
    w, g, out = flat(bound.input(0), bound.input(1), bound.outputs[0])
    return partial(sgd_plain, w, g, bound.input(2), bound.input(3), out)


_Array = NDArray[Any]


def _scalars(bound: Bound) -> tuple[_Array, _Array, _Array, _Array, _Array]:
    return bound.input(3), bound.input(4), bound.input(5), bound.input(6), bound.input(7)


def _separate(bound: Bound) -> Step:
    w, v, g, w_out, v_out = flat(bound.input(0), bound.input(1), bound.input(2), *bound.outputs)
    return partial(sgd_separate, w, v, g, *_scalars(bound), w_out, v_out)


def _combined(bound: Bound) -> Step:
    w, a, g, w_out, a_out = flat(bound.input(0), bound.input(1), bound.input(2), *bound.outputs)
    return partial(sgd_combined, w, a, g, *_scalars(bound), w_out, a_out)


def _copy_into(bound: Bound) -> Step:
    return partial(np.copyto, bound.outputs[0], bound.input(1))


def _add_into(bound: Bound) -> Step:
    return partial(np.add, bound.input(0), bound.input(1), bound.outputs[0])


def _mean_into(bound: Bound) -> Step:
    total, g, keep, take = (bound.input(i) for i in range(4))
    out, share = bound.outputs[0], bound.scratch[0].reshape(g.shape)
    return chain(
        partial(np.multiply, g, take, share),
        partial(np.multiply, total, keep, out),
        partial(np.add, out, share, out),
    )


def _two(node: Node) -> Made:
    return [(tensor.dtype, tensor.shape) for tensor in (node.input(0), node.input(1))]


OPS = [
    # (w, g, scaledLearningRate, weightDecayScaleFactor)
    OpDef("SgdPlain", (4, 4), same, _plain, per_element(3), updates=(0,), elementwise=True),
    # (w, velocity, g, rate, momentum, gradient factor, decay, nesterov)
    OpDef("SgdSeparate", (8, 8), _two, _separate, per_element(7), updates=(0, 1), elementwise=True),
    OpDef("SgdCombined", (8, 8), _two, _combined, per_element(8), updates=(0, 1), elementwise=True),
    # (total, g): the first micro-batch, the others; MeanInto(total, g, keep, take) keeps a running mean.
    OpDef("CopyInto", (2, 2), same, _copy_into, per_element(0), updates=(0,), elementwise=True),
    OpDef("AddInto", (2, 2), same, _add_into, per_element(1), updates=(0,), elementwise=True),
    OpDef(
        "MeanInto",
        (4, 4),
        same,
        _mean_into,
        per_element(3),
        None,
        lambda node: [node.input(1).nelms],
        updates=(0,),
        elementwise=True,
    ),
]
