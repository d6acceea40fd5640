"""Rates: nominal rates of transfers, and the fractions of nominal rates that a modelled machine reaches."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from gcl import LINK_BANDWIDTH, Fabric, LinkClass
from ipu_emu.hardware.generation import Generation

#: Hosts that meet in one group.
_GROUP = 64
#: Bytes per second of a machine's network, and of an IPU's link to the gateway of Streaming Memory.
NETWORK, GATEWAY_LINK = 12.5e9, 16e9
_IPUS_PER_MACHINE = 4


@dataclass(frozen=True)
class Rates:
    """Fractions of nominal rates that are reached; ``collectives`` is the factor of an older software release.

    ``host_wait``: seconds that a step waits for each further host. ``convolution`` and ``product``: fractions of the
    peak rate of the matrix units; the exchange of operands takes part of the rest. ``factors`` scale rates by name in
    a what-if: matrix, vector, ipu-links, gw-links, host, streaming, clock.
    """

    convolution: float = 1.0
    product: float = 1.0
    links: float = 1.0
    gateway: float = 1.0
    collectives: float = 1.0
    host_wait: float = 0.0
    factors: dict[str, float] = field(default_factory=dict)

    def factor(self, name: str) -> float:
        return self.factors.get(name, 1.0)

    def waits(self, hosts: Any) -> Any:
        """Seconds until ``hosts`` (a number or an array of numbers) have met, one after the other, at a collective.

        More than 64 hosts are assumed to meet in groups of up to 64 first, then the groups.
        """
        return self.host_wait * (np.minimum(hosts, _GROUP) - 1 + np.ceil(hosts / _GROUP) - 1)

    def what_if(self, factors: dict[str, float]) -> Rates:
        """These rates with further ``factors``."""
        return replace(self, factors=self.factors | {n: self.factor(n) * f for n, f in factors.items()})


NOMINAL = Rates()
#: What programs reach about, for choices that do not wait for a calibration.
TYPICAL = Rates(convolution=0.3, product=0.33)


@dataclass(frozen=True)
class LinkRate:
    """A kind of link: nominal bytes per second in each direction, those that the model uses, and why they differ."""

    name: str
    nominal: float
    modelled: float
    why: str

    def __str__(self) -> str:
        return f"{self.nominal / 1e9:g} GB/s each way, {self.modelled / 1e9:.4g} modelled: {self.why}"


def link_rates(kind: Generation) -> list[LinkRate]:
    """The rates of the links of an IPU of this ``kind``, as the product documents and the model count them."""
    coded, gateway = "x 128 Gib/s x 0.85, for packets and codes", LINK_BANDWIDTH[LinkClass.GATEWAY]
    rail, rung = LINK_BANDWIDTH[LinkClass.UP], LINK_BANDWIDTH[LinkClass.RUNG]
    rates = [
        LinkRate("a rail", 32e9, rail, f"64 GB/s bidirectional is 2 links of 16 GB/s each way; 2 {coded}"),
        LinkRate("a rung", 96e9, rung, f"6 links of 16 GB/s, 2 of which are for traffic that goes on; 4 {coded}"),
    ]
    if kind.pods is None:
        return rates
    return [
        *rates,
        LinkRate("GW-Links", 25e9, gateway, f"2 x 100 GbE of a machine; {gateway / 4e9:g} GB/s for each IPU"),
        LinkRate("host", NETWORK, NETWORK, f"100 GbE of a machine; {NETWORK / 4e9:g} GB/s if all four IPUs transfer"),
        LinkRate("gateway", 16e9, GATEWAY_LINK, "PCIe Gen4 x8 of an IPU, also to Streaming Memory"),
    ]


def host_rate(ipus: int) -> float:
    """Bytes per second between the host and a replica of ``ipus`` IPUs; the host serves one replica at a time."""
    return min(GATEWAY_LINK, NETWORK / max(1, _IPUS_PER_MACHINE // ipus))


def copy_rate(fabric: Fabric, source: int, target: int) -> float:
    """Bytes per second from the IPU at position ``source`` of a ladder to the one at ``target``."""
    return min(LINK_BANDWIDTH[hop.link] for hop in fabric.route(source, target))
