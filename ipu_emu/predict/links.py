"""Links: seconds of collectives between replicas and of copies between the IPUs of a replica, at nominal rates.

A collective is priced by ``gcl.closed_price``, that is by the method that GCL would choose. Time that depends on the
rate of links (``transfer``, ``gateway``) is separate from time that does not (``latency``: syncs, hops, work of tiles
between exchanges).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from gcl import LINK_BANDWIDTH, Collective, Fabric, LinkClass, closed_price
from ipu_emu.hardware import System
from ipu_emu.hardware.transfer_rates import copy_rate

__all__ = ["GATEWAY_RATE", "LinkSeconds", "Links", "domains_of"]

#: Bytes per second and IPU: a machine's 2 x 100 Gb/s, shared by four IPUs.
GATEWAY_RATE = LINK_BANDWIDTH[LinkClass.GATEWAY] / 4


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


def _fabric(replicas: int, width: int, system: System) -> Fabric:
    """Return a fabric with domains of equal size; ladders have two rails, so one IPU may be unused."""
    domains = int(domains_of(replicas, width, system))
    row = domains * (2 if replicas > 1 and width == 1 else 1)
    return Fabric(-(-replicas // row) * row, width, domains)


@dataclass(frozen=True)
class Links:
    """Prices of collectives of replicas of ``width`` IPUs on ``system``."""

    system: System
    width: int

    def gradients(self, replicas: int, tensors: tuple[int, ...], itemsize: int, *, sharded: bool) -> LinkSeconds:
        """Price of reducing, over all replicas, ``tensors`` (numbers of values) on every IPU.

        ``sharded``: states are sharded over the replicas of a domain, so gradients are reduce-scattered, and updated
        weights gathered.
        """
        parts = (_reduced(self.system, self.width, replicas, size, itemsize, sharded) for size in tensors)
        return sum(parts, LinkSeconds())

    def weights(self, replicas: int, tensors: tuple[int, ...], itemsize: int) -> LinkSeconds:
        """Price of gathering ``tensors`` of weights on every IPU that are sharded over the replicas of a domain."""
        parts = (_gathered(self.system, self.width, replicas, size, itemsize) for size in tensors)
        return sum(parts, LinkSeconds())

    def statistics(self, span: int, channels: int) -> LinkSeconds:
        """Price of adding means and variances of batch normalisation over ``span`` replicas, in FLOAT."""
        return _reduced(self.system, self.width, span, 2 * channels, 4, False)

    def copy(self, source: int, target: int, nbytes: float) -> float:
        """Seconds to copy values from one IPU of a replica to another."""
        return nbytes / copy_rate(Fabric(1, self.width), source, target)


@lru_cache(maxsize=65536)  # pure
def _gathered(system: System, width: int, replicas: int, values: int, itemsize: int) -> LinkSeconds:
    """Price of gathering ``values`` on every IPU from the replicas of its domain."""
    fabric = _fabric(replicas, width, system)
    if fabric.replicas_per_domain == 1 or not values:
        return LinkSeconds()
    domain, clock = Fabric(fabric.replicas_per_domain, width), system.generation.clock
    shard = -(-values * width // domain.replicas)
    made = closed_price(Collective.ALL_GATHER, domain, shard, itemsize=itemsize, clock=clock).inside
    return LinkSeconds(made.transfer, latency=made.seconds - made.transfer)


@lru_cache(maxsize=65536)  # pure: configurations of a sweep share their collectives
def _reduced(system: System, width: int, replicas: int, values: int, itemsize: int, sharded: bool) -> LinkSeconds:
    """Price of reducing ``values`` on every IPU; between L domains each IPU sends 2 (L - 1)/L of its fragment."""
    if replicas == 1 or not values:
        return LinkSeconds()
    fabric = _fabric(replicas, width, system)
    clock, elements = system.generation.clock, values * width
    made = closed_price(Collective.ALL_REDUCE, fabric, elements, itemsize=itemsize, clock=clock)
    inside, across, count = made.inside, made.across, fabric.domains
    if sharded and fabric.replicas_per_domain > 1:
        domain = Fabric(fabric.replicas_per_domain, width)
        shard = -(-elements // domain.replicas)
        inside = (
            closed_price(Collective.REDUCE_SCATTER, domain, elements, itemsize=itemsize, clock=clock).inside
            + closed_price(Collective.ALL_GATHER, domain, shard, itemsize=itemsize, clock=clock).inside
        )
    gateway = 2 * (count - 1) / count * values * itemsize / fabric.replicas_per_domain / GATEWAY_RATE
    latency = inside.seconds - inside.transfer + across.seconds - across.transfer
    return LinkSeconds(inside.transfer, gateway, latency)
