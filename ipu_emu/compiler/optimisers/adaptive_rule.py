"""Adaptive rule: AdaGrad, RMSProp, CenteredRMSProp and AdaDelta as one update op.

Source: PopART 3.4, ``willow/include/popart/adaptive.hpp``. With g the gradient, s = g (L2Regularization: g + wd w):

    AdaGrad       v1 = v1 + s^2                                x = s / (sqrt(v1) + eps)
    RMSProp       v1 = a v1 + (1 - a) s^2                      x = s / (sqrt(v1) + eps)
    Centered      and v2 = a v2 + (1 - a) s                    x = s / (sqrt(v1 - v2^2) + eps)
    AdaDelta      as RMSProp, and v2 = a v2 + (1 - a) x^2      x = s sqrt(v2 + eps) / sqrt(v1 + eps), old v2

    TensorFlow's variant of RMSProp adds eps under the root, and v1 starts at ones; all other states start at zeros.
    v3 = m v3 + x (m constant 0: x)     Decay: w = w - lr (wd w + v3), else w = w - lr v3
    TensorFlow's variant, unless m is constant 0: v3 = m v3 + lr x, w = w - v3 (Decay: w - (wd w + v3))

    The form is fixed when the graph is compiled: a variable m may become 0, and v3 must keep its unit.

States are Accl1___w (v1), Accl2___w (v2, where there is one) and Accl3___w (v3, unless m is constant 0).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any

from numpy.typing import NDArray

from ipu_emu.compiler.optimisers.update_rule import HyperParameter, OptimizerState, UpdateRule, ones, zeros
from ipu_emu.compiler.rewriting.reserved_prefixes import ACCL1, ACCL2, ACCL3
from ipu_emu.graph import DType, Tensor
from ipu_emu.graph.dtype import FLOAT


class AdaptiveForm(Enum):
    """The variants of the kernel, numbered as PopART's AdaptiveMode."""

    ADA_GRAD = 0
    RMS_PROP = 1
    CENTERED_RMS_PROP = 2
    ADA_DELTA = 3


@dataclass(frozen=True)
class AdaptiveValues:
    """The values that apply to one weight."""

    learning_rate: HyperParameter
    weight_decay: HyperParameter
    alpha: HyperParameter
    momentum: HyperParameter
    eps: HyperParameter


@dataclass(frozen=True)
class AdaptiveRule(UpdateRule):
    """An optimiser of the adaptive family for all weights of a graph."""

    form: AdaptiveForm = AdaptiveForm.RMS_PROP
    l2: bool = False
    tf_variant: bool = False
    accl1_type: DType | None = FLOAT
    accl2_type: DType | None = FLOAT
    accl3_type: DType | None = None

    def kinds(self, weight: str, *, divisor: int) -> dict[str, HyperParameter]:
        v: AdaptiveValues = self.values(weight)
        ls = self.loss_scaling
        return {
            "learningRate": v.learning_rate,
            "weightDecay": v.weight_decay,
            "adaptiveAlphaComplement": HyperParameter(1 - v.alpha.value, v.alpha.constant),
            "adaptiveMomentum": v.momentum,
            "adaptiveEps": v.eps,
            "adaptiveGradientScaling": HyperParameter(1 / (ls.value * divisor), ls.constant),
        }

    def states(self, weight: Tensor, data: NDArray[Any]) -> list[OptimizerState]:
        second, third = self._has_states(weight.id)
        first = ones if self.tf_variant else zeros
        kinds = [
            (ACCL1, self.accl1_type, first),
            *[(ACCL2, self.accl2_type, zeros)] * second,
            *[(ACCL3, self.accl3_type, zeros)] * third,
        ]
        return [
            OptimizerState(prefix + weight.id, dtype or weight.dtype, start(data.shape, dtype or weight.dtype))
            for prefix, dtype, start in kinds
        ]

    def _has_states(self, weight: str) -> tuple[bool, bool]:
        second = self.form in (AdaptiveForm.CENTERED_RMS_PROP, AdaptiveForm.ADA_DELTA)
        return second, self.values(weight).momentum != HyperParameter(0.0)

    def op(self, weight: str) -> tuple[str, dict[str, Any]]:
        second, third = self._has_states(weight)
        return "AdaptiveUpdate", {
            "form": self.form.value,
            "second": second,
            "third": third,
            "l2": self.l2,
            "tf_variant": self.tf_variant,
        }
