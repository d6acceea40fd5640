"""Sync groups: the two sync groups of an IPU, GS1 and GS2, and their members.

    IPUs A B in row 1, C D in row 0        GS1            GS2
      Full                                 A B C D        A B C D       all IPUs always sync
      SinglePipeline                       A | B | C | D  A B C D       each IPU syncs with the host by itself
      ReplicaAndLadder                     A B C D        A C | B D     one rail loads while the other computes

At a sync all IPUs of a group wait for each other; with several replicas GS1 of Full and of ReplicaAndLadder has the
IPUs of one replica.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum


class SyncGroup(StrEnum):
    """The members of a group."""

    ALONE = "each IPU"
    REPLICA = "the IPUs of a replica"
    RAIL = "the IPUs of a rail of a replica"
    ALL = "all IPUs"


@dataclass(frozen=True)
class SyncConfiguration:
    """A sync configuration under PopART's name and Poplar's; ``host`` is the group for transfers with the host."""

    name: str
    poplar: str
    gs1: SyncGroup
    gs2: SyncGroup
    host: str


PATTERNS = {
    pattern.name: pattern
    for pattern in (
        SyncConfiguration("Full", "intraReplicaAndAll", SyncGroup.REPLICA, SyncGroup.ALL, "gs2"),
        SyncConfiguration("SinglePipeline", "ipuAndAll", SyncGroup.ALONE, SyncGroup.ALL, "gs1"),
        SyncConfiguration("ReplicaAndLadder", "intraReplicaAndLadder", SyncGroup.REPLICA, SyncGroup.RAIL, "gs2"),
    )
}

_MEMBERS: dict[SyncGroup, Callable[[int, int], object]] = {
    SyncGroup.ALONE: lambda ipu, width: ipu,
    SyncGroup.REPLICA: lambda ipu, width: ipu // width,
    SyncGroup.RAIL: lambda ipu, width: (ipu // width, ipu % 2),
    SyncGroup.ALL: lambda ipu, width: 0,
}


def groups(kind: SyncGroup, ipus: Sequence[int], ipus_per_replica: int) -> tuple[tuple[int, ...], ...]:
    """Return the sync groups of ``ipus``."""
    members: dict[object, list[int]] = {}
    for ipu in ipus:
        members.setdefault(_MEMBERS[kind](ipu, ipus_per_replica), []).append(ipu)
    return tuple(map(tuple, members.values()))
