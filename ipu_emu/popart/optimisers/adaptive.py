"""Adaptive: the optimisers AdaGrad, RMSProp, CenteredRMSProp and AdaDelta, by mode."""

from __future__ import annotations

from collections.abc import Mapping

from ipu_emu.compiler.optimisers.adaptive_rule import AdaptiveForm, AdaptiveRule, AdaptiveValues
from ipu_emu.errors import EmulatorError
from ipu_emu.popart.optimisers.optimizer import Optimizer, OptimizerValueMap, Parameter, Value, state_type
from ipu_emu.popart.types.enums import AdaptiveMode, DataType, WeightDecayMode

__all__ = ["Adaptive"]

_FORMS = {
    AdaptiveMode.AdaGrad: AdaptiveForm.ADA_GRAD,
    AdaptiveMode.RMSProp: AdaptiveForm.RMS_PROP,
    AdaptiveMode.CenteredRMSProp: AdaptiveForm.CENTERED_RMS_PROP,
    AdaptiveMode.AdaDelta: AdaptiveForm.ADA_DELTA,
}
_WITH_VARIANT = (AdaptiveMode.RMSProp, AdaptiveMode.CenteredRMSProp)


class Adaptive(Optimizer):
    """``Adaptive(dict, mode=RMSProp, weight_decay_mode=Decay, accum_type, accl1_type, ..., rmsprop_tf_variant)``."""

    name = "Adaptive"
    parameters = (
        Parameter("learningRate", 0.01, "learning rates"),
        Parameter("weightDecay", 0.0, "weight decays", "weight decay"),
        Parameter("alpha", 0.99, "alphas", "alpha"),
        Parameter("momentum", 0.0, "momentums", "momentum"),
        Parameter("eps", 1e-6, "eps"),
    )
    keys = "defaultLearningRate defaultAlpha defaultMomentum defaultEps lossScaling defaultWeightDecay"
    values_type = AdaptiveValues

    def __init__(
        self,
        values: Mapping[str, Value] | None = None,
        mode: AdaptiveMode = AdaptiveMode.RMSProp,
        weight_decay_mode: WeightDecayMode = WeightDecayMode.Decay,
        accum_type: DataType = DataType.UNDEFINED,
        accl1_type: DataType = DataType.FLOAT,
        accl2_type: DataType = DataType.FLOAT,
        accl3_type: DataType = DataType.UNDEFINED,
        rmsprop_tf_variant: bool = False,
    ) -> None:
        if rmsprop_tf_variant and mode not in _WITH_VARIANT:
            raise EmulatorError(
                "The rmspropTFVariant parameter is only valid with the RMSProp and CenteredRMSProp optimizers."
            )
        default, loss_scaling = self.read(values or {})
        self.mode, self.weight_decay_mode, self.tf_variant = mode, weight_decay_mode, bool(rmsprop_tf_variant)
        self.plan = AdaptiveRule(
            default,
            loss_scaling,
            _FORMS[mode],
            l2=weight_decay_mode is WeightDecayMode.L2Regularization,
            tf_variant=self.tf_variant,
            accum_type=state_type(accum_type),
            accl1_type=state_type(accl1_type),
            accl2_type=state_type(accl2_type),
            accl3_type=state_type(accl3_type),
        )

    def form(self) -> str:
        """The properties that two adaptive optimisers must share so that one can replace the other."""
        variant = ", TensorFlow's variant" if self.tf_variant else ""
        return f"{self.mode.name}, {self.weight_decay_mode.name}{variant}"

    def alphas(self) -> OptimizerValueMap:
        """Decay rate of the squared gradients for each weight."""
        return self._values("alpha")

    def momentums(self) -> OptimizerValueMap:
        """The momentum of each weight."""
        return self._values("momentum")

    def epsilons(self) -> OptimizerValueMap:
        """The epsilon of each weight."""
        return self._values("eps")
