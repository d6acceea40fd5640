"""NUMA topology: the CPUs, cores and memory nodes of a host, read from the sysfs tree of the Linux kernel.

psutil knows neither nodes nor which CPUs share a core; the CPUs that this process may use come from the standard
library, because importing psutil takes longer than reading the tree. ``discover`` depends only on the tree and on
what this process may use, so that it can be tested on recorded trees.
Every supervisor imports this module: dataclasses, a slow import, would delay its start by 8 ms.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Set
from typing import NamedTuple


class NumaNode(NamedTuple):
    """A NUMA node with usable CPUs: its ``cores`` (the CPUs of each), and the nodes of its nearest ``memory``.

    These are the node itself, if it has memory, and nodes without CPUs that are closer to it than to any other.
    """

    number: int
    cores: tuple[tuple[int, ...], ...]
    memory: tuple[int, ...]

    @property
    def cpus(self) -> tuple[int, ...]:
        return tuple(sorted(cpu for core in self.cores for cpu in core))


class NumaTopology(NamedTuple):
    """The nodes of a host that have usable CPUs, in order; never empty."""

    nodes: tuple[NumaNode, ...]

    @property
    def cpus(self) -> tuple[int, ...]:
        return tuple(sorted(cpu for node in self.nodes for cpu in node.cpus))

    @property
    def memory(self) -> tuple[int, ...]:
        return tuple(sorted({index for node in self.nodes for index in node.memory}))


def discover_local() -> NumaTopology:
    """Return the part of this host's topology that this process may use."""
    return discover("/sys", cpus=os.sched_getaffinity(0), memory=_memory_allowed("/proc/self/status"))


def discover(root: str, *, cpus: Set[int], memory: Set[int] | None) -> NumaTopology:
    """Read the tree at ``root``; ``cpus`` and ``memory`` are the CPUs and nodes that may be used (None: all).

    Without NUMA in the tree, the host is one node.
    """
    folders = _node_folders(root)
    online = parse_cpu_list(_read(f"{root}/devices/system/cpu/online")) or set(cpus)
    usable = {index: parse_cpu_list(_read(f"{path}/cpulist")) & online & cpus for index, path in folders.items()}
    unassigned = (cpus & online or cpus) - {cpu for owned in usable.values() for cpu in owned}
    owners = {index: owned for index, owned in usable.items() if owned}
    if unassigned:  # no NUMA in this kernel, or a tree that hides it
        first = min(owners or usable or {0})
        owners[first] = owners.get(first, set()) | unassigned
    near = _near_memory(folders, sorted(owners), memory)
    return NumaTopology(
        tuple(NumaNode(index, _cores(root, owners[index]), near.get(index, ())) for index in sorted(owners))
    )


def parse_cpu_list(text: str) -> set[int]:
    """Parse a list as the kernel writes it: ``0-3,8`` -> {0, 1, 2, 3, 8}."""
    numbers: set[int] = set()
    for piece in filter(None, text.strip().split(",")):
        first, _, last = piece.partition("-")
        numbers.update(range(int(first), int(last or first) + 1))
    return numbers


def format_cpu_list(numbers: Iterable[int]) -> str:
    """Format a list as the kernel writes it: {0, 1, 2, 3, 8} -> ``0-3,8``."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][-1] + 1:
            runs[-1][1:] = [number]
        else:
            runs.append([number])
    return ",".join("-".join(map(str, run)) for run in runs)


def _node_folders(root: str) -> dict[int, str]:
    folder = f"{root}/devices/system/node"
    try:
        names = os.listdir(folder)
    except OSError:
        return {}
    folders = {int(name[4:]): f"{folder}/{name}" for name in names if name.startswith("node") and name[4:].isdigit()}
    online = parse_cpu_list(_read(f"{folder}/online")) or set(folders)
    return {index: folders[index] for index in sorted(folders) if index in online}


def _cores(root: str, cpus: Set[int]) -> tuple[tuple[int, ...], ...]:
    """``cpus`` grouped by core, in the order of the first CPU of each."""
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
    folders: Mapping[int, str], owners: list[int], allowed: Set[int] | None
) -> dict[int, tuple[int, ...]]:
    """For each node with CPUs, the nodes whose memory it uses."""
    with_memory = [
        index for index in folders if _has_memory(folders[index]) and (allowed is None or index in allowed)
    ]
    near: dict[int, list[int]] = {index: [index] for index in owners if index in with_memory}
    for index in with_memory:
        if index not in owners and owners:
            near.setdefault(_closest(folders, index, owners), []).append(index)
    for index in owners:  # CPUs without memory of their own use the closest
        if index not in near and with_memory:
            near[index] = [_closest(folders, index, with_memory)]
    return {index: tuple(sorted(nodes)) for index, nodes in near.items()}


def _has_memory(place: str) -> bool:
    """Whether the node has memory; True if the tree has no information."""
    for line in _read(f"{place}/meminfo").splitlines():
        if "MemTotal:" in line:
            return int(line.split("MemTotal:")[1].split()[0]) > 0
    return True


def _closest(folders: Mapping[int, str], index: int, others: list[int]) -> int:
    """The closest of ``others`` by the kernel's table of distances (in order of online nodes), else the lower."""
    fields = [int(word) for word in _read(f"{folders[index]}/distance").split()] if index in folders else []
    distances = dict(zip(folders, fields, strict=False))
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
