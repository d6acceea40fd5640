"""Numa: the CPUs, cores and memory nodes of a host, read from the sysfs tree of the Linux kernel.

``discover`` is a function of the tree and of what this process may use, so that it can be tested on recorded trees.
Every supervisor imports this: with dataclasses, which import half the standard library, it would start 8 ms later.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Set
from typing import NamedTuple

__all__ = ["Node", "NumaTopology", "discover", "discover_local", "format_cpu_list", "parse_cpu_list"]


class Node(NamedTuple):
    """A NUMA node with CPUs that may be used: its ``cores`` (each the CPUs that share one), and where memory is near.

    ``memory`` are nodes: itself if it has memory, and those without CPUs that are closer to it than to any other.
    """

    number: int
    cores: tuple[tuple[int, ...], ...]
    memory: tuple[int, ...]

    @property
    def cpus(self) -> tuple[int, ...]:
        return tuple(sorted(cpu for core in self.cores for cpu in core))


class NumaTopology(NamedTuple):
    """The nodes of a host that have usable CPUs, in order; never empty."""

    nodes: tuple[Node, ...]

    @property
    def cpus(self) -> tuple[int, ...]:
        return tuple(sorted(cpu for node in self.nodes for cpu in node.cpus))

    @property
    def memory(self) -> tuple[int, ...]:
        return tuple(sorted({index for node in self.nodes for index in node.memory}))


def discover_local() -> NumaTopology:
    """The topology of this host, as far as this process may use it."""
    return discover("/sys", cpus=os.sched_getaffinity(0), memory=_memory_allowed("/proc/self/status"))


def discover(root: str, *, cpus: Set[int], memory: Set[int] | None) -> NumaTopology:
    """Read the tree at ``root``; ``cpus`` and ``memory`` nodes are what may be used (None: all).

    Without NUMA in the tree, the host is one node.
    """
    places = _node_places(root)
    online = parse_cpu_list(_read(f"{root}/devices/system/cpu/online")) or set(cpus)
    usable = {index: parse_cpu_list(_read(f"{path}/cpulist")) & online & cpus for index, path in places.items()}
    strays = (cpus & online or cpus) - {cpu for owned in usable.values() for cpu in owned}
    owners = {index: owned for index, owned in usable.items() if owned}
    if strays:  # no NUMA in this kernel, or a tree that hides it
        first = min(owners or usable or {0})
        owners[first] = owners.get(first, set()) | strays
    near = _near_memory(places, sorted(owners), memory)
    return NumaTopology(
        tuple(Node(index, _cores(root, owners[index]), near.get(index, ())) for index in sorted(owners))
    )


def parse_cpu_list(text: str) -> set[int]:
    """``0-3,8`` as the kernel writes it -> {0, 1, 2, 3, 8}."""
    found: set[int] = set()
    for piece in filter(None, text.strip().split(",")):
        first, _, last = piece.partition("-")
        found.update(range(int(first), int(last or first) + 1))
    return found


def format_cpu_list(found: Iterable[int]) -> str:
    """The other way round: {0, 1, 2, 3, 8} -> ``0-3,8``."""
    runs: list[list[int]] = []
    for number in sorted(found):
        if runs and number == runs[-1][-1] + 1:
            runs[-1][1:] = [number]
        else:
            runs.append([number])
    return ",".join("-".join(map(str, run)) for run in runs)


def _node_places(root: str) -> dict[int, str]:
    folder = f"{root}/devices/system/node"
    try:
        names = os.listdir(folder)
    except OSError:
        return {}
    found = {int(name[4:]): f"{folder}/{name}" for name in names if name.startswith("node") and name[4:].isdigit()}
    online = parse_cpu_list(_read(f"{folder}/online")) or set(found)
    return {index: found[index] for index in sorted(found) if index in online}


def _cores(root: str, cpus: Set[int]) -> tuple[tuple[int, ...], ...]:
    """``cpus`` by the core that they share, in order of their first."""
    cores: list[tuple[int, ...]] = []
    left = set(cpus)
    while left:
        first = min(left)
        siblings = parse_cpu_list(_read(f"{root}/devices/system/cpu/cpu{first}/topology/thread_siblings_list"))
        core = (siblings & left) | {first}
        cores.append(tuple(sorted(core)))
        left -= core
    return tuple(cores)


def _near_memory(
    places: Mapping[int, str], owners: list[int], allowed: Set[int] | None
) -> dict[int, tuple[int, ...]]:
    """For each node with CPUs the nodes whose memory it is to use."""
    with_memory = [index for index in places if _has_memory(places[index]) and (allowed is None or index in allowed)]
    near: dict[int, list[int]] = {index: [index] for index in owners if index in with_memory}
    for index in with_memory:
        if index not in owners and owners:
            near.setdefault(_closest(places, index, owners), []).append(index)
    for index in owners:  # CPUs without memory of their own use the closest
        if index not in near and with_memory:
            near[index] = [_closest(places, index, with_memory)]
    return {index: tuple(sorted(found)) for index, found in near.items()}


def _has_memory(place: str) -> bool:
    """Does the node say that it has any? One that says nothing is believed to."""
    for line in _read(f"{place}/meminfo").splitlines():
        if "MemTotal:" in line:
            return int(line.split("MemTotal:")[1].split()[0]) > 0
    return True


def _closest(places: Mapping[int, str], index: int, others: list[int]) -> int:
    """By the kernel's table of distances, which lists the online nodes in order; the lower number on a tie."""
    fields = [int(word) for word in _read(f"{places[index]}/distance").split()] if index in places else []
    distances = dict(zip(places, fields, strict=False))
    return min(others, key=lambda other: (distances.get(other, 255), abs(other - index), other))


def _memory_allowed(path: str) -> set[int] | None:
    for line in _read(path).splitlines():
        if line.startswith("Mems_allowed_list:"):
            return parse_cpu_list(line.partition(":")[2])
    return None


def _read(path: str) -> str:
    try:
        with open(path, encoding="ascii", errors="replace") as stream:
            return stream.read()
    except OSError:
        return ""
