"""Path selection: how data travels between the processes of a job: memory, MPI messages, or both.

one host                          MemoryPath          all ranks share memory
hosts, some with several ranks    HierarchicalPath    memory within each host, messages between hosts
hosts with one rank each          MessagePath         messages
transport="mpi"                   MessagePath         messages, wherever the ranks are
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import popdist_py
from gcl.core.data_path import DataPath
from gcl.core.groups import Group
from gcl.core.world import World
from gcl.transport.memory import shared_memory
from gcl.transport.messages.endpoints import Endpoints, Stripe
from gcl.transport.messages.point_to_point import PointToPoint
from gcl.transport.paths.hierarchical_path import HierarchicalPath
from gcl.transport.paths.memory_path import MemoryPath
from gcl.transport.paths.message_path import MessagePath
from gcl.transport.rendezvous.process_liveness import Process


@dataclass(frozen=True)
class HostPlacement:
    """All ranks of a job as this one sees them: by rank, the host, the machine and the process.

    Ranks of one host share memory; ranks of one machine see each other's processes.
    """

    world: World
    hosts: tuple[str, ...]
    machines: tuple[str, ...]
    processes: tuple[Process, ...]

    @cached_property
    def ranks_of(self) -> list[list[int]]:
        """The ranks of each host; hosts are numbered by their first rank."""
        names = list(dict.fromkeys(self.hosts))
        return [[rank for rank, host in enumerate(self.hosts) if host == name] for name in names]

    @cached_property
    def here(self) -> int:
        """Number of this rank's host."""
        return next(i for i, ranks in enumerate(self.ranks_of) if self.world.rank in ranks)

    @property
    def neighbours(self) -> list[int]:
        """The ranks of this host."""
        return self.ranks_of[self.here]

    @property
    def is_crowded(self) -> bool:
        """Whether this machine, with all its hosts, has more ranks than cores that this process may use."""
        return self.machines.count(self.machines[self.world.rank]) > len(os.sched_getaffinity(0))

    def all_gather_here(self, data: bytes) -> list[bytes]:
        """The byte strings of this host's ranks; collective over all ranks of the job."""
        everyone = popdist_py.host_backend().all_gather(data)
        return [everyone[rank] for rank in self.neighbours]

    def host_endpoints(self) -> Endpoints:
        """Whole hosts as endpoints."""
        host_of = {rank: host for host, ranks in enumerate(self.ranks_of) for rank in ranks}
        names = tuple(
            f"host {self.hosts[ranks[0]].split()[0]} with {', '.join(map(self.world.describe, ranks))}"
            for ranks in self.ranks_of
        )
        return Endpoints(self.here, tuple(host_of[owner] for owner in self.world.owners), names)


def select_path(wanted: str, placement: HostPlacement, group: Group, timeout: float, segment_bytes: int) -> DataPath:
    """The path for ``wanted`` ("auto" or a transport); collective over all ranks of the job."""
    several_hosts, alone = len(placement.ranks_of) > 1, all(len(ranks) == 1 for ranks in placement.ranks_of)
    if wanted == "mpi" or (several_hosts and alone):
        return _between_all(placement, group, timeout)
    memory_world = World(
        placement.neighbours.index(placement.world.rank),
        tuple(placement.world.counts[rank] for rank in placement.neighbours),
        tuple(map(placement.world.describe, placement.neighbours)),
    )
    domain = shared_memory.domain(
        rank=memory_world.rank,
        ranks=memory_world.ranks,
        all_gather=placement.all_gather_here,
        segment_bytes=segment_bytes,
        communicators=popdist_py.host_backend().communicators,
    )
    if not several_hosts:
        return MemoryPath(domain, placement.world, group, timeout)
    inside = _inside(placement, group)
    within = inside or Group.all(memory_world.replicas)
    memory = MemoryPath(domain, memory_world, within, timeout, across_hosts=placement.is_crowded)
    return _hierarchical(memory, memory_world, placement, group, timeout, inside=inside is not None)


def _hierarchical(
    memory: MemoryPath, memory_world: World, placement: HostPlacement, group: Group, timeout: float, *, inside: bool
) -> HierarchicalPath:
    stripes, host_endpoints = min(map(len, placement.ranks_of)), placement.host_endpoints()
    exchanges = memory_world.rank < stripes
    members = [ranks[memory_world.rank] for ranks in placement.ranks_of] if exchanges else [placement.world.rank]
    messages = _messages(placement, members, timeout)
    endpoints = replace(host_endpoints, contacts=tuple(map(placement.world.describe, members)))
    across = MessagePath(messages, endpoints, group, timeout) if exchanges else None
    everyone = _between_all(placement, group, timeout)
    replicas, stripe = list(host_endpoints.rows), Stripe(memory_world.rank, stripes)
    return HierarchicalPath(memory, across, everyone, stripe, replicas, inside=inside)


def _between_all(placement: HostPlacement, group: Group, timeout: float) -> MessagePath:
    """Messages between all ranks of the job."""
    messages = _messages(placement, range(placement.world.ranks), timeout)
    return MessagePath(messages, Endpoints.of_ranks(placement.world), group, timeout)


def _messages(placement: HostPlacement, members: Sequence[int], timeout: float) -> PointToPoint:
    """Messages between ``members``, this rank among them; collective over all ranks of the job."""
    from gcl.transport.mpi.mpi_messages import MpiMessages  # starts MPI

    machines, here = placement.machines, placement.machines[placement.world.rank]
    near = {index: placement.processes[member] for index, member in enumerate(members) if machines[member] == here}
    return MpiMessages(members, near=near, crowded=placement.is_crowded, timeout=timeout)


def _inside(placement: HostPlacement, group: Group) -> Group | None:
    """``group`` limited to the replicas of this host, if every host owns a run of whole groups."""
    span, owners = group.stride * group.size, placement.host_endpoints().owners
    if any(len(set(owners[first : first + span])) > 1 for first in range(0, len(owners), span)):
        return None
    runs = [host for i, host in enumerate(owners) if i == 0 or owners[i - 1] != host]
    return Group(owners.count(placement.here), group.stride, group.size) if len(runs) == len(set(runs)) else None
