"""Program cost: modelled seconds of step programs on a fabric, and the memory that they take on a tile.

An exchange is a sync followed by all transfers in parallel. A transfer from replica to replica goes from each IPU to
its counterpart along ``Fabric.route``; every (IPU, link class) on the route is a capacity shared by all transfers:

    seconds of an exchange = sync + hop latency + max over capacities of (bytes through it / bandwidth)

A sync takes 15 ns in each direction per hop, over 1 + (IPUs // 2) // 2 hops, but at least 600 cycles (hardware.md,
sections 2, 5 and 6). The hops are those of a ladder, so they count within an IPU-Link domain; an exchange between
domains waits for one hop more. No latency of a link is published: the longest route of an exchange adds 15 ns per
link. Between exchanges tiles select, add and store fragments; ``compute`` is the time of this work, and the time
that links wait for the fullest tile (``gcl.cost.tile_work``).
"""

from __future__ import annotations

from dataclasses import dataclass

from gcl.cost.tile_work import TileMemory, TileWork
from gcl.fabric.fabric import LINK_BANDWIDTH, Fabric, Hop
from gcl.scheduling.phases import IPU_LINKS, ProgramPhase
from gcl.scheduling.program.step_program import Exchange
from gcl.scheduling.schedule import Schedule

#: Tile clock of a Bow IPU in Hz.
BOW_CLOCK = 1.85e9
HOP_SECONDS = 15e-9
_LEAST_SYNC_CYCLES = 600


@dataclass(frozen=True)
class Cost:
    """Modelled seconds of ``exchanges`` exchanges by cause; ``compute`` is the work of tiles."""

    exchanges: int = 0
    transfer: float = 0.0
    hops: float = 0.0
    sync: float = 0.0
    compute: float = 0.0

    @property
    def seconds(self) -> float:
        """Modelled seconds, all parts added up."""
        return self.transfer + self.hops + self.sync + self.compute

    def __add__(self, other: Cost) -> Cost:
        return Cost(
            self.exchanges + other.exchanges,
            self.transfer + other.transfer,
            self.hops + other.hops,
            self.sync + other.sync,
            self.compute + other.compute,
        )


@dataclass(frozen=True)
class Price:
    """The cost of a schedule by phase, with the links of each phase and its memory on the fullest tile."""

    phases: tuple[Cost, ...]
    links: tuple[str, ...] = ()
    memory: tuple[TileMemory, ...] = ()

    @property
    def total(self) -> Cost:
        """The sum of the costs of all phases."""
        return sum(self.phases, Cost())

    @property
    def inside(self) -> Cost:
        """The sum of the costs of the phases inside IPU-Link domains."""
        return self._over(inside=True)

    @property
    def across(self) -> Cost:
        """The sum of the costs of the phases across domains."""
        return self._over(inside=False)

    def _over(self, *, inside: bool) -> Cost:
        pairs = zip(self.phases, self.links, strict=True)
        return sum((cost for cost, links in pairs if (links == IPU_LINKS) == inside), Cost())

    @property
    def tile_memory(self) -> TileMemory:
        """The largest need of any phase: phases use the same memory in turn."""
        return max(self.memory, key=lambda memory: memory.nbytes, default=TileMemory(0, 0))


def sync_seconds(ipus: int, clock: float = BOW_CLOCK) -> float:
    """Seconds of a global sync of ``ipus`` IPUs whose tiles run at ``clock`` Hz."""
    return max(_LEAST_SYNC_CYCLES / clock, 2 * HOP_SECONDS * (1 + ipus // 2 // 2))


def exchange_sync(fabric: Fabric, clock: float, *, inside: bool) -> float:
    """Seconds of the sync before an exchange ``inside`` IPU-Link domains, or between them."""
    return sync_seconds(fabric.ipus_per_domain, clock) + (0.0 if inside else 2 * HOP_SECONDS)


def price(schedule: Schedule, clock: float = BOW_CLOCK) -> Price:
    """The modelled cost of ``schedule`` on its fabric; ArgumentError for an odd number of IPUs per domain."""
    work = [TileWork(schedule, phase) for phase in schedule.phases]
    costs = [_cost(phase, schedule, tiles, clock) for phase, tiles in zip(schedule.phases, work, strict=True)]
    costs[0] += Cost(compute=work[0].copy_in_cycles / clock)
    costs[-1] += Cost(compute=work[-1].copy_out_cycles / clock)
    return Price(tuple(costs), tuple(phase.links for phase in schedule.phases), tuple(tiles.memory for tiles in work))


def _cost(phase: ProgramPhase, schedule: Schedule, tiles: TileWork, clock: float) -> Cost:
    """The cost of a phase; exchanges with the same pattern (as the steps of a ring) are computed once."""
    known: dict[frozenset[tuple[tuple[int, ...], int, int, str]], Cost] = {}
    total = Cost(compute=tiles.cycles / clock)
    sync = exchange_sync(schedule.fabric, clock, inside=phase.links == IPU_LINKS)
    for exchange in phase.program.exchanges:
        pattern = frozenset((copy.to, copy.ipu, copy.source.elements, copy.stream) for copy in exchange.copies)
        if pattern not in known:
            links, hops = _links(exchange, schedule.fabric, schedule.itemsize)
            waiting = max(0.0, tiles.exchange_cycles(exchange) / clock - links)
            known[pattern] = Cost(1, links, hops * HOP_SECONDS, sync, waiting)
        total += known[pattern]
    return total


def _links(exchange: Exchange, fabric: Fabric, itemsize: int) -> tuple[float, int]:
    """Seconds of the busiest link, and the hops of the longest route."""
    load: dict[Hop, int] = {}
    longest = 0
    for copy in exchange.copies:
        for sender, receiver in copy.pairs():
            route = fabric.route(fabric.ipus_of(sender)[copy.ipu], fabric.ipus_of(receiver)[copy.ipu])
            longest = max(longest, len(route))
            for hop in route:
                load[hop] = load.get(hop, 0) + copy.source.elements * itemsize
    slowest = max((nbytes / LINK_BANDWIDTH[hop.link] for hop, nbytes in load.items()), default=0.0)
    return slowest, longest
