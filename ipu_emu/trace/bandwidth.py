"""Bandwidth: the bytes per second of each collective, and the limit of the machine to compare it with.

Within one host the limit is the rate at which an instance copies memory. Between hosts it is that of the network
interface, if Linux knows it; otherwise, the best rate that a collective of the run has reached, which is labelled as
such. For a collective between hosts only those bytes count that must cross the link of one host in one direction with
any method.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np

from ipu_emu.trace.collective_calls import CollectiveCalls
from ipu_emu.trace.run import Run
from popdist_py.trace import MEMORY_RATE, NETWORK


class Limit(StrEnum):
    """The limit that a rate is compared with."""

    MEMORY = "memory of the host"
    NETWORK = "network interface"
    BEST = "best rate between hosts in this run"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Bandwidth:
    """GB/s of the input of an instance, ``rate``, and of the bytes that ``limit`` bounds, ``bounded_rate``.

    ``most``: the limit in GB/s, None if unknown; ``interface``: of the network, "" if unknown.
    """

    seconds: float
    rate: float | None
    bounded_rate: float | None
    limit: Limit
    most: float | None
    interface: str = ""

    @property
    def share(self) -> float | None:
        """The fraction of the limit that is reached."""
        return self.bounded_rate / self.most if self.bounded_rate and self.most else None


@dataclass(frozen=True)
class _Group:
    """A group of replicas on ``hosts`` hosts, of which each has the replicas of ``groups`` such groups."""

    hosts: int
    groups: float
    size: int


#: The least bytes that cross the link of a host in one direction, relative to the input of a replica.
_CROSSING: Mapping[str, Callable[[_Group], float]] = {
    "all_reduce": lambda of: of.groups * 2 * (of.hosts - 1) / of.hosts,
    "reduce_scatter": lambda of: of.groups * (of.hosts - 1) / of.hosts,
    "all_gather": lambda of: of.groups * of.size * (of.hosts - 1) / of.hosts,
    "all_to_all": lambda of: of.groups * of.size * (of.hosts - 1) / of.hosts**2,
    "broadcast": lambda of: of.groups,
    "reduce": lambda of: of.groups,
}


def bandwidths(run: Run, collectives: Sequence[CollectiveCalls]) -> Sequence[Bandwidth]:
    """The bandwidth of each collective."""
    memory, (interface, network) = _memory(run), _network(run)
    groups = [_group(run, calls) for calls in collectives]
    rates = [_between_hosts(calls, group) for calls, group in zip(collectives, groups, strict=True)]
    best = max((rate for rate in rates if rate), default=None)
    rows = []
    for calls, group, between in zip(collectives, groups, rates, strict=True):
        seconds = _seconds(calls)
        rate = calls.nbytes / seconds / 1e9 if seconds else None
        if group.hosts == 1:
            rows.append(Bandwidth(seconds, rate, rate, Limit.MEMORY if memory else Limit.UNKNOWN, memory))
        elif between is None:
            rows.append(Bandwidth(seconds, rate, None, Limit.UNKNOWN, None))
        elif network:
            rows.append(Bandwidth(seconds, rate, between, Limit.NETWORK, network, interface))
        else:
            rows.append(Bandwidth(seconds, rate, between, Limit.BEST, best, interface))
    return rows


def _seconds(calls: CollectiveCalls) -> float:
    """Median time of data movement: on the instance that came last. The first call may load kernels."""
    return float(np.median(calls.moves.min(1))) / 1e9


def _memory(run: Run) -> float | None:
    """GB/s at which the slowest instance copies memory; an all-reduce of replicas on one host reads and writes it."""
    rates = [process.trace.facts.get(MEMORY_RATE) for process in run.instances]
    return min((rate for rate in rates if isinstance(rate, float) and rate > 0), default=None)


def _network(run: Run) -> tuple[str, float | None]:
    """The slowest interface of the instances, and its GB/s; None if one of them is not known."""
    facts = [process.trace.facts.get(NETWORK) for process in run.instances]
    pairs = [(fact["gigabytes_per_second"], fact["interface"]) for fact in facts if isinstance(fact, dict)]
    rates = [(rate, name) for rate, name in pairs if rate]
    if not rates or len(rates) < len(facts):
        return "", None
    rate, name = min(rates)
    return name, rate


def _between_hosts(calls: CollectiveCalls, group: _Group) -> float | None:
    """GB/s over the link of a host; None within a host, and for collectives of unknown bytes."""
    crossing, seconds = _CROSSING.get(calls.name), _seconds(calls)
    if group.hosts == 1 or crossing is None or not seconds or not calls.nbytes:
        return None
    return crossing(group) * calls.nbytes / _replicas(calls.about) / seconds / 1e9


def _group(run: Run, calls: CollectiveCalls) -> _Group:
    """The first group of a collective; the others are like it."""
    local = _replicas(calls.about)
    hosts = [run.instances[index].host for index in calls.instances]
    total = local * len(hosts)
    size, stride = calls.about.get("group_size", total), calls.about.get("group_stride", 1)
    if not (type(size) is int and type(stride) is int and 0 < stride * size <= total):
        size, stride = total, 1
    reached = len({hosts[member * stride // local] for member in range(size)})
    return _Group(reached, total / len(set(hosts)) * reached / size, size)


def _replicas(about: Mapping[str, Any]) -> int:
    """Local replicas of an instance."""
    count = about.get("replicas", 1)
    return count if type(count) is int and count > 0 else 1
