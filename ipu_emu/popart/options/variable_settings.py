"""VariableSettings: which replicas share a variable, and how many of its values the host reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from numbers import Integral
from operator import index
from typing import Any

from gcl import Group
from ipu_emu.errors import ArgumentTypeError, EmulatorError, InternalError
from ipu_emu.onnx.properties import GroupKind, VariableGroups
from ipu_emu.popart.types.enums import VariableRetrievalMode
from ipu_emu.session.options.option_enums import CommGroupType
from ipu_emu.session.options.tensor_location import CommGroup

_FORMS = (
    ("sharedVariableDomain_", "retrievalMode_"),
    ("retrievalMode_",),
    ("stride", "groupSize", "mode"),
)
_KINDS = {
    "sharedVariableDomain_": CommGroup,
    "retrievalMode_": VariableRetrievalMode,
    "stride": Integral,
    "groupSize": Integral,
    "mode": VariableRetrievalMode,
}


class VariableSettings:
    """``()``, ``(CommGroup)``, ``(mode)``, ``(CommGroup, mode)`` or ``(stride, groupSize, mode)``.

    With more than one group the initial data has a leading axis, one entry for each group.
    """

    def __init__(self, *values: Any, **named: Any) -> None:
        arguments = _bound(values, named)
        self._domain: CommGroup = arguments.get("sharedVariableDomain_", CommGroup())
        default_mode = VariableRetrievalMode.OnePerGroup
        self._mode: VariableRetrievalMode = arguments.get("retrievalMode_", arguments.get("mode", default_mode))
        self._stride: int | None = None
        if "stride" in arguments:
            size = index(arguments["groupSize"])
            self._stride = 1 if size == 1 else index(arguments["stride"])
            self._domain = CommGroup(CommGroupType.Consecutive, size)
        self.verify()

    def verify(self) -> None:
        """Raise InternalError for groups without members, EmulatorError for settings that are not supported."""
        divided = self._stride is not None or self._domain.type in (
            CommGroupType.Consecutive,
            CommGroupType.Orthogonal,
        )
        faults = (divided and self.getGroupSize() < 1) + (self._stride is not None and self._stride < 1)
        if faults:
            raise InternalError(f"VariableSettings had {faults} errors!")
        if self._mode is VariableRetrievalMode.AllReduceReplicas:
            raise EmulatorError("VariableRetrievalMode::AllReduceReplicas is not supported; use OnePerGroup")

    def getSharedVariableDomain(self) -> CommGroup:
        """The group of replicas that share the variable; raise InternalError if it was given as stride and size."""
        if not self.isUsingCommGroup():
            raise InternalError(
                f"{self!r} has no CommGroup, as it was made from a stride and a group size; use getStride() and "
                "getGroupSize()"
            )
        return self._domain

    def getCommGroupType(self) -> CommGroupType:
        """The type of the CommGroup; meaningless if the groups were given as stride and size."""
        return self._domain.type if self.isUsingCommGroup() else CommGroupType.All

    def getRetrievalMode(self) -> VariableRetrievalMode:
        """Which values of the variable the host reads."""
        return self._mode

    def isUsingCommGroup(self) -> bool:
        """Whether the groups were given as a CommGroup."""
        return self._stride is None

    def getStride(self) -> int:
        """Distance between the replicas of a group as given, 0 for a CommGroup."""
        return self._stride or 0

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
        everyone = self.isUsingCommGroup() and self._domain.type is CommGroupType.All
        return replicaCount if everyone else self.getReplicaGrouping(replicaCount).size

    def getGroupRepresentative(self, group: int) -> int:
        """The first replica of a group."""
        size = self.getGroupSize()
        if self._stride is not None:
            return group // self._stride * self._stride * size + group % self._stride
        kind = self._domain.type
        return 0 if kind is CommGroupType.All else group * size if kind is CommGroupType.Consecutive else group

    def groups(self, replicaCount: int) -> list[list[int]]:
        """The replicas of each group among ``replicaCount`` replicas."""
        among = self.getReplicaGrouping(replicaCount)
        return [list(among.members(group)) for group in range(among.count)]

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
        per_group = self._mode is VariableRetrievalMode.OnePerGroup
        return per_group and self._stride is None and self._domain.type is CommGroupType.All

    def __repr__(self) -> str:
        where = repr(self._domain) if self._stride is None else f"{self._stride}, {self.getGroupSize()}"
        return f"VariableSettings({where}, {self._mode.name})"


def _bound(values: Sequence[Any], named: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of the first form of the constructor that they fit, by name."""
    for names in _FORMS:
        arguments: dict[str, Any] = {**dict(zip(names, values, strict=False)), **named}
        complete = "stride" not in names or len(arguments) == len(names)
        fits = len(arguments) == len(values) + len(named) and set(arguments) <= set(names) and complete
        if fits and all(isinstance(value, _KINDS[name]) for name, value in arguments.items()):
            return arguments
    shown = ", ".join([*map(repr, values), *(f"{name}={value!r}" for name, value in named.items())])
    raise ArgumentTypeError(
        "VariableSettings(): incompatible constructor arguments. The following argument types are supported:\n"
        "    1. VariableSettings()\n"
        "    2. VariableSettings(sharedVariableDomain_: CommGroup)\n"
        "    3. VariableSettings(retrievalMode_: VariableRetrievalMode)\n"
        "    4. VariableSettings(sharedVariableDomain_: CommGroup, retrievalMode_: VariableRetrievalMode)\n"
        "    5. VariableSettings(stride: int, groupSize: int, mode: VariableRetrievalMode)\n\n"
        f"Invoked with: {shown}"
    )
