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

from poprun_py.numa.topology import NumaNode, NumaTopology, format_cpu_list

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
    """Divide the nodes into ``count`` contiguous parts; if there are fewer nodes, adjacent parts share one."""
    nodes = len(topology.nodes)
    first = index * nodes // count
    last = max(first + 1, (index + 1) * nodes // count)
    sharers = 1 if count <= nodes else -(-(first + 1) * count // nodes) - -(-first * count // nodes)
    return _on(topology.nodes[first:last], sharers)


def _spread_over_cores(topology: NumaTopology, index: int, count: int) -> Placement:
    cores = tuple(node._replace(cores=(core,)) for node in topology.nodes for core in node.cores)
    return _spread_over_nodes(NumaTopology(cores), index, count)


def _round_robin(topology: NumaTopology, index: int, count: int) -> Placement:
    nodes = len(topology.nodes)
    return _on(topology.nodes[index % nodes :][:1], len(range(index % nodes, count, nodes)))


def _on(nodes: tuple[NumaNode, ...], sharers: int) -> Placement:
    part = NumaTopology(nodes)
    return Placement(part.cpus, part.memory, sharers)


#: Name of a strategy -> function that places instance i of n.
STRATEGIES: dict[str, Callable[[NumaTopology, int, int], Placement]] = {
    "spreadnuma": _spread_over_nodes,
    "spreadcore": _spread_over_cores,
    "roundrobin": _round_robin,
    DISABLED: lambda topology, index, count: Placement(topology.cpus, topology.memory, sharers=count, bound=False),
}
