"""VariableSettings: which replicas share a variable, and how many values of it come back to the host."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from numbers import Integral
from operator import index
from typing import Any

import onnx

from gcl import ArgumentError, Group
from ipu_emu.errors import EmulatorError
from ipu_emu.graph.onnx_model import metadata_of
from ipu_emu.popart.options.input_settings import one_of_kind
from ipu_emu.popart.options.tensor_location import CommGroup
from ipu_emu.popart.types.enums import CommGroupType, VariableRetrievalMode

__all__ = ["REPLICATION", "VariableSettings", "check_leading_axes", "grouped", "read_from_all", "settings_of"]

#: Keys of a model's metadata; a tensor id follows all but the last.
_TYPE, _SIZE, _STRIDE = "__comm_group_type/", "__comm_group_size/", "__comm_group_stride/"
_MODE = "__variable_settings/"
REPLICATION = "__replicationFactor"

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
        """Raise EmulatorError for settings that no session can honour."""
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
        size, kind = self.getGroupSize(), self._domain.type
        try:
            if self._stride is not None:
                return Group(numReplicas, 1 if size == 1 else self._stride, size)
            if kind is CommGroupType.Consecutive:
                return Group.consecutive(numReplicas, size)
            if kind is CommGroupType.Orthogonal:
                return Group.orthogonal(numReplicas, size)
            return Group.all(numReplicas) if kind is CommGroupType.All else Group.none(numReplicas)
        except ArgumentError as error:
            raise EmulatorError(f"Variable settings do not fit the replicas: {error}") from None

    def getGroupCount(self, replicaCount: int) -> int:
        """Number of groups among ``replicaCount`` replicas."""
        return self.getReplicaGrouping(replicaCount).count

    def getRealGroupSize(self, replicaCount: int) -> int:
        """Replicas in a group among ``replicaCount`` replicas."""
        return self.getReplicaGrouping(replicaCount).size

    def getGroupRepresentative(self, group: int, replicaCount: int = 0) -> int:
        """The first replica of a group; PopART asks it of a stride of 1 only."""
        return (
            self.getReplicaGrouping(replicaCount).members(group)[0] if replicaCount else group * self.getGroupSize()
        )

    def numReplicasReturningVariable(self, replicaCount: int) -> int:
        """How many values of the variable ``readWeights`` gives."""
        return replicaCount if self._mode is VariableRetrievalMode.AllReplicas else self.getGroupCount(replicaCount)

    def shapeOnReplica(self, fullShape: Sequence[int], replicaCount: int, name: str) -> list[int]:
        """The shape of initial data without the axis of groups."""
        count = self.getGroupCount(replicaCount)
        if count == 1:
            return list(fullShape)
        if not fullShape or fullShape[0] != count:
            outer = fullShape[0] if fullShape else 1
            raise EmulatorError(
                f'Return mismatch with possibly appended outer dimension ({outer}) of Tensor: "{name}". should match '
                f"numGroups: {count}"
            )
        return list(fullShape[1:])

    def shapeOnHost(self, replicaShape: Sequence[int], replicaCount: int) -> list[int]:
        """The shape of the array that ``readWeights`` fills."""
        count = self.numReplicasReturningVariable(replicaCount)
        return [*([count] if count > 1 else []), *replicaShape]

    def metadata(self, id: str) -> dict[str, str]:
        """What a model says of the variable ``id``."""
        found = {_TYPE: int(self._domain.type), _SIZE: self.getGroupSize(), _MODE: int(self._mode)}
        if self._stride is not None:
            found[_STRIDE] = self._stride
        return {key + id: str(value) for key, value in found.items()}

    @property
    def is_default(self) -> bool:
        """Whether all replicas share the variable and the host reads one value."""
        one = self._mode is VariableRetrievalMode.OnePerGroup
        return one and self._stride is None and self._domain.type is CommGroupType.All

    def __repr__(self) -> str:
        where = repr(self._domain) if self._stride is None else f"{self._stride}, {self.getGroupSize()}"
        return f"VariableSettings({where}, {self._mode.name})"


def settings_of(metadata: Mapping[str, str]) -> dict[str, VariableSettings]:
    """The settings of a model's variables by id, those that are not the default."""
    found = {}
    for key, value in metadata.items():
        if not key.startswith(_TYPE):
            continue
        id = key.removeprefix(_TYPE)
        size = int(metadata.get(_SIZE + id, 0))
        mode = VariableRetrievalMode(int(metadata.get(_MODE + id, 0)))
        stride = metadata.get(_STRIDE + id)
        group: tuple[Any, ...] = (CommGroup(CommGroupType(int(value)), size),)
        found[id] = VariableSettings(*(group if stride is None else (int(stride), size)), mode)
    return found


def grouped(metadata: Mapping[str, str], replicas: int | None = None) -> dict[str, tuple[int, int]]:
    """Variables whose data has a leading axis, with (stride, size) of their groups.

    While the replicas are not known, those are all that are not shared by all replicas.
    """
    known = metadata.get(REPLICATION)
    replicas = replicas or (int(known) if known else None)
    found = {}
    for id, settings in settings_of(metadata).items():
        if replicas is None:
            if settings.getSharedVariableDomain().type is not CommGroupType.All:
                found[id] = (settings.getStride(), settings.getGroupSize())
            continue
        group = settings.getReplicaGrouping(replicas)
        if group.count > 1:
            found[id] = (group.stride, group.size)
    return found


def check_leading_axes(model: onnx.ModelProto, replicas: int) -> None:
    """Raise EmulatorError for initial data without an entry for each group of replicas."""
    shapes = {initializer.name: tuple(initializer.dims) for initializer in model.graph.initializer}
    for id, settings in settings_of(metadata_of(model)).items():
        if id in shapes:
            settings.shapeOnReplica(shapes[id], replicas, id)


def read_from_all(metadata: Mapping[str, str]) -> frozenset[str]:
    """Ids of the variables whose value the host reads from every replica."""
    settings = settings_of(metadata).items()
    return frozenset(id for id, one in settings if one.getRetrievalMode() is VariableRetrievalMode.AllReplicas)
