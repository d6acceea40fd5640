"""SGD and ConstSGD: stochastic gradient descent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ipu_emu.compiler.optimisers.sgd_rule import Mode, SgdRule, SgdValues
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
from ipu_emu.popart.types.enums import DataType, SGDAccumulatorAndMomentum

__all__ = ["SGD", "ConstSGD"]


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

    def momentums(self) -> OptimizerValueMap:
        """The momentum of each weight."""
        return self._values("momentum")

    def dampenings(self) -> OptimizerValueMap:
        """The dampening of each weight."""
        return self._values("dampening")

    def velocityScalings(self) -> OptimizerValueMap:
        """The velocity scaling of each weight."""
        return self._values("velocity_scaling")

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
