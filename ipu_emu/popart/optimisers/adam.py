"""Adam: the optimisers Adam, AdamNoBias, AdaMax, Lamb and LambNoBias, by mode."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence

from ipu_emu.compiler.optimisers.adam_rule import AdamForm, AdamRule, AdamValues
from ipu_emu.errors import EmulatorError
from ipu_emu.popart.optimisers.optimizer import (
    ClipNormSettings,
    Optimizer,
    OptimizerValueMap,
    Parameter,
    Value,
    clips_of,
    state_type,
)
from ipu_emu.popart.types.enums import AdamMode, DataType, WeightDecayMode

__all__ = ["Adam"]

_FORMS = {
    AdamMode.Adam: AdamForm.ADAM,
    AdamMode.AdamNoBias: AdamForm.ADAM_NO_BIAS,
    AdamMode.AdaMax: AdamForm.ADA_MAX,
    AdamMode.Lamb: AdamForm.LAMB,
    AdamMode.LambNoBias: AdamForm.LAMB_NO_BIAS,
}


class Adam(Optimizer):
    """``Adam(dict, mode=Adam, weight_decay_mode=Decay, accum_type, accl1_type=FLOAT, accl2_type=FLOAT, ...)``."""

    name = "Adam"
    parameters = (
        Parameter("learningRate", 0.1, "learning rates"),
        Parameter("weightDecay", 0.0, "weight decays", "weight decay"),
        Parameter("beta1", 0.9, "beta1", "beta1"),
        Parameter("beta2", 0.999, "beta2", "beta2"),
        Parameter("eps", 1e-6, "eps"),
        Parameter("maxWeightNorm", 10.0, "max weight norm"),
    )
    keys = (
        "defaultLearningRate defaultWeightDecay defaultBeta1 defaultBeta2 defaultEps lossScaling defaultMaxWeightNorm"
    )
    values_type = AdamValues

    def __init__(
        self,
        values: Mapping[str, Value] | None = None,
        mode: AdamMode = AdamMode.Adam,
        weight_decay_mode: WeightDecayMode = WeightDecayMode.Decay,
        accum_type: DataType = DataType.UNDEFINED,
        accl1_type: DataType = DataType.FLOAT,
        accl2_type: DataType = DataType.FLOAT,
        clip_norm_settings: Sequence[ClipNormSettings] = (),
        scaled_optimizer_state: bool = False,
    ) -> None:
        default, loss_scaling = self.read(_renamed(dict(values or {})))
        self.mode, self.weight_decay_mode = mode, weight_decay_mode
        self.plan = AdamRule(
            default,
            loss_scaling,
            _FORMS[mode],
            l2=weight_decay_mode is WeightDecayMode.L2Regularization,
            scaled_state=bool(scaled_optimizer_state),
            clips=clips_of(clip_norm_settings),
            accum_type=state_type(accum_type),
            accl1_type=state_type(accl1_type),
            accl2_type=state_type(accl2_type),
        )

    def form(self) -> str:
        """The properties that two Adam optimisers must share so that one can replace the other."""
        return f"{self.mode.name}, {self.weight_decay_mode.name}"

    def beta1s(self) -> OptimizerValueMap:
        """Decay rate of the first moment for each weight."""
        return self._values("beta1")

    def beta2s(self) -> OptimizerValueMap:
        """Decay rate of the second moment for each weight."""
        return self._values("beta2")

    def epsilons(self) -> OptimizerValueMap:
        """The epsilon of each weight."""
        return self._values("eps")

    def maxWeightNorms(self) -> OptimizerValueMap:
        """The largest weight norm that LAMB uses, for each weight."""
        return self._values("max_weight_norm")


def _renamed(values: dict[str, Value]) -> dict[str, Value]:
    """Accept the key maxWeightNorm, the old name of defaultMaxWeightNorm."""
    if "maxWeightNorm" not in values:
        return values
    if "defaultMaxWeightNorm" in values:
        raise EmulatorError("defaultMaxWeightNorm and its old name maxWeightNorm were given; give the first only")
    warnings.warn("The Adam key maxWeightNorm is now called defaultMaxWeightNorm", DeprecationWarning, stacklevel=4)
    values["defaultMaxWeightNorm"] = values.pop("maxWeightNorm")
    return values
