"""paths: the way that bytes go between the processes of a job: memory, messages, or both.

one host                          InMemory      all ranks share memory
hosts, some with several ranks    ByHosts       memory within each host, messages between hosts
hosts with one rank each          ByMessages    messages
transport="mpi", "tcp"            ByMessages    messages, wherever the ranks are

Messages go over connections of their own; over MPI where those cannot be made, or where MPI is asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import popdist_py
from gcl.core.data_path import Path
from gcl.core.groups import Group
from gcl.core.world import World
from gcl.errors import TransportError
from gcl.transport.memory import shared_memory
from gcl.transport.messages.endpoints import Parties
from gcl.transport.messages.point_to_point import Messages
from gcl.transport.paths.hierarchical_path import ByHosts
from gcl.transport.paths.memory_path import InMemory
from gcl.transport.paths.message_path import ByMessages
from gcl.transport.rendezvous.process_liveness import Process
from gcl.transport.tcp.connection_mesh import mesh
from gcl.transport.tcp.tcp_messages import TcpMessages

__all__ = ["Site", "path_over"]

#: More connections than this in one process are left to MPI.
_MOST_CONNECTIONS = 400


@dataclass(frozen=True)
class Site:
    """All ranks of a job as this one sees them: ``hosts[rank]`` names the host, ``processes[rank]`` the process."""

    world: World
    hosts: tuple[str, ...]
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

    def all_gather_here(self, data: bytes) -> list[bytes]:
        """The byte strings of this host's ranks; all ranks of the job call it together."""
        everyone = popdist_py.host_backend().all_gather(data)
        return [everyone[rank] for rank in self.neighbours]

    def host_parties(self) -> Parties:
        """Whole hosts as parties."""
        host_of = {rank: host for host, ranks in enumerate(self.ranks_of) for rank in ranks}
        names = tuple(
            f"host {self.hosts[ranks[0]].split()[0]} with {', '.join(map(self.world.describe, ranks))}"
            for ranks in self.ranks_of
        )
        return Parties(self.here, tuple(host_of[owner] for owner in self.world.owners), names)


def path_over(wanted: str, site: Site, group: Group, timeout: float, segment_bytes: int) -> Path:
    """The path that ``wanted`` ("auto" or a transport) asks for; all ranks call it together."""
    several_hosts, alone = len(site.ranks_of) > 1, all(len(ranks) == 1 for ranks in site.ranks_of)
    if wanted in ("mpi", "tcp") or (several_hosts and alone):
        everyone = list(range(site.world.ranks))
        return ByMessages(_messages(wanted, site, everyone, timeout), Parties.of_ranks(site.world), group, timeout)
    memory_world = World(
        site.neighbours.index(site.world.rank),
        tuple(site.world.counts[rank] for rank in site.neighbours),
        tuple(map(site.world.describe, site.neighbours)),
    )
    domain = shared_memory.domain(
        rank=memory_world.rank,
        ranks=memory_world.ranks,
        all_gather=site.all_gather_here,
        segment_bytes=segment_bytes,
    )
    if not several_hosts:
        return InMemory(domain, site.world, group, timeout)
    inside = _inside(site, group)
    memory = InMemory(domain, memory_world, inside or Group.all(memory_world.replicas), timeout)
    return _by_hosts(memory, memory_world, site, group, timeout, inside=inside is not None)


def _by_hosts(
    memory: InMemory, memory_world: World, site: Site, group: Group, timeout: float, *, inside: bool
) -> ByHosts:
    carriers = min(map(len, site.ranks_of))
    carries = memory_world.rank < carriers
    members = [ranks[memory_world.rank] for ranks in site.ranks_of] if carries else [site.world.rank]
    messages = _messages("auto", site, members, timeout)
    parties = replace(site.host_parties(), carriers=tuple(map(site.world.describe, members)))
    across = ByMessages(messages, parties, group, timeout) if carries else None
    ranks = list(range(site.world.ranks))
    everyone = ByMessages(_messages("auto", site, ranks, timeout), Parties.of_ranks(site.world), group, timeout)
    replicas = list(site.host_parties().rows)
    return ByHosts(memory, across, everyone, (memory_world.rank, carriers), replicas, inside=inside)


def _messages(wanted: str, site: Site, members: Sequence[int], timeout: float) -> Messages:
    """Messages between ``members``, of which this rank is one; every rank of the job calls it for its own."""
    rank = site.world.rank
    if wanted != "mpi" and site.world.ranks <= _MOST_CONNECTIONS:
        connections = mesh(rank, members, popdist_py.host_backend().all_gather)
        if connections is not None:
            return TcpMessages(list(members).index(rank), connections)
    if wanted == "tcp":
        raise TransportError(
            f"transport 'tcp' was asked for, but connections between {site.world.ranks} ranks cannot be made; "
            "open the ports between the hosts, or use mpi"
        )
    from gcl.transport.mpi.mpi_messages import MpiMessages  # starts MPI

    near = {place: site.processes[member] for place, member in enumerate(members) if member in site.neighbours}
    return MpiMessages(members, near=near, timeout=timeout)


def _inside(site: Site, group: Group) -> Group | None:
    """``group`` among the replicas of this host alone, if every host is a run of whole groups."""
    span, owners = group.stride * group.size, site.host_parties().owners
    if any(len(set(owners[first : first + span])) > 1 for first in range(0, len(owners), span)):
        return None
    runs = [host for i, host in enumerate(owners) if i == 0 or owners[i - 1] != host]
    return Group(owners.count(site.here), group.stride, group.size) if len(runs) == len(set(runs)) else None
