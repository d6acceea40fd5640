"""Model properties: the settings of inputs and variables in the metadata of a model, as PopART's builder writes them.

The key of a property of one tensor ends with the tensor's id. The defaults are: each replica gets its own input,
loaded just in time; all replicas share a variable, of which the host reads one value.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum

from gcl import ArgumentError, Group
from ipu_emu.errors import EmulatorError
from ipu_emu.program.instructions import Overlap

#: Keys of properties of inputs.
TILE_SET, EXCHANGE_STRATEGY, STREAM_MODE = (
    "__input_tile_set/",
    "__input_exchange_strategy/",
    "__replicated_stream_mode/",
)
#: Keys of properties of variables.
_TYPE, _SIZE, _STRIDE, _MODE = (
    "__comm_group_type/",
    "__comm_group_size/",
    "__comm_group_stride/",
    "__variable_settings/",
)
#: The number of replicas that the model was built for.
REPLICATION = "__replicationFactor"

#: Values: I/O tiles exchange an input; all replicas get the same input; the host reads a value of each replica.
_IO, _BROADCAST, _ALL_REPLICAS = "IO", "Broadcast", 2
_OVERLAPS = {
    "JustInTime": Overlap.NONE,
    "OverlapInnerLoop": Overlap.INNER,
    "OverlapLoops": Overlap.LOOPS,
    "OverlapStep": Overlap.LOOPS,
}


@dataclass(frozen=True)
class ModelProperties:
    """``broadcast`` inputs are the same for all replicas; I/O tiles load those ``on_io_tiles`` from the host.

    ``overlapped``: inputs that are not loaded just in time. ``read_from_all``: variables whose value the host reads
    from every replica. ``groups``: the groups of the variables that have some.
    """

    broadcast: frozenset[str] = frozenset()
    on_io_tiles: tuple[str, ...] = ()
    overlapped: Mapping[str, Overlap] = field(default_factory=dict)
    read_from_all: frozenset[str] = frozenset()
    groups: Mapping[str, VariableGroups] = field(default_factory=dict)

    @classmethod
    def of(cls, metadata: Mapping[str, str]) -> ModelProperties:
        """Return the properties in the metadata of a graph."""
        tiles, groups = _by_id(metadata, TILE_SET), _groups_of_variables(metadata)
        ahead = {id: overlap_of(tiles.get(id, ""), when) for id, when in _by_id(metadata, EXCHANGE_STRATEGY).items()}
        return cls(
            frozenset(id for id, mode in _by_id(metadata, STREAM_MODE).items() if mode == _BROADCAST),
            tuple(id for id, where in tiles.items() if where == _IO),
            {id: overlap for id, overlap in ahead.items() if overlap is not Overlap.NONE},
            frozenset(id for id, members in groups.items() if members.read_from_all),
            groups,
        )


def overlap_of(tiles: str, strategy: str) -> Overlap:
    """Return when data are exchanged; only I/O tiles can exchange during compute."""
    return _OVERLAPS[strategy] if tiles == _IO else Overlap.NONE


class GroupKind(IntEnum):
    """How replicas are divided into groups that share a variable."""

    ALL = 0
    CONSECUTIVE = 1
    ORTHOGONAL = 2
    UNGROUPED = 3


@dataclass(frozen=True)
class VariableGroups:
    """The replicas that share a variable; with a ``stride`` the groups are (stride, size), whatever the kind.

    ``read_from_all``: the host reads the value of every replica, else one per group.
    """

    kind: GroupKind = GroupKind.ALL
    size: int = 0
    stride: int | None = None
    read_from_all: bool = False

    @property
    def is_ungrouped(self) -> bool:
        """Whether each replica is a group: size 1 of any kind counts as ungrouped."""
        return self.kind is GroupKind.UNGROUPED or self.size == 1

    def among(self, replicas: int) -> Group:
        """Return the groups of ``replicas`` replicas; raise EmulatorError if they cannot be divided like this."""
        try:
            if self.stride is not None:
                return Group(replicas, 1 if self.size == 1 else self.stride, self.size)
            if self.kind is GroupKind.CONSECUTIVE:
                return Group.consecutive(replicas, self.size)
            if self.kind is GroupKind.ORTHOGONAL:
                return Group.orthogonal(replicas, self.size)
            return Group.none(replicas) if self.is_ungrouped else Group.all(replicas)
        except ArgumentError as error:
            raise EmulatorError(f"Variable settings do not fit the replicas: {error}") from None

    def shape_on_replica(self, full: Sequence[int], replicas: int, name: str) -> list[int]:
        """Return the shape of initial data without the axis of groups; raise EmulatorError if it does not fit."""
        count = self.among(replicas).count
        if count == 1:
            return list(full)
        if not full or full[0] != count:
            outer = full[0] if full else 1
            raise EmulatorError(
                f'Return mismatch with possibly appended outer dimension ({outer}) of Tensor: "{name}". should match '
                f"numGroups: {count}"
            )
        return list(full[1:])

    def properties(self, id: str, mode: int) -> dict[str, str]:
        """Return the metadata of the variable ``id``; ``mode`` is the number of its retrieval mode."""
        values = {_TYPE: int(self.kind), _SIZE: self.size, _MODE: mode}
        if self.stride is not None:
            values[_STRIDE] = self.stride
        return {key + id: str(value) for key, value in values.items()}


def _groups_of_variables(metadata: Mapping[str, str]) -> dict[str, VariableGroups]:
    """Return the groups of the variables that have metadata."""
    sizes, strides, modes = (_by_id(metadata, key) for key in (_SIZE, _STRIDE, _MODE))
    return {
        id: VariableGroups(
            GroupKind(int(kind)) if id not in strides else GroupKind.CONSECUTIVE,
            int(sizes.get(id, 0)),
            int(strides[id]) if id in strides else None,
            int(modes.get(id, 0)) == _ALL_REPLICAS,
        )
        for id, kind in _by_id(metadata, _TYPE).items()
    }


def grouped_variables(metadata: Mapping[str, str], replicas: int | None = None) -> dict[str, tuple[int, int]]:
    """Return the variables whose data has a leading axis, with (stride, size) of their groups.

    If the number of replicas is not known, these are all variables that are not shared by all replicas.
    """
    known = metadata.get(REPLICATION)
    replicas = replicas or (int(known) if known else None)
    by_id = _groups_of_variables(metadata).items()
    if replicas is None:
        divides = ((id, groups) for id, groups in by_id if groups.kind is not GroupKind.ALL or groups.is_ungrouped)
        return {id: (groups.stride or 1, groups.size) for id, groups in divides}
    divided = {id: groups.among(replicas) for id, groups in by_id}
    return {id: (group.stride, group.size) for id, group in divided.items() if group.count > 1}


def _by_id(metadata: Mapping[str, str], key: str) -> dict[str, str]:
    """Return the values of a property by id."""
    return {name.removeprefix(key): value for name, value in metadata.items() if name.startswith(key)}
