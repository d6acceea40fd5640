"""SGD rule: the update ops of stochastic gradient descent, and the scalars that drive them.

Source: PopART 3.4 user guide and ``willow/src/optimizer.cpp``. With g the reduced gradient in the engine: multiplied
by the loss scaling ls, and not yet divided by A R under Mean with Post:

    plain      w = decay w - rate g                       constant momentum 0: no state
    separate   v = m v + s g + k w;  w = w - r v          states Accl1___w, and Accum___w with accumulation
    combined   v = a + s g;          w = w - r v;  a = m v + k w       state Accl___w

    rate = lr (1 - dm) / (ls A R)     decay = 1 - lr (1 - dm) wd
    r = lr / vs    s = (1 - dm) vs / (ls A R)    k = (1 - dm) vs wd
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ipu_emu.compiler.optimisers.update_rule import HyperParameter, OptimizerState, UpdateRule, zeros
from ipu_emu.compiler.rewriting.reserved_prefixes import ACCL, ACCL1
from ipu_emu.graph import DType, Tensor


class Mode(Enum):
    """Where the momentum is kept; the names are PopART's."""

    PLAIN = "SGD0"
    COMBINED = "SGD1"
    SEPARATE = "SGD2"


@dataclass(frozen=True)
class SgdValues:
    """The values that apply to one weight."""

    learning_rate: HyperParameter
    weight_decay: HyperParameter
    momentum: HyperParameter
    dampening: HyperParameter
    velocity_scaling: HyperParameter
    nesterov: HyperParameter


@dataclass(frozen=True)
class SgdRule(UpdateRule):
    """Stochastic gradient descent for all weights of a graph."""

    with_momentum: Mode = Mode.COMBINED
    accl_type: DType | None = None

    def mode(self, weight: str) -> Mode:
        """The states of a weight: none if its momentum is constant 0."""
        return Mode.PLAIN if self.values(weight).momentum == HyperParameter(0.0) else self.with_momentum

    def kinds(self, weight: str, *, divisor: int) -> dict[str, HyperParameter]:
        return dict(zip(_KINDS[self.mode(weight)], self._compound(weight, divisor), strict=True))

    def _compound(self, weight: str, divisor: int) -> list[HyperParameter]:
        v: SgdValues = self.values(weight)
        lr, wd, vs = v.learning_rate.value, v.weight_decay.value, v.velocity_scaling.value
        undamped, scale = 1 - v.dampening.value, self.loss_scaling.value * divisor
        if self.mode(weight) is Mode.PLAIN:
            return [
                _hyper(lr * undamped / scale, v.learning_rate, v.dampening, self.loss_scaling),
                _hyper(1 - lr * undamped * wd, v.learning_rate, v.dampening, v.weight_decay),
            ]
        return [
            _hyper(lr / vs, v.learning_rate, v.velocity_scaling),
            v.momentum,
            _hyper(undamped * vs / scale, v.dampening, v.velocity_scaling, self.loss_scaling),
            _hyper(undamped * vs * wd, v.dampening, v.velocity_scaling, v.weight_decay),
            v.nesterov,
        ]

    def states(self, weight: Tensor, data: NDArray[Any]) -> list[OptimizerState]:
        """The initial state: the weight decay of the first step in the combined form, 0 in the separate form."""
        mode, dtype = self.mode(weight.id), self.accl_type or weight.dtype
        if mode is Mode.PLAIN:
            return []
        if mode is Mode.SEPARATE:
            return [OptimizerState(ACCL1 + weight.id, dtype, zeros(data.shape, dtype))]
        decay = np.float32(self._compound(weight.id, 1)[3].value)
        if decay == 0:
            return [OptimizerState(ACCL + weight.id, dtype, zeros(data.shape, dtype))]
        return [OptimizerState(ACCL + weight.id, dtype, (data.astype(np.float32) * decay).astype(dtype.numpy))]

    def op(self, weight: str) -> tuple[str, dict[str, Any]]:
        return _OPS[self.mode(weight)], {}

    def accumulator(self, weight: str) -> str:
        """The id of the sum over micro-batches; the combined form sums in its state, without an Accum___ tensor."""
        hidden = "Combined" if self.mode(weight) is Mode.COMBINED else ""
        return hidden + super().accumulator(weight)


def _hyper(value: float, *sources: HyperParameter) -> HyperParameter:
    """A computed value, which is constant if all of its operands are."""
    return HyperParameter(value, all(source.constant for source in sources))


_OPS = {Mode.PLAIN: "SgdPlain", Mode.COMBINED: "SgdCombined", Mode.SEPARATE: "SgdSeparate"}

_MOMENTUM = ("scaledLearningRate", "scaledMomentum", "dampeningScaleFactor", "weightDecayScaleFactor", "nesterov")
#: Scalars of the update op in the order of its inputs; the number is that of the mode.
_KINDS = {
    Mode.PLAIN: ("scaledLearningRate0", "weightDecayScaleFactor0"),
    Mode.COMBINED: tuple(f"{kind}1" for kind in _MOMENTUM),
    Mode.SEPARATE: tuple(f"{kind}2" for kind in _MOMENTUM),
}
