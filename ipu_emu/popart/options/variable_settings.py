"""VariableSettings: which replicas share a variable, and how many of its values the host reads."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Integral
from operator import index
from typing import Any

from gcl import Group
from ipu_emu.compiler.model_properties import GroupKind, VariableGroups
from ipu_emu.errors import EmulatorError
from ipu_emu.popart.options.input_settings import one_of_kind
from ipu_emu.popart.options.tensor_location import CommGroup
from ipu_emu.popart.types.enums import CommGroupType, VariableRetrievalMode

__all__ = ["VariableSettings"]

_NAMES = ("stride", "groupSize", "sharedVariableDomain", "retrievalMode")


class VariableSettings:
    """``()``, ``(CommGroup)``, ``(mode)``, ``(CommGroup, mode)`` or ``(stride, groupSize[, mode])``.

    With more than one group the initial data has a leading axis, one entry for each group.
    """

    def __init__(self, *values: Any, **named: Any) -> None:
        unknown = sorted(set(named) - set(_NAMES))
        if unknown:
            raise TypeError(f"VariableSettings() has no parameter {unknown[0]!r}; it has {', '.join(_NAMES)}")
        given = [*values, *(named[name] for name in _NAMES if name in named)]
        self._domain: CommGroup = one_of_kind(given, CommGroup, CommGroup())
        self._mode = one_of_kind(given, VariableRetrievalMode, VariableRetrievalMode.OnePerGroup)
        self._stride: int | None = None
        numbers = [index(value) for value in given if isinstance(value, Integral)]
        if len(numbers) == 2:
            self._stride, self._domain = numbers[0], CommGroup(CommGroupType.Consecutive, numbers[1])
        elif numbers:
            raise EmulatorError(
                f"VariableSettings({numbers[0]}) has one number; give a stride and a group size, or a CommGroup"
            )
        self.verify()

    def verify(self) -> None:
        """Raise EmulatorError for settings that are not supported."""
        if self._mode is VariableRetrievalMode.AllReduceReplicas:
            raise EmulatorError("VariableRetrievalMode::AllReduceReplicas is not supported; use OnePerGroup")

    def getSharedVariableDomain(self) -> CommGroup:
        """The group of replicas that share the variable."""
        return self._domain

    def getRetrievalMode(self) -> VariableRetrievalMode:
        """What the host reads of the variable."""
        return self._mode

    def isUsingCommGroup(self) -> bool:
        """Whether the groups were given as a CommGroup."""
        return self._stride is None

    def getStride(self) -> int:
        """Distance between the replicas of a group."""
        return 1 if self._stride is None else self._stride

    def getGroupSize(self) -> int:
        """Replicas in a group, as given."""
        return int(self._domain.replicaGroupSize)

    def getReplicaGrouping(self, numReplicas: int) -> Group:
        """The division of ``numReplicas`` replicas: (stride, size)."""
        return self._groups.among(numReplicas)

    @property
    def _groups(self) -> VariableGroups:
        everything = self._mode is VariableRetrievalMode.AllReplicas
        return VariableGroups(GroupKind(int(self._domain.type)), self.getGroupSize(), self._stride, everything)

    def getGroupCount(self, replicaCount: int) -> int:
        """Number of groups among ``replicaCount`` replicas."""
        return self.getReplicaGrouping(replicaCount).count

    def getRealGroupSize(self, replicaCount: int) -> int:
        """Replicas in a group among ``replicaCount`` replicas."""
        return self.getReplicaGrouping(replicaCount).size

    def getGroupRepresentative(self, group: int, replicaCount: int = 0) -> int:
        """The first replica of a group; PopART allows this for a stride of 1 only."""
        return (
            self.getReplicaGrouping(replicaCount).members(group)[0] if replicaCount else group * self.getGroupSize()
        )

    def numReplicasReturningVariable(self, replicaCount: int) -> int:
        """The number of values of the variable that ``readWeights`` returns."""
        return replicaCount if self._mode is VariableRetrievalMode.AllReplicas else self.getGroupCount(replicaCount)

    def shapeOnReplica(self, fullShape: Sequence[int], replicaCount: int, name: str) -> list[int]:
        """The shape of initial data without the axis of groups."""
        return self._groups.shape_on_replica(fullShape, replicaCount, name)

    def shapeOnHost(self, replicaShape: Sequence[int], replicaCount: int) -> list[int]:
        """The shape of the array that ``readWeights`` fills."""
        count = self.numReplicasReturningVariable(replicaCount)
        return [*([count] if count > 1 else []), *replicaShape]

    def metadata(self, id: str) -> dict[str, str]:
        """The metadata of the variable ``id`` in a model."""
        return self._groups.properties(id, int(self._mode))

    @property
    def is_default(self) -> bool:
        """Whether all replicas share the variable and the host reads one value."""
        one = self._mode is VariableRetrievalMode.OnePerGroup
        return one and self._stride is None and self._domain.type is CommGroupType.All

    def __repr__(self) -> str:
        where = repr(self._domain) if self._stride is None else f"{self._stride}, {self.getGroupSize()}"
        return f"VariableSettings({where}, {self._mode.name})"
