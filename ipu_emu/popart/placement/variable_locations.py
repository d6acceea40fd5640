"""Locations: where each variable of a training step is kept, as the tensor location settings say.

By id (``tensorLocationSettingsOverride``), or else by kind. What is too small stays on chip and whole, and so does
what sharding cannot divide: a variable that every replica has for itself, or that the host wants of all replicas, and
any variable where updates are rounded by random numbers that go by the place of an element.
Values that the host sees are the same wherever a tensor is kept.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping

from ipu_emu.compiler.memory.offloading import ActivationStorage
from ipu_emu.errors import EmulatorError
from ipu_emu.graph import Role, Tensor
from ipu_emu.popart.options.session_options import SessionOptions
from ipu_emu.popart.options.tensor_location import TensorLocation, TensorLocationSettings
from ipu_emu.popart.options.variable_settings import VariableSettings
from ipu_emu.popart.types.enums import CommGroupType, ReplicatedTensorSharding, TensorStorage, VariableRetrievalMode
from ipu_emu.popart.types.prefix_functions import without_prefix

__all__ = ["Locations"]

_KINDS = {
    Role.WEIGHT: "weightTensorLocationSettings",
    Role.STATE: "optimizerStateTensorLocationSettings",
    Role.COMPUTED: "accumulatorTensorLocationSettings",
}


class Locations:
    """``settings`` are those of the model's variables, ``anchors`` the ids that the host reads on every replica."""

    def __init__(
        self, options: SessionOptions, settings: Mapping[str, VariableSettings], anchors: Iterable[str]
    ) -> None:
        self._options, self._settings, self._anchors = options, settings, set(anchors)
        self._told = False
        self._replicas = options.getGlobalReplicationFactor()
        self._overrides: Mapping[str, TensorLocation] = options.tensorLocationSettingsOverride
        accumulators = options.accumulatorTensorLocationSettings.location
        if accumulators.replicatedTensorSharding is ReplicatedTensorSharding.On and self._replicas > 1:
            warnings.warn(
                "Accumulators of gradients stay whole: replicas would have to reduce them after every micro-batch, "
                "which adds in another order and so changes bits",
                stacklevel=2,
            )

    def divide(self, variable: Tensor) -> tuple[int, int] | None:
        """The (stride, size) of the replicas between which ``variable`` is divided, None where it stays whole."""
        location, kind = self._location(variable), self._kind(variable)
        if location.replicatedTensorSharding is not ReplicatedTensorSharding.On or not self._is_divisible(variable):
            return None
        if variable.nelms < kind.minElementsForReplicatedTensorSharding:
            return None
        if self._replicas == 1:
            self._tell_that_there_is_one()
            return None
        return self._domain(variable, location)

    def is_off_chip(self, variable: Tensor) -> bool:
        """Say whether ``variable`` lives in Streaming Memory."""
        large = variable.whole.nelms >= self._kind(variable).minElementsForOffChip
        return large and self._location(variable).storage is TensorStorage.OffChip

    def activations(self) -> ActivationStorage:
        """Where what the backward pass needs is kept until then."""
        kind = self._options.activationTensorLocationSettings
        off_chip = kind.location.storage is TensorStorage.OffChip
        chosen = {id: location.storage is TensorStorage.OffChip for id, location in self._overrides.items()}
        return ActivationStorage(int(kind.minElementsForOffChip) if off_chip else None, chosen)

    def _tell_that_there_is_one(self) -> None:
        if not self._told:
            warnings.warn("Replicated tensor sharding has no effect: there is one replica", stacklevel=2)
        self._told = True

    def _location(self, variable: Tensor) -> TensorLocation:
        return self._overrides.get(variable.id, self._kind(variable).location)

    def _kind(self, variable: Tensor) -> TensorLocationSettings:
        settings: TensorLocationSettings = getattr(self._options, _KINDS[variable.role])
        return settings

    def _is_divisible(self, variable: Tensor) -> bool:
        weight = self._settings.get(without_prefix(variable.id))
        of_all = weight is not None and weight.getRetrievalMode() is VariableRetrievalMode.AllReplicas
        alone = variable.group is not None and variable.group[1] == 1
        drawn = bool(self._options.enableStochasticRounding)
        return not (of_all or alone or drawn or variable.id in self._anchors or not variable.shape)

    def _domain(self, variable: Tensor, location: TensorLocation) -> tuple[int, int]:
        group, whole = location.shardingDomain, variable.group or (1, self._replicas)
        if group.type is CommGroupType.All:
            return whole
        size = int(group.replicaGroupSize)
        if group.type is not CommGroupType.Consecutive:
            raise EmulatorError(
                f"The sharding domain of {variable.id} is {group.type.name}; only All and Consecutive are supported"
            )
        if size < 2 or whole[1] % size or whole[0] != 1:
            raise EmulatorError(
                f"The sharding domain of {variable.id} is {size} consecutive replicas; use a size of at least 2 that "
                f"divides the {whole[1]} replicas that share the variable"
            )
        return 1, size
