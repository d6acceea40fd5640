"""Links: seconds of collectives between replicas and of copies between the IPUs of a replica, at nominal rates.

A collective is priced by ``gcl.closed_price``, that is by the method that GCL would choose. Time that depends on the
rate of links (``transfer``, ``gateway``) is separate from time that does not (``latency``: syncs, hops, work of tiles
between exchanges).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from gcl import LINK_BANDWIDTH, Collective, Fabric, LinkClass, closed_price
from ipu_emu.hardware import System
from ipu_emu.hardware.position import IPUS_PER_MACHINE
from ipu_emu.hardware.rates import copy_rate

#: Bytes per second and IPU: a machine's 2 x 100 Gb/s, shared by its IPUs.
GATEWAY_RATE = LINK_BANDWIDTH[LinkClass.GATEWAY] / IPUS_PER_MACHINE


@dataclass(frozen=True)
class LinkSeconds:
    """Seconds of a collective at nominal rates."""

    transfer: float = 0.0
    gateway: float = 0.0
    latency: float = 0.0

    def __add__(self, other: LinkSeconds) -> LinkSeconds:
        return LinkSeconds(self.transfer + other.transfer, self.gateway + other.gateway, self.latency + other.latency)

    def __mul__(self, times: float) -> LinkSeconds:
        return LinkSeconds(self.transfer * times, self.gateway * times, self.latency * times)


def domains_of(replicas: Any, width: int, system: System) -> Any:
    """Number of IPU-Link domains of ``replicas`` (a number or an array of them) of ``width`` IPUs each."""
    return -(-replicas * width // system.domain_size)


@dataclass(frozen=True)
class Links:
    """Prices of collectives of replicas of ``width`` IPUs on ``system``."""

    system: System
    width: int

    def gradients(
        self, replicas: int, tensors: Iterable[tuple[int, int]], itemsize: int, *, sharded: bool
    ) -> LinkSeconds:
        """Price of reducing ``tensors``, each (its IPU, its values), over all replicas, one after the other.

        ``sharded``: states are sharded over the replicas of a domain, so gradients are reduce-scattered, and updated
        weights gathered.
        """
        parts = (
            _reduced(self.system, self.width, replicas, self._on(ipu, size), itemsize, sharded)
            for ipu, size in tensors
        )
        return sum(parts, LinkSeconds())

    def weights(self, replicas: int, tensors: Iterable[tuple[int, int]], itemsize: int) -> LinkSeconds:
        """Price of gathering weights, sharded over the replicas of a domain, one tensor after the other."""
        parts = (_gathered(self.system, self.width, replicas, self._on(ipu, size), itemsize) for ipu, size in tensors)
        return sum(parts, LinkSeconds())

    def statistics(self, span: int, channels: int) -> LinkSeconds:
        """Price of adding up means and squares of batch normalisation over ``span`` replicas, in FLOAT."""
        return _reduced(self.system, self.width, span, self._on(0, 2 * channels), 4, False)

    def _on(self, ipu: int, size: int) -> tuple[int, ...]:
        """Values on each IPU of a replica: ``size`` on one of them."""
        return tuple(size * (index == ipu) for index in range(self.width))

    def copy(self, source: int, target: int, nbytes: float) -> float:
        """Seconds to copy values from one IPU of a replica to another."""
        return nbytes / copy_rate(Fabric(1, self.width), source, target)


@lru_cache(maxsize=65536)  # pure
def _gathered(system: System, width: int, replicas: int, values: tuple[int, ...], itemsize: int) -> LinkSeconds:
    """Price of gathering ``values`` on each IPU from the replicas of its domain."""
    fabric = system.fabric(replicas, width)
    if fabric.replicas_per_domain == 1 or not any(values):
        return LinkSeconds()
    domain, clock = Fabric(fabric.replicas_per_domain, width, 1, fabric.topology), system.generation.clock
    shard = tuple(-(-size // domain.replicas) for size in values)
    price = closed_price(Collective.ALL_GATHER, domain, shard, itemsize=itemsize, clock=clock).inside
    return LinkSeconds(price.transfer, latency=price.seconds - price.transfer)


def _busiest(values: tuple[int, ...]) -> float:
    """Values of an IPU on the machine that has most: its four IPUs share a gateway."""
    firsts = range(0, len(values), IPUS_PER_MACHINE)
    return max(float(np.mean(values[first : first + IPUS_PER_MACHINE])) for first in firsts)


@lru_cache(maxsize=65536)  # pure: configurations of a sweep share their collectives
def _reduced(
    system: System, width: int, replicas: int, values: tuple[int, ...], itemsize: int, sharded: bool
) -> LinkSeconds:
    """Price of reducing ``values`` on each IPU; between L domains each IPU sends 2 (L - 1)/L of its fragment."""
    if replicas == 1 or not any(values):
        return LinkSeconds()
    fabric = system.fabric(replicas, width)
    clock = system.generation.clock
    price = closed_price(Collective.ALL_REDUCE, fabric, values, itemsize=itemsize, clock=clock)
    inside, across, count = price.inside, price.across, fabric.domains
    if sharded and fabric.replicas_per_domain > 1:
        domain = Fabric(fabric.replicas_per_domain, width, 1, fabric.topology)
        shard = tuple(-(-size // domain.replicas) for size in values)
        inside = (
            closed_price(Collective.REDUCE_SCATTER, domain, values, itemsize=itemsize, clock=clock).inside
            + closed_price(Collective.ALL_GATHER, domain, shard, itemsize=itemsize, clock=clock).inside
        )
    gateway = 2 * (count - 1) / count * _busiest(values) * itemsize / fabric.replicas_per_domain / GATEWAY_RATE
    latency = inside.seconds - inside.transfer + across.seconds - across.transfer
    return LinkSeconds(inside.transfer, gateway, latency)
