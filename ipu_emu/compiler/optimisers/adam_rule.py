"""Adam rule: Adam, AdamNoBias, AdaMax, Lamb and LambNoBias as one update op.

Source: PopART 3.4, ``willow/include/popart/adam.hpp``. With g the gradient, s = g (L2Regularization: g + wd w):

    m = b1 m + (1 - b1) s        v = b2 v + (1 - b2) s^2     (AdaMax: v = max(b2 v, |s|))        t = t + 1
    mc = m / (1 - b1^t)          vc = v / (1 - b2^t)         (NoBias: neither is corrected)
    x = mc / (sqrt(vc) + eps)    (AdaMax: mc / (v + eps))    Decay: x = x + wd w
    w = w - lr x                 Lamb: w = w - lr min(|w|, max norm) / |x| x, ratio 1 where a norm is 0

States are Accl1___w (m), Accl2___w (v) and, where t is needed, Step___w. With a scaled optimiser state m and v are
computed from ls g instead of g; eps and wd are scaled alike, so that x is the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ipu_emu.compiler.optimisers.update_rule import HyperParameter, OptimizerState, UpdateRule, zeros
from ipu_emu.compiler.rewriting.reserved_prefixes import ACCL1, ACCL2, STEP
from ipu_emu.graph import DType, Tensor
from ipu_emu.graph.dtype import FLOAT


class AdamForm(Enum):
    """The variant of Adam: (corrects the bias, takes the maximum, scales by norms)."""

    ADAM = (True, False, False)
    ADAM_NO_BIAS = (False, False, False)
    ADA_MAX = (True, True, False)
    LAMB = (True, False, True)
    LAMB_NO_BIAS = (False, False, True)


@dataclass(frozen=True)
class AdamValues:
    """The values that apply to one weight."""

    learning_rate: HyperParameter
    weight_decay: HyperParameter
    beta1: HyperParameter
    beta2: HyperParameter
    eps: HyperParameter
    max_weight_norm: HyperParameter


@dataclass(frozen=True)
class AdamRule(UpdateRule):
    """An optimiser of the Adam family for all weights of a graph."""

    form: AdamForm = AdamForm.ADAM
    l2: bool = False
    scaled_state: bool = False
    accl1_type: DType | None = FLOAT
    accl2_type: DType | None = FLOAT

    def kinds(self, weight: str, *, divisor: int) -> dict[str, HyperParameter]:
        """The scalars of a weight; betas as 1 - beta, which float32 represents with more digits."""
        v: AdamValues = self.values(weight)
        ls = self.loss_scaling
        state_scale = ls.value if self.scaled_state else 1.0
        follows = ls.constant or not self.scaled_state
        decay_scale = state_scale if self.l2 else 1.0
        return {
            "learningRate": v.learning_rate,
            "weightDecay": HyperParameter(
                v.weight_decay.value * decay_scale, v.weight_decay.constant and (follows or not self.l2)
            ),
            "adamBeta1Complement": HyperParameter(1 - v.beta1.value, v.beta1.constant),
            "adamBeta2Complement": HyperParameter(1 - v.beta2.value, v.beta2.constant),
            "adamEps": HyperParameter(v.eps.value * state_scale, v.eps.constant and follows),
            "maxWeightNorm": v.max_weight_norm,
            "adamGradientScaling": HyperParameter(
                state_scale / (ls.value * divisor), ls.constant or self.scaled_state
            ),
        }

    def states(self, weight: Tensor, data: NDArray[Any]) -> list[OptimizerState]:
        types = (self.accl1_type or weight.dtype, self.accl2_type or weight.dtype)
        moments = [
            OptimizerState(prefix + weight.id, dtype, zeros(data.shape, dtype))
            for prefix, dtype in zip((ACCL1, ACCL2), types, strict=True)
        ]
        return [*moments, OptimizerState(STEP + weight.id, FLOAT, np.zeros((), np.float32))]

    def op(self, weight: str) -> tuple[str, dict[str, Any]]:
        bias, maximum, norms = self.form.value
        return "AdamUpdate", {"bias": bias, "maximum": maximum, "norms": norms, "l2": self.l2}
