"""Optimiser table: the optimisers by name, each with its usual values, for commands and predictions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from ipu_emu.compiler.optimisers.adam_rule import AdamForm, AdamRule, AdamValues
from ipu_emu.compiler.optimisers.adaptive_rule import AdaptiveRule, AdaptiveValues
from ipu_emu.compiler.optimisers.lars_rule import LarsRule
from ipu_emu.compiler.optimisers.sgd_rule import SgdRule, SgdValues
from ipu_emu.compiler.optimisers.update_rule import HyperParameter, UpdateRule
from ipu_emu.graph import DType, Tensor
from ipu_emu.graph.dtype import FLOAT, FLOAT16

_ZERO, _ONE = HyperParameter(0.0), HyperParameter(1.0)
#: A learning rate that may change between steps; its value does not affect the compiler.
_RATE = HyperParameter(0.1, constant=False)
_ADAM = AdamValues(
    _RATE, _ZERO, HyperParameter(0.9), HyperParameter(0.999), HyperParameter(1e-6), HyperParameter(10.0)
)
_RMSPROP = AdaptiveValues(_RATE, _ZERO, HyperParameter(0.9), HyperParameter(0.9), HyperParameter(1e-3))
_MOMENTUM = SgdValues(_RATE, _ZERO, HyperParameter(0.9), _ZERO, _ONE, _ZERO)


@dataclass(frozen=True)
class Optimiser:
    """``rule`` with the usual values; the update of a trained value takes ``operations``."""

    rule: UpdateRule
    operations: int

    @cached_property
    def _states(self) -> list[DType]:
        """The element types of the states of a FLOAT16 weight, without those that count steps."""
        states = self.rule.states(Tensor("w", FLOAT16, (1,)), np.zeros(1, np.float16))
        return [state.dtype for state in states if state.first.shape]

    @property
    def states(self) -> int:
        """State values per trained value."""
        return len(self._states)

    @property
    def is_wide(self) -> bool:
        """Whether the states of weights of any type are in FLOAT; else they are in the type of the weights."""
        return FLOAT in self._states

    def state_itemsize(self, itemsize: int) -> int:
        """Bytes of a state value, for weights of ``itemsize`` bytes."""
        return FLOAT.itemsize if self.is_wide else itemsize


#: RMSProp has momentum, as for EfficientNet.
OPTIMISERS: Mapping[str, Optimiser] = {
    "sgd": Optimiser(SgdRule(replace(_MOMENTUM, momentum=_ZERO), _ONE), 3),
    "momentum": Optimiser(SgdRule(_MOMENTUM, _ONE), 7),
    "lars": Optimiser(LarsRule(_MOMENTUM, _ONE), 15),
    "rmsprop": Optimiser(AdaptiveRule(_RMSPROP, _ONE, accl3_type=FLOAT), 14),
    "adam": Optimiser(AdamRule(_ADAM, _ONE), 14),
    "adamw": Optimiser(AdamRule(replace(_ADAM, weight_decay=HyperParameter(0.01)), _ONE), 14),
    "lamb": Optimiser(AdamRule(_ADAM, _ONE, AdamForm.LAMB), 14),
}
