"""Optimiser: checks the values of an optimiser as users give them, and turns them into the compiler's rule."""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partialmethod
from typing import Any, ClassVar

from ipu_emu.compiler.optimisers.update_rule import Clip, HyperParameter
from ipu_emu.errors import ArgumentTypeError, EmulatorError
from ipu_emu.graph import DType, dtype_named
from ipu_emu.popart.types.enums import DataType
from popdist_py.messages.suggestion import did_you_mean

#: A number, (number, whether it is constant), or an OptimizerValue.
Value = Any


class OptimizerValue:
    """A number that is fixed when the model is compiled, or that the host may change between runs."""

    def __init__(self, val: float = 0.0, isConst: bool = True) -> None:
        self._hyper = HyperParameter(float(val), bool(isConst))

    def val(self) -> float:
        """The number."""
        return self._hyper.value

    def isConst(self) -> bool:
        """Whether the number is fixed when the model is compiled."""
        return self._hyper.constant

    def __repr__(self) -> str:
        return f"OptimizerValue({self.val()}, {self.isConst()})"


class OptimizerValueMap:
    """One value of an optimiser for all weights: the default, and those of specific weights."""

    def __init__(self, default: OptimizerValue, specific: Mapping[str, OptimizerValue]) -> None:
        self._default, self._specific = default, dict(specific)

    def getDefault(self) -> OptimizerValue:
        """The value for weights without a specific one."""
        return self._default

    def get(self, weightId: str) -> OptimizerValue:
        """The value of one weight."""
        return self._specific.get(weightId, self._default)

    def hasSpecific(self, weightId: str = "") -> bool:
        """Whether a weight (default: any) has a specific value."""
        return weightId in self._specific if weightId else bool(self._specific)


class ClipNormSettings:
    """Weights whose gradients are scaled together so that their L2 norm is at most ``maxNorm``; [] means all."""

    def __init__(self, weightIds: Sequence[str], maxNorm: float) -> None:
        warnings.warn(
            "The ClipNormSettings constructor has been deprecated and will be removed in a future release. Please "
            "use ClipNormSettings.clipWeights or ClipNormSettings.clipAllWeights instead.",
            DeprecationWarning,
            stacklevel=2,
        )
        self._set(weightIds, maxNorm)

    @classmethod
    def clipWeights(cls, weightIds: Sequence[str], maxNorm: float) -> ClipNormSettings:
        """These weights as one group."""
        settings = cls.__new__(cls)
        settings._set(weightIds, maxNorm)
        return settings

    @classmethod
    def clipAllWeights(cls, maxNorm: float) -> ClipNormSettings:
        """All weights of the model as one group."""
        return cls.clipWeights([], maxNorm)

    def _set(self, weightIds: Sequence[str], maxNorm: float) -> None:
        if maxNorm <= 0:
            raise EmulatorError(f"Maximum norm {maxNorm:g} is not positive; use a number above 0")
        self.weightIds = list(weightIds)
        self.maxNorm = float(maxNorm)

    def getWeightIds(self) -> list[str]:
        """Ids of the weights in the group; empty means all."""
        return self.weightIds

    def getMaxNorm(self) -> float:
        """The largest L2 norm that the gradients of the group may have."""
        return self.maxNorm

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ClipNormSettings) and vars(self) == vars(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"ClipNormSettings.clipWeights({self.weightIds}, {self.maxNorm:g})"


@dataclass(frozen=True)
class Parameter:
    """A value of an optimiser: its key in ``insertSpecific``, its default, and the name of its values in messages.

    A value with a name in the singular, ``not_negative``, must not be negative.
    """

    key: str
    default: float
    plural: str
    not_negative: str = ""

    @property
    def field(self) -> str:
        """The field of the rule's values: learning_rate of learningRate."""
        return re.sub("[A-Z]", lambda letter: f"_{letter[0].lower()}", self.key)

    @property
    def constructor_key(self) -> str:
        """The key of the default of all weights."""
        return self.key if self.key == "nesterov" else f"default{self.key[0].upper()}{self.key[1:]}"


def _values(optimiser: Optimizer, field: str) -> OptimizerValueMap:
    def value(values: Any) -> OptimizerValue:
        parameter: HyperParameter = getattr(values, field)
        return OptimizerValue(parameter.value, parameter.constant)

    specific = {weight: value(values) for weight, values in optimiser.plan.specific.items()}
    return OptimizerValueMap(value(optimiser.plan.default), specific)


def values_of(field: str) -> partialmethod[OptimizerValueMap]:
    """A method that returns the values of a field of the rule for each weight."""
    return partialmethod(_values, field)


class Optimizer:
    """Base of optimisers, driven by a table of parameters, which become the ``values_type`` of the rule.

    ``keys`` are those of the constructor, in the order of messages.
    """

    name: ClassVar[str]
    parameters: ClassVar[tuple[Parameter, ...]]
    keys: ClassVar[str]
    values_type: ClassVar[type[Any]]
    learningRates = values_of("learning_rate")
    weightDecays = values_of("weight_decay")
    plan: Any

    def type_s(self) -> str:
        """Name of the kind of optimiser."""
        return self.name

    def form(self) -> str:
        """The properties that two optimisers must share so that one can replace the other."""
        raise AssertionError("a kind of optimiser defines this")

    def insertSpecific(self, weightId: str, values: Mapping[str, Value]) -> None:
        """Set values for one weight; keys that are not given take the current defaults."""
        fields = {parameter.key: parameter.field for parameter in self.parameters}
        for key in values:
            if key not in fields:
                raise EmulatorError(
                    f"Invalid key {key} in {self.name}::insertSpecific. Permitted keys are ( {', '.join(fields)} )"
                )
        specific = replace(self.plan.default, **{fields[key]: hyper(value) for key, value in values.items()})
        self.check(specific)
        self.plan = replace(self.plan, specific={**self.plan.specific, weightId: specific})

    def hasSpecific(self, weightId: str = "") -> bool:
        """Whether a weight (default: any) has specific values."""
        return weightId in self.plan.specific if weightId else bool(self.plan.specific)

    def getLossScalingVal(self) -> float:
        """The loss scaling."""
        value: float = self.plan.loss_scaling.value
        return value

    @classmethod
    def read(cls, values: Mapping[str, Value]) -> tuple[Any, HyperParameter]:
        """(default values, loss scaling) of the constructor's dictionary, checked."""
        keys = cls.keys.split()
        for key in values:
            if key not in keys:
                allowed = f"the allowed keys are ( {', '.join(keys)} ){did_you_mean(key, keys)}"
                raise EmulatorError(f"Invalid {cls.name} key, {key}, {allowed}")
        loss_scaling = hyper(values.get("lossScaling", 1.0))
        if loss_scaling.value == 0:
            raise EmulatorError("Loss scaling cannot be 0")
        default = cls.values_type(
            **{row.field: hyper(values.get(row.constructor_key, row.default)) for row in cls.parameters}
        )
        cls.check(default)
        return default, loss_scaling

    @classmethod
    def check(cls, values: Any) -> None:
        """Raise EmulatorError for invalid values; subclasses add rules."""
        rate = values.learning_rate
        if rate.value < 0:
            raise EmulatorError(
                f"Negative learning rate ({rate.value:g}) in {cls.name}, bailing as this might be a user error."
            )
        if rate.constant and rate.value == 0:
            raise EmulatorError(f"Constant, zero learning rate in {cls.name}, bailing as this might be a user error.")
        for parameter in cls.parameters:
            value = getattr(values, parameter.field).value
            if parameter.not_negative and value < 0:
                raise EmulatorError(
                    f"Negative {parameter.not_negative} ({value:g}) in {cls.name}, bailing as this might be a user "
                    "error"
                )
        eps = getattr(values, "eps", None)
        if eps is not None and eps.value <= 0:
            raise EmulatorError(f"Non-positive eps ({eps.value:g}) in {cls.name} is not supported")


def hyper(value: Value) -> HyperParameter:
    """Convert a value given as a number, a pair or an OptimizerValue."""
    if isinstance(value, HyperParameter):
        return value
    if isinstance(value, OptimizerValue):
        return HyperParameter(value.val(), value.isConst())
    if isinstance(value, tuple | list):
        return HyperParameter(float(value[0]), bool(value[1]))
    return HyperParameter(float(value), True)


def clips_of(settings: Sequence[ClipNormSettings]) -> tuple[Clip, ...]:
    """Convert settings, which the user may have changed since they were checked, to those of the compiler."""
    checked = [ClipNormSettings.clipWeights(group.weightIds, group.maxNorm) for group in settings]
    return tuple(Clip(tuple(group.weightIds), group.maxNorm) for group in checked)


def state_type(state_dtype: DataType | str | None) -> DType | None:
    """Element type of a state; None (UNDEFINED) is that of the weight."""
    name = "UNDEFINED" if state_dtype is None else state_dtype if isinstance(state_dtype, str) else state_dtype.name
    if name.upper() == "UNDEFINED":
        return None
    dtype = dtype_named(name)
    if not dtype.is_float:
        raise EmulatorError(f"An optimiser state cannot be of type {name}; use FLOAT, FLOAT16 or UNDEFINED")
    return dtype


def checked_optimiser(optimiser: object) -> Optimizer:
    """Return ``optimiser``; raise ArgumentTypeError if it is not an optimiser."""
    if not isinstance(optimiser, Optimizer):
        raise ArgumentTypeError(f"Training needs an optimizer, found {optimiser!r}; give an SGD, Adam or Adaptive")
    return optimiser


def check_replacement(old: Optimizer, new: Optimizer) -> None:
    """Raise EmulatorError if ``new`` cannot replace ``old`` in a compiled session."""
    if old.type_s() != new.type_s():
        _different(old.type_s(), new.type_s())
    if old.form() != new.form():
        _different(f"{old.type_s()}, {old.form()}", f"{new.type_s()}, {new.form()}")
    if old.plan.clips != new.plan.clips:
        raise EmulatorError("Clip norm settings do not match.")
    _same_kind("loss scaling", old.plan.loss_scaling, new.plan.loss_scaling)
    other = old.plan.specific.keys() ^ new.plan.specific.keys()
    if other:
        raise EmulatorError(
            f"Problem with {old.parameters[0].plural}. Weights have specific values in one of the optimizers "
            f"only: {', '.join(sorted(other))}"
        )
    for parameter in old.parameters:
        for weight in {*old.plan.specific, *new.plan.specific, ""}:
            old_value, new_value = (
                getattr(optimiser.plan.values(weight), parameter.field) for optimiser in (old, new)
            )
            _same_kind(parameter.plural, old_value, new_value)


def _different(old: str, new: str) -> None:
    raise EmulatorError(f"Can not replace optimizer of type {old} with new optimizer of type {new}")


def _same_kind(name: str, old: HyperParameter, new: HyperParameter) -> None:
    if old.constant != new.constant:
        raise EmulatorError(f"Problem with {name}. Can not replace a constant value with a non constant value.")
    if old.constant and old.value != new.value:
        raise EmulatorError(f"Problem with {name}. Values are constant but do not match.")
