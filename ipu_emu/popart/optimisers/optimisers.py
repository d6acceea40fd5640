"""Optimisers: SGD, Adam and Adaptive with their variants, by mode, as PopART's users configure them."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from ipu_emu.compiler.optimisers.adam_rule import AdamForm, AdamRule, AdamValues
from ipu_emu.compiler.optimisers.adaptive_rule import AdaptiveForm, AdaptiveRule, AdaptiveValues
from ipu_emu.compiler.optimisers.sgd_rule import Mode, SgdRule, SgdValues
from ipu_emu.errors import EmulatorError
from ipu_emu.popart.optimisers.optimiser import (
    ClipNormSettings,
    Optimizer,
    Parameter,
    Value,
    clips_of,
    state_type,
    values_of,
)
from ipu_emu.popart.types.enums import AdamMode, AdaptiveMode, DataType, SGDAccumulatorAndMomentum, WeightDecayMode

_ADAM_FORMS = {
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
    beta1s = values_of("beta1")
    beta2s = values_of("beta2")
    epsilons = values_of("eps")
    maxWeightNorms = values_of("max_weight_norm")

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
            _ADAM_FORMS[mode],
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


def _renamed(values: dict[str, Value]) -> dict[str, Value]:
    """Accept the key maxWeightNorm, the old name of defaultMaxWeightNorm."""
    if "maxWeightNorm" not in values:
        return values
    if "defaultMaxWeightNorm" in values:
        raise EmulatorError("defaultMaxWeightNorm and its old name maxWeightNorm were given; give the first only")
    warnings.warn("The Adam key maxWeightNorm is now called defaultMaxWeightNorm", DeprecationWarning, stacklevel=4)
    values["defaultMaxWeightNorm"] = values.pop("maxWeightNorm")
    return values


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
    alphas = values_of("alpha")
    momentums = values_of("momentum")
    epsilons = values_of("eps")

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
            AdaptiveForm(int(mode)),
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


class SGD(Optimizer):
    """``SGD(dict, clip_norm_settings=[], accumulatorAndMomentum=Combined, accumType, accl1Type)``."""

    name = "SGD"
    parameters = (
        Parameter("learningRate", 0.1, "learning rates"),
        Parameter("weightDecay", 0.0, "weight decays", "weight decay"),
        Parameter("momentum", 0.0, "momentums", "momentum"),
        Parameter("dampening", 0.0, "dampenings", "dampening"),
        Parameter("velocityScaling", 1.0, "velocity scalings"),
        Parameter("nesterov", 0.0, "nesterov"),
    )
    keys = (
        "defaultLearningRate defaultWeightDecay defaultMomentum defaultDampening defaultVelocityScaling lossScaling "
        "nesterov"
    )
    values_type = SgdValues
    momentums = values_of("momentum")
    dampenings = values_of("dampening")
    velocityScalings = values_of("velocity_scaling")

    def __init__(
        self,
        values: Mapping[str, Value] | None = None,
        clip_norm_settings: Sequence[ClipNormSettings] = (),
        accumulatorAndMomentum: SGDAccumulatorAndMomentum = SGDAccumulatorAndMomentum.Combined,
        accumType: DataType = DataType.UNDEFINED,
        accl1Type: DataType = DataType.UNDEFINED,
        **named: Value,
    ) -> None:
        default, loss_scaling = self.read(dict(values or {}) | named)
        separate = accumulatorAndMomentum is SGDAccumulatorAndMomentum.Separate
        self.plan = SgdRule(
            default,
            loss_scaling,
            Mode.SEPARATE if separate else Mode.COMBINED,
            clips=clips_of(clip_norm_settings),
            accum_type=state_type(accumType),
            accl_type=state_type(accl1Type),
        )

    def form(self) -> str:
        """The properties that two SGD optimisers must share so that one can replace the other."""
        return str(self.plan.with_momentum.name.capitalize())

    @classmethod
    def check(cls, values: Any) -> None:
        """Raise EmulatorError for values that SGD does not allow."""
        super().check(values)
        if values.velocity_scaling.value <= 0:
            raise EmulatorError(
                f"Non-positive velocity scaling ({values.velocity_scaling.value:g}) in SGD is not supported"
            )
        if values.nesterov.value and values.dampening.value:
            raise EmulatorError(
                f"When enable nesterov momentum, dampening ({values.dampening.value:g}) in SGD shouled be zero"
            )


class ConstSGD(SGD):
    """SGD with constant learning rate, weight decay and loss scaling, without momentum."""

    def __init__(
        self,
        learning_rate: float,
        weight_decay: float = 0.0,
        loss_scaling: float = 1.0,
        clip_norm_settings: Sequence[ClipNormSettings] = (),
    ) -> None:
        values = {
            "defaultLearningRate": (learning_rate, True),
            "defaultWeightDecay": (weight_decay, True),
            "lossScaling": (loss_scaling, True),
        }
        super().__init__(values, clip_norm_settings)
