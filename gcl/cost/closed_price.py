"""Closed price: the cost of a collective over all replicas by formulas, without building its schedule.

All exchanges of a ring have the same pattern, and all IPU-Link domains do the same. So one exchange of each phase is
priced, on one domain, and multiplied; ``price`` of the schedule gives the same, but takes minutes for thousands of
replicas.

    phase            exchanges      streams, of a fragment of w elements
    clockwise        n - 1          w
    bidirectional    n - 1          w/2 each way
    meet in middle   n/2            w each way
    quad             n - 1          w/4 each way, on two rings
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from gcl.core.argument_checks import check_whole
from gcl.core.layout import PlainPadding, spread
from gcl.core.request import Collective
from gcl.cost.program_cost import BOW_CLOCK, HOP_SECONDS, Cost, exchange_sync
from gcl.cost.tile_work import CALL_CYCLES, COPY_BYTES_PER_CYCLE, WORD
from gcl.errors import ArgumentError
from gcl.fabric.fabric import LINK_BANDWIDTH, Fabric, Hop, LinkClass, Topology
from gcl.fabric.ring_order import order_of, quad_orders, ring
from gcl.fabric.tile_mapping import EXCHANGE_BYTES_PER_CYCLE, TileBalance, linear, selection
from gcl.scheduling.method_choice import choose
from gcl.scheduling.methods.method import METHODS, Method
from gcl.scheduling.methods.quad_directional_ring import quarter_sizes
from gcl.scheduling.program.torus_turns import pairs

_SCATTER, _GATHER = Collective.REDUCE_SCATTER, Collective.ALL_GATHER


@dataclass(frozen=True)
class ClosedPrice:
    """The cost of the phases ``inside`` IPU-Link domains, and ``across`` them."""

    inside: Cost
    across: Cost

    @property
    def total(self) -> Cost:
        """The sum of both."""
        return self.inside + self.across


def closed_price(
    collective: Collective,
    fabric: Fabric,
    elements: int | Sequence[int],
    *,
    itemsize: int = 4,
    clock: float = BOW_CLOCK,
) -> ClosedPrice:
    """The cost of an all-reduce, reduce-scatter or all-gather over all replicas by the methods that GCL chooses.

    ``elements`` per replica as for ``schedule``: of the whole tensor, for an all-gather of the shard. A sequence has
    those on each IPU of a replica, which all take part in every exchange.
    """
    tensor = _on_ipus(elements, fabric.ipus_per_replica)
    check_whole(itemsize, "itemsize", 1)
    phases = _PHASES.get(collective)
    if phases is None:
        raise ArgumentError(
            f"{collective} has no closed price; use {', '.join(_PHASES)}, or gcl.price for the others"
        )
    inside, across = Cost(), Cost()
    for phase in phases(fabric, tensor, itemsize):
        cost = phase.cost(clock)
        inside, across = (inside + cost, across) if phase.inside else (inside, across + cost)
    return ClosedPrice(inside, across)


def _on_ipus(elements: int | Sequence[int], ipus: int) -> tuple[int, ...]:
    """Elements on each IPU of a replica."""
    if not isinstance(elements, Sequence):
        check_whole(elements, "elements")
        return spread(elements, ipus)
    if len(elements) != ipus:
        raise ArgumentError(f"elements are given for {len(elements)} IPUs, but a replica has {ipus}; give each")
    for count in elements:
        check_whole(count, "elements")
    return tuple(elements)


@dataclass(frozen=True)
class _Phase:
    """A reduce-scatter or all-gather of fragments of ``widths`` elements per IPU round rings of ``length``."""

    collective: Collective
    fabric: Fabric
    inside: bool
    length: int
    method: Method
    widths: tuple[int, ...]
    itemsize: int
    dealt: int = 0
    destination: bool = True

    def cost(self, clock: float) -> Cost:
        if self.length == 1 or not any(self.widths):
            return Cost()
        exchanges = self.length // 2 if self._meets else self.length - 1
        links = hops = waiting = 0.0
        turns = self._turns()
        longest = _ring_loads(self.fabric, self.method).longest if self.inside else 1
        for ipus in turns:
            seconds = self._transfer(ipus)
            most = max(self._on_tile(part) for ipu in ipus for part in self._parts(self.widths[ipu]))
            links += seconds
            hops += longest * HOP_SECONDS
            waiting += max(0.0, most * self.itemsize / EXCHANGE_BYTES_PER_CYCLE / clock - seconds)
        sync = exchange_sync(self.fabric, clock, inside=self.inside)
        compute = max(self._cycles(width, len(turns)) for width in self.widths) / clock
        count = exchanges * len(turns)
        return Cost(count, exchanges * links, exchanges * hops, count * sync, exchanges * waiting + compute)

    @property
    def _meets(self) -> bool:
        return self.method is Method.MEET_IN_MIDDLE_RING and self.length > 2

    def _turns(self) -> list[tuple[int, ...]]:
        """The IPUs of a replica that send in the same exchange."""
        sizes = {ipu: width * (1 + self._meets) for ipu, width in enumerate(self.widths) if width}
        if self.fabric.topology is Topology.TORUS and self.fabric.ipus_per_replica > 2:
            return pairs(sizes)
        return [tuple(sizes)]

    def _parts(self, width: int) -> list[int]:
        """Elements of every stream of a fragment."""
        if self._meets:
            return [width, width]
        if self.method is Method.BIDIRECTIONAL_RING_PAIR:
            return [width // 2, width - width // 2]
        if self.method is Method.QUAD_DIRECTIONAL_RING:
            return quarter_sizes(width)
        return [width]

    def _transfer(self, ipus: Sequence[int]) -> float:
        """Seconds of the busiest link in an exchange of the IPUs ``ipus`` of every replica."""
        sent = np.zeros((self.fabric.ipus_per_replica, len(self._parts(0))))
        for ipu in ipus:
            sent[ipu] = self._parts(self.widths[ipu])
        sent *= self.itemsize
        if self.inside:
            return _ring_loads(self.fabric, self.method).seconds(sent)
        return max(map(sum, self._by_machine(sent.sum(axis=1)))) / LINK_BANDWIDTH[LinkClass.GATEWAY]

    def _by_machine(self, sent: NDArray[np.float64]) -> list[list[float]]:
        """What the IPUs of each machine of a domain send to the next domain."""
        all_ipus = np.tile(sent, self.fabric.replicas_per_domain).tolist()
        return [all_ipus[first : first + 4] for first in range(0, len(all_ipus), 4)]

    def _cycles(self, width: int, turns: int) -> float:
        """Cycles of the tiles of an IPU between the exchanges; the steps are those of ``gcl.scheduling.methods``."""
        if not width:
            return 0.0
        if self._meets:
            return self._meeting_cycles(width, turns)
        select = sum(self._selected(part) for part in self._parts(width))
        store = sum(self._stored(part) for part in self._parts(width) if part)
        steps = self.length - 1
        if self.collective is _SCATTER:
            return turns * select + steps * (select + store)
        return select + store + turns * steps * 2 * select

    def _meeting_cycles(self, width: int, turns: int) -> float:
        select, store, half = self._selected(width), self._stored(width), self.length // 2
        idle = self.length % 2 == 0  # one direction has a transfer that is not used
        if self.collective is _GATHER:
            return select + store + turns * (4 * half - idle) * select
        between = 2 * (half - 1 - idle) * (select + store)
        once = select + store if idle else 0.0
        return turns * (2 + idle) * select + once + between + select + 2 * store

    def _selected(self, elements: int) -> float:
        dynamic = selection(self._on_tile(max(self.widths)), destination=self.destination) == "dynamic slice"
        return self._on_tile(elements) * self.itemsize / (WORD if dynamic else COPY_BYTES_PER_CYCLE)

    def _stored(self, elements: int) -> float:
        return CALL_CYCLES + self._on_tile(elements) * self.itemsize / COPY_BYTES_PER_CYCLE

    def _on_tile(self, elements: int) -> int:
        tensor = max(self.widths) * self.length
        return min(elements, _on_tile(tensor, self.itemsize, self.dealt, elements))


@lru_cache(maxsize=4096)  # pure: tensors of a model repeat their sizes
def _on_tile(tensor: int, itemsize: int, dealt: int, elements: int) -> int:
    """Elements of a slice of ``elements`` on the tile that has most of it."""
    sizes = linear(tensor, itemsize)
    if not dealt:
        return max(sizes, default=0)
    balance = TileBalance(sizes, dealt, itemsize)
    return -(-elements // max(1, balance.fragment)) * balance.on_tile


@dataclass(frozen=True)
class _RingLoads:
    """The number of times that streams cross each capacity in one exchange: [capacity, IPU of a replica, stream]."""

    counts: NDArray[np.float64]
    bandwidth: NDArray[np.float64]
    longest: int

    def seconds(self, sent: NDArray[np.float64]) -> float:
        """Seconds of the busiest capacity, if IPUs send ``sent`` [IPU, stream] bytes."""
        return float((np.tensordot(self.counts, sent, 2) / self.bandwidth).max())


#: (direction, number of the ring order) of the streams of a method.
_WAYS: dict[Method, tuple[tuple[int, int], ...]] = {
    Method.CLOCKWISE_RING: ((1, 0),),
    Method.BIDIRECTIONAL_RING_PAIR: ((1, 0), (-1, 0)),
    Method.MEET_IN_MIDDLE_RING: ((1, 0), (-1, 0)),
    Method.QUAD_DIRECTIONAL_RING: ((1, 0), (1, 1), (-1, 0), (-1, 1)),
}


def _ring_loads(fabric: Fabric, method: Method) -> _RingLoads:
    domain = Fabric(fabric.replicas_per_domain, fabric.ipus_per_replica, 1, fabric.topology, fabric.configuration)
    short = domain.replicas <= 2 and method is Method.MEET_IN_MIDDLE_RING
    return _loads_in_domain(domain, Method.CLOCKWISE_RING if short else method)


@lru_cache(maxsize=512)  # pure: one entry for each kind of domain
def _loads_in_domain(domain: Fabric, method: Method) -> _RingLoads:
    n, ways = domain.replicas, _WAYS[method]
    names = quad_orders(domain) if method is Method.QUAD_DIRECTIONAL_RING else (order_of(domain),)
    orders = [ring(name, n) for name in names]
    rows: dict[Hop, NDArray[np.float64]] = {}
    longest = 0
    for stream, (step, number) in enumerate(ways):
        order = orders[number]
        for index, sender in enumerate(order):
            receiver = order[(index + step) % n]
            for ipu in range(domain.ipus_per_replica):
                route = domain.route(domain.ipus_of(sender)[ipu], domain.ipus_of(receiver)[ipu])
                longest = max(longest, len(route))
                for hop in route:
                    row = rows.setdefault(hop, np.zeros((domain.ipus_per_replica, len(ways))))
                    row[ipu, stream] += 1
    bandwidth = np.array([LINK_BANDWIDTH[hop.link] for hop in rows])
    return _RingLoads(np.stack(list(rows.values())), bandwidth, longest)


def _chosen(collective: Collective, nbytes: int, fabric: Fabric, length: int, inside: bool) -> Method:
    return choose(collective, nbytes, fabric, length, within=inside).method


def _levels(fabric: Fabric) -> list[tuple[bool, int]]:
    """(inside a domain, replicas in a ring) of every level."""
    inside = [(True, fabric.replicas_per_domain)] if fabric.replicas_per_domain > 1 or fabric.domains == 1 else []
    return inside + ([(False, fabric.domains)] if fabric.domains > 1 else [])


def _all_reduce(fabric: Fabric, tensor: tuple[int, ...], itemsize: int) -> list[_Phase]:
    phases: list[_Phase] = []
    for inside, length in _levels(fabric):
        scatter = _chosen(_SCATTER, sum(tensor) * itemsize, fabric, length, inside)
        padding = PlainPadding(length, tensor, METHODS[scatter].splits)
        gather = _chosen(_GATHER, padding.shard * itemsize, fabric, length, inside)
        dealt = length * (2 if max(METHODS[way].splits for way in (scatter, gather)) > 1 else 1)
        for collective, method in ((_SCATTER, scatter), (_GATHER, gather)):
            phases.append(_Phase(collective, fabric, inside, length, method, padding.widths, itemsize, dealt))
        tensor = padding.widths
    return phases


def _reduce_scatter(fabric: Fabric, tensor: tuple[int, ...], itemsize: int) -> list[_Phase]:
    (inside, length), *rest = _levels(fabric)
    first = _chosen(_SCATTER, sum(tensor) * itemsize, fabric, length, inside)
    padding = PlainPadding(fabric.replicas, tensor, METHODS[first].splits)
    if not rest:
        return [_Phase(_SCATTER, fabric, inside, length, first, padding.widths, itemsize)]
    second = _chosen(_SCATTER, fabric.domains * padding.shard * itemsize, fabric, fabric.domains, False)
    padding = PlainPadding(fabric.replicas, tensor, max(METHODS[way].splits for way in (first, second)))
    wide = tuple(fabric.domains * width for width in padding.widths)
    return [
        _Phase(_SCATTER, fabric, True, length, first, wide, itemsize),
        _Phase(_SCATTER, fabric, False, fabric.domains, second, padding.widths, itemsize),
    ]


def _all_gather(fabric: Fabric, widths: tuple[int, ...], itemsize: int) -> list[_Phase]:
    phases: list[_Phase] = []
    for inside, length in reversed(_levels(fabric)):
        method = _chosen(_GATHER, sum(widths) * itemsize, fabric, length, inside)
        phases.append(_Phase(_GATHER, fabric, inside, length, method, widths, itemsize, destination=False))
        widths = tuple(length * width for width in widths)
    return phases


_PHASES = {
    Collective.ALL_REDUCE: _all_reduce,
    Collective.REDUCE_SCATTER: _reduce_scatter,
    Collective.ALL_GATHER: _all_gather,
}
