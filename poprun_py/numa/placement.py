"""Placement: the CPUs and memory nodes of its host that an instance is bound to.

2 nodes of 4 cores, 2 CPUs per core        3 instances
spreadnuma   nodes are divided; more instances than nodes share them       node 0, node 0, node 1
spreadcore   cores are divided; more instances than cores share them       cores 0-1, 2-4, 5-7
roundrobin   one node each, in turn (the older --numa-aware)               node 0, node 1, node 0
disabled     instances are not bound
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from poprun_py.numa.topology import NumaTopology, format_cpu_list

DISABLED = "disabled"


class Placement(NamedTuple):
    """Where an instance runs: ``sharers`` instances have the same CPUs; ``bound``: it is restricted to them."""

    cpus: tuple[int, ...]
    memory: tuple[int, ...]
    sharers: int = 1
    bound: bool = True

    @property
    def threads(self) -> int:
        """Number of threads that each library of the instance should use."""
        return max(1, len(self.cpus) // self.sharers)

    def __str__(self) -> str:
        memory = f", memory node{'s' * (len(self.memory) > 1)} {format_cpu_list(self.memory)}" if self.memory else ""
        shared = f" (shared by {self.sharers})" if self.sharers > 1 else ""
        return f"CPUs {format_cpu_list(self.cpus)}{memory}{shared}{'' if self.bound else ', not bound'}"


def place(topology: NumaTopology, strategy: str, *, index: int, count: int) -> Placement:
    """Return the placement of instance ``index`` of the ``count`` instances on this host."""
    return STRATEGIES[strategy](topology, index, count)


def _spread_over_nodes(topology: NumaTopology, index: int, count: int) -> Placement:
    nodes = topology.nodes
    first, last = _share(len(nodes), index, count)
    return _on_nodes(topology, range(first, last), _sharers(len(nodes), index, count))


def _round_robin(topology: NumaTopology, index: int, count: int) -> Placement:
    nodes = len(topology.nodes)
    mine = index % nodes
    return _on_nodes(topology, range(mine, mine + 1), len(range(mine, count, nodes)))


def _spread_over_cores(topology: NumaTopology, index: int, count: int) -> Placement:
    cores = [(node, core) for node in topology.nodes for core in node.cores]
    first, last = _share(len(cores), index, count)
    mine = cores[first:last]
    cpus = tuple(sorted(cpu for _, core in mine for cpu in core))
    return Placement(
        cpus,
        tuple(sorted({memory for node, _ in mine for memory in node.memory})),
        _sharers(len(cores), index, count),
    )


#: Name of a strategy -> function that places instance i of n.
STRATEGIES: dict[str, Callable[[NumaTopology, int, int], Placement]] = {
    "spreadnuma": _spread_over_nodes,
    "spreadcore": _spread_over_cores,
    "roundrobin": _round_robin,
    DISABLED: lambda topology, index, count: Placement(topology.cpus, topology.memory, sharers=count, bound=False),
}


def _share(things: int, index: int, count: int) -> tuple[int, int]:
    """Divide ``things`` into ``count`` contiguous parts; if there are fewer things, adjacent parts share one."""
    first = index * things // count
    return first, max(first + 1, (index + 1) * things // count)


def _sharers(things: int, index: int, count: int) -> int:
    """The number of instances, of ``count``, that share the part of ``index``."""
    if count <= things:
        return 1
    first = index * things // count
    return -(-(first + 1) * count // things) - -(-first * count // things)


def _on_nodes(topology: NumaTopology, mine: range, sharers: int) -> Placement:
    nodes = [topology.nodes[index] for index in mine]
    cpus = tuple(sorted(cpu for node in nodes for cpu in node.cpus))
    return Placement(cpus, tuple(sorted({memory for node in nodes for memory in node.memory})), sharers)
