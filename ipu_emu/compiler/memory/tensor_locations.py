"""TensorLocations: which tensors are in Streaming Memory, and which variables are sharded between replicas.

A location is given by id, or else for all tensors of a kind. Tensors that are too small stay on the IPU, unsharded.
Variables that cannot be sharded stay whole too: those that differ between replicas, those that the host reads from
all replicas, and all variables if stochastic rounding depends on the position of an element. The values that the host
sees do not depend on where a tensor is kept.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType

from ipu_emu.compiler.memory.offloading import ActivationStorage
from ipu_emu.compiler.rewriting.reserved_prefixes import without_prefix
from ipu_emu.errors import EmulatorError
from ipu_emu.graph import Role, Tensor


class ShardingDomain(Enum):
    """The group of replicas between which a variable is sharded."""

    ALL = "All"
    CONSECUTIVE = "Consecutive"
    ORTHOGONAL = "Orthogonal"
    UNGROUPED = "Ungrouped"


@dataclass(frozen=True)
class StorageChoice:
    """``off_chip`` is in Streaming Memory; ``domain_size`` counts the replicas of a CONSECUTIVE ``domain``."""

    off_chip: bool = False
    sharded: bool = False
    domain: ShardingDomain = ShardingDomain.ALL
    domain_size: int = 0


@dataclass(frozen=True)
class LocationRule:
    """The location of tensors of one kind that have at least a number of elements."""

    location: StorageChoice = StorageChoice()
    smallest_off_chip: int = 2
    smallest_sharded: int = 8192


@dataclass(frozen=True)
class TensorLocations:
    """A rule for each kind of tensor, and locations ``by_id``, which take precedence.

    ``read_from_all`` names the weights whose value the host reads from every replica.
    """

    weights: LocationRule = LocationRule()
    states: LocationRule = LocationRule()
    accumulators: LocationRule = LocationRule()
    activations: LocationRule = LocationRule()
    by_id: Mapping[str, StorageChoice] = field(default_factory=lambda: MappingProxyType({}))
    read_from_all: frozenset[str] = frozenset()

    def is_off_chip(self, variable: Tensor) -> bool:
        """Whether ``variable``, or the accumulator of a gradient, is in Streaming Memory."""
        large = variable.unsharded.nelms >= self._rule(variable).smallest_off_chip
        return large and self._location(variable).off_chip

    def is_sharded(self, variable: Tensor) -> bool:
        """Whether ``variable`` is sharded between replicas: requested by the options, and possible."""
        if not self._location(variable).sharded or not variable.shape:
            return False
        alone = variable.group is not None and variable.group[1] == 1
        read = without_prefix(variable.id) in self.read_from_all
        return not alone and not read and variable.nelms >= self._rule(variable).smallest_sharded

    def sharding_group(self, variable: Tensor, replicas: int) -> tuple[int, int]:
        """The (stride, size) of the replicas that share ``variable`` in shards; raise EmulatorError if invalid."""
        location, group = self._location(variable), variable.group or (1, replicas)
        if location.domain is ShardingDomain.ALL:
            return group
        size = location.domain_size
        if location.domain is not ShardingDomain.CONSECUTIVE:
            raise EmulatorError(
                f"The sharding domain of {variable.id} is {location.domain.value}; only All and Consecutive are "
                "supported"
            )
        if size < 2 or group[1] % size or group[0] != 1:
            raise EmulatorError(
                f"The sharding domain of {variable.id} is {size} consecutive replicas; use a size of at least 2 that "
                f"divides the {group[1]} replicas that share the variable"
            )
        return 1, size

    def activation_storage(self) -> ActivationStorage:
        """Where activations are kept between the forward and the backward pass."""
        off_chip, smallest = self.activations.location.off_chip, self.activations.smallest_off_chip
        chosen = {id: location.off_chip for id, location in self.by_id.items()}
        return ActivationStorage(smallest if off_chip else None, chosen)

    def _location(self, variable: Tensor) -> StorageChoice:
        return self.by_id.get(variable.id, self._rule(variable).location)

    def _rule(self, variable: Tensor) -> LocationRule:
        rules = {Role.WEIGHT: self.weights, Role.STATE: self.states, Role.COMPUTED: self.accumulators}
        return rules[variable.role]
