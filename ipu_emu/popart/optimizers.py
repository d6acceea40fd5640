"""SGD and ConstSGD: what the user says of an optimiser, checked, and handed to the transform that applies it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ipu_emu.errors import EmulatorError
from ipu_emu.popart.enums import SGDAccumulatorAndMomentum
from ipu_emu.transforms.sgd import Hyper, Mode, Sgd, SgdValues

__all__ = ["SGD", "ConstSGD", "Optimizer", "OptimizerValue"]

#: A number, or (number, is it constant).
OptimizerValue = Any

#: Key of the constructor, default; the key of insertSpecific is the part after "default".
_KEYS: dict[str, float] = {
    "defaultLearningRate": 0.1,
    "defaultWeightDecay": 0.0,
    "defaultMomentum": 0.0,
    "defaultDampening": 0.0,
    "defaultVelocityScaling": 1.0,
    "lossScaling": 1.0,
    "nesterov": 0.0,
}
_SPECIFIC = ("learningRate", "weightDecay", "momentum", "dampening", "velocityScaling", "nesterov")


class Optimizer:
    """Base of optimisers."""

    plan: Sgd

    def type_s(self) -> str:
        """Name of the kind of optimiser."""
        return "SGD"

    def insertSpecific(self, weightId: str, values: Mapping[str, OptimizerValue]) -> None:
        raise EmulatorError(f"{type(self).__name__} has no values for single weights; use SGD")


class SGD(Optimizer):
    """``SGD(dict, clip_norm_settings=[], accumulatorAndMomentum=Combined, accumType, accl1Type)``."""

    def __init__(
        self,
        values: Mapping[str, OptimizerValue] | None = None,
        clip_norm_settings: Sequence[object] = (),
        accumulatorAndMomentum: SGDAccumulatorAndMomentum = SGDAccumulatorAndMomentum.Combined,
        accumType: object = None,
        accl1Type: object = None,
        **named: OptimizerValue,
    ) -> None:
        if clip_norm_settings:
            raise EmulatorError(
                "clip_norm_settings are not available in this version of the emulator; leave them out"
            )
        given = dict(values or {}) | named
        for key in given:
            if key not in _KEYS:
                raise EmulatorError(f"Invalid SGD key, {key}, the allowed keys are ( {', '.join(_KEYS)} )")
        filled = {key: _hyper(given.get(key, (default, True))) for key, default in _KEYS.items()}
        if filled["lossScaling"].value == 0:
            raise EmulatorError("Loss scaling cannot be 0")
        separate = accumulatorAndMomentum is SGDAccumulatorAndMomentum.Separate
        default = SgdValues(
            learning_rate=filled["defaultLearningRate"],
            weight_decay=filled["defaultWeightDecay"],
            momentum=filled["defaultMomentum"],
            dampening=filled["defaultDampening"],
            velocity_scaling=filled["defaultVelocityScaling"],
            nesterov=filled["nesterov"],
        )
        _check(default)
        self.plan = Sgd(default, filled["lossScaling"], Mode.SEPARATE if separate else Mode.COMBINED)

    def insertSpecific(self, weightId: str, values: Mapping[str, OptimizerValue]) -> None:
        """Give one weight values of its own; keys that are not given take the defaults in force now."""
        for key in values:
            if key not in _SPECIFIC:
                raise EmulatorError(
                    f"Invalid key {key} in SGD::insertSpecific. Permitted keys are ( {', '.join(_SPECIFIC)} )"
                )
        default = self.plan.default
        specific = SgdValues(
            learning_rate=_hyper(values.get("learningRate", default.learning_rate)),
            weight_decay=_hyper(values.get("weightDecay", default.weight_decay)),
            momentum=_hyper(values.get("momentum", default.momentum)),
            dampening=_hyper(values.get("dampening", default.dampening)),
            velocity_scaling=_hyper(values.get("velocityScaling", default.velocity_scaling)),
            nesterov=_hyper(values.get("nesterov", default.nesterov)),
        )
        _check(specific)
        self.plan = Sgd(
            default, self.plan.loss_scaling, self.plan.with_momentum, {**self.plan.specific, weightId: specific}
        )


class ConstSGD(SGD):
    """SGD with constant learning rate, weight decay and loss scaling, without momentum."""

    def __init__(
        self,
        learning_rate: float,
        weight_decay: float = 0.0,
        loss_scaling: float = 1.0,
        clip_norm_settings: Sequence[object] = (),
    ) -> None:
        values = {
            "defaultLearningRate": (learning_rate, True),
            "defaultWeightDecay": (weight_decay, True),
            "lossScaling": (loss_scaling, True),
        }
        super().__init__(values, clip_norm_settings)


def check_replacement(old: Optimizer, new: Optimizer) -> None:
    """Raise EmulatorError where ``new`` cannot take over from ``old`` in a compiled session."""
    if old.type_s() != new.type_s() or old.plan.with_momentum is not new.plan.with_momentum:
        names = [f"{o.type_s()}, {o.plan.with_momentum.name.capitalize()}" for o in (old, new)]
        raise EmulatorError(f"Can not replace optimizer of type {names[0]} with new optimizer of type {names[1]}")
    _same_kind("loss scaling", old.plan.loss_scaling, new.plan.loss_scaling)
    for name, field in _REPLACED.items():
        for weight in {*old.plan.specific, *new.plan.specific, ""}:
            _same_kind(name, getattr(old.plan.values(weight), field), getattr(new.plan.values(weight), field))


_REPLACED = {
    "learning rates": "learning_rate",
    "weight decays": "weight_decay",
    "momentums": "momentum",
    "dampenings": "dampening",
    "velocity scalings": "velocity_scaling",
    "nesterov": "nesterov",
}


def _same_kind(name: str, old: Hyper, new: Hyper) -> None:
    if old.constant != new.constant:
        raise EmulatorError(f"Problem with {name}. Can not replace a constant value with a non constant value.")
    if old.constant and old.value != new.value:
        raise EmulatorError(f"Problem with {name}. Values are constant but do not match.")


def _hyper(value: OptimizerValue) -> Hyper:
    if isinstance(value, Hyper):
        return value
    if isinstance(value, tuple | list):
        return Hyper(float(value[0]), bool(value[1]))
    return Hyper(float(value), True)


def _check(values: SgdValues) -> None:
    rate = values.learning_rate
    if rate.value < 0:
        raise EmulatorError(f"Negative learning rate ({rate.value:g}) in SGD, bailing as this might be a user error.")
    if rate.constant and rate.value == 0:
        raise EmulatorError("Constant, zero learning rate in SGD, bailing as this might be a user error.")
    for name, hyper in (
        ("weight decay", values.weight_decay),
        ("momentum", values.momentum),
        ("dampening", values.dampening),
    ):
        if hyper.value < 0:
            raise EmulatorError(f"Negative {name} ({hyper.value:g}) in SGD, bailing as this might be a user error")
    if values.velocity_scaling.value <= 0:
        raise EmulatorError(
            f"Non-positive velocity scaling ({values.velocity_scaling.value:g}) in SGD is not supported"
        )
    if values.nesterov.value and values.dampening.value:
        raise EmulatorError(
            f"When enable nesterov momentum, dampening ({values.dampening.value:g}) in SGD shouled be zero"
        )
