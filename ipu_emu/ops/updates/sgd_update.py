"""SGD update: the update ops of its three forms, in place.

Source: PopART 3.4, ``willow/src/optimizer.cpp``. Scalars are 0-d tensors, so that the host can change them.
"""

from __future__ import annotations

from typing import Any

from ipu_emu.ops.core import BoundOp, Call, OpDef, always, per_element
from ipu_emu.ops.core.kernel_helpers import flat, in_float32
from ipu_emu.ops.core.row_kernels import RowKernel
from ipu_emu.ops.core.shape_rules import like_inputs, same


def _plain(bound: BoundOp) -> Call:
    """w = decay w - rate g"""
    w, g, out = flat(bound.input(0), bound.input(1), bound.outputs[0])
    kernel = RowKernel(1, w.size, w=("full", w), g=("full", g), out=("full", out))
    kernel.scalars(rate=bound.input(2), decay=bound.input(3))
    return kernel.add("a = mul decay w; b = mul rate g; c = sub a b; store out c").bound()


#: d = factor g + decay w, and the new weight (with Nesterov, from the look-ahead gradient).
_SLOPE = "a = mul factor g; b = mul decay w; d = add a b; "
_STEP = "l = mul momentum v; n = add d l; c = choose nesterov n v; r = mul rate c; x = sub w r; store w_out x; "


def _with_momentum(bound: BoundOp) -> RowKernel:
    w, v, g, w_out, v_out = flat(bound.input(0), bound.input(1), bound.input(2), *bound.outputs)
    full = {"w": w, "state": v, "g": g, "w_out": w_out, "state_out": v_out}
    kernel = RowKernel(1, w.size, **{name: ("full", array) for name, array in full.items()})
    names = ("rate", "momentum", "factor", "decay", "nesterov")
    return kernel.scalars(**{name: bound.input(3 + index) for index, name in enumerate(names)})


def _separate(bound: BoundOp) -> Call:
    """v = momentum v + d, w = w - rate v (Nesterov: w - rate (d + momentum v)), with d = factor g + decay w"""
    kernel = _with_momentum(bound)
    return kernel.add(f"{_SLOPE} p = mul momentum state; v = add p d; store state_out v; {_STEP}").bound()


def _combined(bound: BoundOp) -> Call:
    """As ``_separate``, with state = momentum v + decay w, which the previous step has prepared."""
    kernel = _with_momentum(bound)
    prepared = "l2 = mul momentum v; k = mul decay x; n2 = add l2 k; store state_out n2"
    return kernel.add(f"{_SLOPE} v = add state a; {_STEP} {prepared}").bound()


_STATES = like_inputs(0, 1)
_IN_PLACE: dict[str, Any] = {"elementwise": True, "takes_half": always}

OPS = [
    # (w, g, scaledLearningRate, weightDecayScaleFactor)
    OpDef("SgdPlain", (4, 4), same, in_float32(_plain), per_element(3), updates=(0,), **_IN_PLACE),
    # (w, velocity, g, rate, momentum, gradient factor, decay, nesterov)
    OpDef("SgdSeparate", (8, 8), _STATES, in_float32(_separate), per_element(7), updates=(0, 1), **_IN_PLACE),
    OpDef("SgdCombined", (8, 8), _STATES, in_float32(_combined), per_element(8), updates=(0, 1), **_IN_PLACE),
]
