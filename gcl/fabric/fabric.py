"""Fabric: the IPUs of a job, the links between them, and the routes from one IPU to another.

One IPU-Link domain is a ladder; domains are connected machine by machine through GW-Links:

    domain 0                     domain 1
    row 3    6 ===== 7                14 ===== 15        === rung, 4 of 6 links    58.41 GB/s
             |       |   machine 1     |        |         |  rail, 2 links         29.21 GB/s
    row 2    4 ===== 5  - - - - - -   12 ===== 13        - - GW-Link per machine   25 GB/s
             |       |                 |        |
    row 1    2 ===== 3                10 ===== 11        position 0 to 3 in a machine:  2 3
             |       |   machine 0     |        |                                        0 1
    row 0    0 ===== 1  - - - - - -    8 =====  9

A torus adds loop-back cables from the top row to row 0. Barley twist is a torus whose two serpent rings use every
rail and rung in both directions. The first and the last domain are connected too. Rates are those of
hardware.md, sections 5 and 8, per direction.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from enum import StrEnum

from gcl.core.argument_checks import is_whole
from gcl.errors import ArgumentError

#: Most IPUs that IPU-Links alone can connect: one Pod64.
MAX_DOMAIN = 64
_IPUS_PER_MACHINE = 4
_REPLICA_SIZES = (1, 2, 4, 8, 16)


class Topology(StrEnum):
    """How the rails of a domain end."""

    MESH = "mesh"
    TORUS = "torus"

    @classmethod
    def of_domain(cls, ipus: int) -> Topology:
        """The default for a domain of ``ipus``: loop-back cables join top and bottom of a full Pod64 only.

        The user guide's default is a mesh; PopRun's logs of Pod64 have ipuLinkTopology=torus.
        """
        return cls.TORUS if ipus == MAX_DOMAIN else cls.MESH


class LinkConfiguration(StrEnum):
    """Poplar's ipuLinkConfiguration."""

    DEFAULT = "Default"
    BARLEY_TWIST = "BarleyTwist"
    SLIDING_WINDOW = "SlidingWindow"
    NONE = "None"


class LinkClass(StrEnum):
    """Links that share one capacity at an IPU (GATEWAY: at an IPU-Machine)."""

    RUNG = "rung"
    CROSS = "rung then rail"
    UP = "rail up"
    DOWN = "rail down"
    GATEWAY = "GW-Link"


def _ipu_links(count: int) -> float:
    return count * 128 * 1024**3 * 0.85 / 8


#: Bytes per second and direction of each class.
LINK_BANDWIDTH: dict[LinkClass, float] = {
    LinkClass.RUNG: _ipu_links(4),
    LinkClass.CROSS: _ipu_links(2),
    LinkClass.UP: _ipu_links(2),
    LinkClass.DOWN: _ipu_links(2),
    LinkClass.GATEWAY: 25e9,
}

#: (configuration, topology) -> IPUs per replica with which collectives work; one replica per domain always does.
#: The reference's "SlidingWindow with 1, 2, or 4 on a torus" is read as: 4 needs the torus, 1 and 2 do not.
_SUPPORTED: dict[tuple[LinkConfiguration, Topology], tuple[int, ...]] = {
    (LinkConfiguration.DEFAULT, Topology.MESH): (1, 2, 4, 8, 16),
    (LinkConfiguration.DEFAULT, Topology.TORUS): (1, 2, 4, 8, 16),
    (LinkConfiguration.BARLEY_TWIST, Topology.TORUS): (1,),
    (LinkConfiguration.SLIDING_WINDOW, Topology.MESH): (1, 2),
    (LinkConfiguration.SLIDING_WINDOW, Topology.TORUS): (1, 2, 4),
}


_NAMED: dict[str, type[Topology] | type[LinkConfiguration]] = {
    "topology": Topology,
    "configuration": LinkConfiguration,
}


@dataclass(frozen=True)
class Hop:
    """One link on a route: the capacity of ``link`` at ``owner`` (an IPU; for GATEWAY an IPU-Machine)."""

    owner: int
    link: LinkClass


@dataclass(frozen=True)
class Fabric:
    """``replicas`` of ``ipus_per_replica`` IPUs each, numbered upwards, spread evenly over ``domains``.

    Replica r holds IPUs r k .. r k + k - 1. ``topology`` and ``configuration`` may be given by name. Raises
    ArgumentError naming all mistakes.
    """

    replicas: int
    ipus_per_replica: int = 1
    domains: int = 1
    topology: Topology = Topology.MESH
    configuration: LinkConfiguration = LinkConfiguration.DEFAULT

    def __post_init__(self) -> None:
        for field, kind in _NAMED.items():
            value = getattr(self, field)
            object.__setattr__(self, field, kind(value) if value in list(kind) else value)
        faults = self._type_faults() or self._size_faults() or self._configuration_faults()
        if faults:
            raise ArgumentError("; ".join(faults))

    def _type_faults(self) -> list[str]:
        numbers = {name: getattr(self, name) for name in ("replicas", "ipus_per_replica", "domains")}
        faults = [
            f"{name}={number!r} is not valid; give a whole number"
            for name, number in numbers.items()
            if not is_whole(number, least=-sys.maxsize)
        ]
        faults += [
            f"{field}={getattr(self, field)!r} is not valid; use {', '.join(kind)}"
            for field, kind in _NAMED.items()
            if not isinstance(getattr(self, field), kind)
        ]
        return faults

    def _size_faults(self) -> list[str]:
        faults = []
        if self.ipus_per_replica > 1 and self.ipus_per_replica % 2:
            faults.append(f"Odd sized replicas are unsupported: {self.ipus_per_replica} IPUs per replica")
        elif self.ipus_per_replica not in _REPLICA_SIZES:
            faults.append(f"{self.ipus_per_replica} IPUs per replica are not supported; use 1, 2, 4, 8 or 16")
        if self.replicas < 1 or self.domains < 1:
            faults.append(f"{self.replicas} replicas over {self.domains} IPU-Link domains: both must be at least 1")
        elif self.replicas % self.domains:
            faults.append(
                f"{self.replicas} replicas over {self.domains} IPU-Link domains: {self.replicas} is not divisible "
                f"by {self.domains}"
            )
        elif self.ipus_per_domain > MAX_DOMAIN:
            least = -(-self.replicas * self.ipus_per_replica // MAX_DOMAIN)
            faults.append(
                f"{self.ipus_per_domain} IPUs in one IPU-Link domain are too many; a domain has at most "
                f"{MAX_DOMAIN}, so use at least {least} domains"
            )
        return faults

    def _configuration_faults(self) -> list[str]:
        sizes = _SUPPORTED.get((self.configuration, self.topology), ())
        if self.replicas_per_domain == 1 or self.ipus_per_replica in sizes:
            return []
        return [
            f"Unsupported GCL link configuration {self.configuration} on a {self.topology} with "
            f"{self.ipus_per_replica} IPUs per replica; {_supported(self.configuration)}"
        ]

    def __str__(self) -> str:
        return (
            f"{self.replicas} replicas x {self.ipus_per_replica} IPUs in {self.domains} IPU-Link domains, "
            f"{self.topology}, {self.configuration}"
        )

    # ---------------------------------------------------------------- numbering

    @property
    def ipus(self) -> int:
        """Number of IPUs over all replicas."""
        return self.replicas * self.ipus_per_replica

    @property
    def replicas_per_domain(self) -> int:
        """R, the ring length within a domain."""
        return self.replicas // self.domains

    @property
    def ipus_per_domain(self) -> int:
        """Number of IPUs in each IPU-Link domain."""
        return self.replicas_per_domain * self.ipus_per_replica

    @property
    def rows(self) -> int:
        """Rows of the ladder of one domain."""
        return -(-self.ipus_per_domain // 2)

    @property
    def ladder(self) -> str:
        """mesh, torus or barley_twist."""
        return "barley_twist" if self.configuration is LinkConfiguration.BARLEY_TWIST else str(self.topology)

    def ipus_of(self, replica: int) -> range:
        """The IPUs of ``replica``."""
        return range(replica * self.ipus_per_replica, (replica + 1) * self.ipus_per_replica)

    def replica_of(self, ipu: int) -> int:
        """The replica of ``ipu``."""
        return ipu // self.ipus_per_replica

    def domain_of(self, ipu: int) -> int:
        """The IPU-Link domain of ``ipu``."""
        return ipu // self.ipus_per_domain

    def machine_of(self, ipu: int) -> int:
        """The IPU-Machine of ``ipu``, counted through all domains."""
        machines = -(-self.ipus_per_domain // _IPUS_PER_MACHINE)
        return self.domain_of(ipu) * machines + ipu % self.ipus_per_domain // _IPUS_PER_MACHINE

    def coordinates(self, ipu: int) -> tuple[int, int, int]:
        """(domain, row, rail) of ``ipu``; rail 0 is the left one."""
        index = ipu % self.ipus_per_domain
        return self.domain_of(ipu), index // 2, index % 2

    # ---------------------------------------------------------------- links and routes

    def neighbours(self, ipu: int) -> set[int]:
        """IPUs one link away from ``ipu``: rung, rails, loop-back, and the same place in adjacent domains."""
        domain, row, rail = self.coordinates(ipu)
        near = {self._at(domain, row, 1 - rail)}
        for step in (-1, 1):
            beyond = row + step
            if self.topology is Topology.TORUS:
                beyond %= self.rows
            if 0 <= beyond < self.rows:
                near.add(self._at(domain, beyond, rail))
            near.add(self._at((domain + step) % self.domains, row, rail))
        return {other for other in near if other < self.ipus} - {ipu}

    def route(self, source: int, target: int) -> tuple[Hop, ...]:
        """The capacities that traffic from IPU ``source`` to IPU ``target`` uses, in order.

        A route changes the rail first, then the row, then the domain (directly through the GW switch). On a torus
        it takes the shorter direction along the rows, and not the loop-back if both are equal. Raises ArgumentError
        for a domain with an odd number of IPUs above one, which cannot form a ladder.
        """
        if self.ipus_per_domain > 1 and self.ipus_per_domain % 2:
            raise ArgumentError(
                f"{self.ipus_per_domain} IPUs in one domain form no ladder, which has pairs; "
                "use an even number of IPUs, or one"
            )
        domain, row, rail = self.coordinates(source)
        far, target_row, target_rail = self.coordinates(target)
        hops: list[Hop] = []
        if rail != target_rail:
            hops.append(Hop(source, LinkClass.RUNG if row == target_row else LinkClass.CROSS))
        link, step = self._direction(row, target_row, self.rows)
        while row != target_row:
            hops.append(Hop(self._at(domain, row, target_rail), link))
            row = (row + step) % self.rows
        if far != domain:
            hops.append(Hop(self.machine_of(self._at(domain, row, target_rail)), LinkClass.GATEWAY))
        return tuple(hops)

    def way(self, source: int, target: int) -> list[int]:
        """The replicas on the path from ``source`` to ``target``, neighbour by neighbour; another domain is one hop.

        Between replicas of one IPU the path follows ``route``; larger replicas pass the replicas between them.
        """
        if self.domain_of(self.ipus_of(source)[0]) != self.domain_of(self.ipus_of(target)[0]):
            return [source, target]
        per_row = 2 if self.ipus_per_replica == 1 else 1
        first = source - source % self.replicas_per_domain
        (row, rail), (end, side) = divmod(source - first, per_row), divmod(target - first, per_row)
        if (
            first + row * per_row + side >= first + self.replicas_per_domain
        ):  # an odd replica in the top row has no rung
            return self.way(target, source)[::-1]
        rows, way = -(-self.replicas_per_domain // per_row), [source]
        if rail != side:
            way.append(first + row * per_row + side)
        _, step = self._direction(row, end, rows)
        while row != end:
            row = (row + step) % rows
            way.append(first + row * per_row + side)
        return way

    def _direction(self, row: int, target: int, rows: int) -> tuple[LinkClass, int]:
        up = target > row
        if self.topology is Topology.TORUS and 2 * abs(target - row) > rows:
            up = not up
        return (LinkClass.UP, 1) if up else (LinkClass.DOWN, -1)

    def _at(self, domain: int, row: int, rail: int) -> int:
        return domain * self.ipus_per_domain + 2 * row + rail


def _supported(configuration: LinkConfiguration) -> str:
    """The sizes and topologies that ``configuration`` supports, for messages."""
    rows = [
        f"{', '.join(map(str, sizes))} on a {topology}"
        for (name, topology), sizes in _SUPPORTED.items()
        if name is configuration
    ]
    if not rows:
        return "use Default, BarleyTwist or SlidingWindow"
    return "it works with " + " and ".join(rows)
