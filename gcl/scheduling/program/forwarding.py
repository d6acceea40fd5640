"""Forwarding: sends the copies of strided groups through the replicas between their members, hop by hop.

    6 replicas, stride 3: 0 3, 1 4, 2 5         exchange, straight        exchange 1   0 > 2 > 3 ...
                                                0 > 3 over rail and rung   exchange 2   ... forward what arrived

One exchange becomes as many as the longest path has hops; each hop is between neighbours, so links cannot deadlock.
Packets in transit are held in two buffers, used in turn. GCL reference, section 11
(syncful.useForwardingToSupportStridedGroups).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from gcl.fabric.fabric import Fabric
from gcl.scheduling.program.step_program import CrossReplicaCopy, Exchange, Slice, StepProgram


def forwarded(program: StepProgram, fabric: Fabric) -> StepProgram:
    """``program`` with every transfer made of hops between neighbouring replicas of ``fabric``."""
    return program.with_exchanges(lambda exchange: _hops(exchange, fabric))


@dataclass
class _Packet:
    """What one replica sends in one copy, and its current place."""

    copy: CrossReplicaCopy
    way: list[int]
    carries: int
    slot: int = 0


@dataclass
class _Layer:
    """Moves that fit into one CrossReplicaCopy: no replica sends or receives twice."""

    copy: CrossReplicaCopy
    first: bool
    last: bool
    moves: list[tuple[int, int, _Packet]] = field(default_factory=list)

    def takes(self, sender: int, receiver: int) -> bool:
        return all(sender != a and receiver != b for a, b, _ in self.moves)


def _hops(exchange: Exchange, fabric: Fabric) -> Iterator[Exchange]:
    packets = [
        _Packet(copy, fabric.way(sender, receiver), copy.carries[sender])
        for copy in exchange.copies
        for sender, receiver in copy.pairs()
    ]
    longest = max((len(packet.way) for packet in packets), default=0) - 1
    if longest <= 1:
        yield exchange
        return
    for hop in range(longest):
        yield Exchange(tuple(_copies(packets, hop, fabric.replicas)))


def _copies(packets: list[_Packet], hop: int, replicas: int) -> Iterator[CrossReplicaCopy]:
    layers: list[_Layer] = []
    for packet in packets:
        if hop < len(packet.way) - 1:
            _place(packet, hop, layers)
    taken: dict[int, int] = {}
    for number, layer in enumerate(layers):
        yield _copy(layer, hop, number, taken, replicas)


def _place(packet: _Packet, hop: int, layers: list[_Layer]) -> None:
    sender, receiver = packet.way[hop : hop + 2]
    first, last = hop == 0, hop == len(packet.way) - 2
    for layer in layers:
        if (layer.copy, layer.first, layer.last) == (packet.copy, first, last) and layer.takes(sender, receiver):
            layer.moves.append((sender, receiver, packet))
            return
    layers.append(_Layer(packet.copy, first, last, [(sender, receiver, packet)]))


def _copy(layer: _Layer, hop: int, number: int, taken: dict[int, int], replicas: int) -> CrossReplicaCopy:
    """One copy of a hop; ``taken`` counts the packets held at each replica."""
    to, carries = list(range(replicas)), list(layer.copy.carries)
    old, new = [0] * replicas, [0] * replicas
    for sender, receiver, packet in layer.moves:
        to[sender], carries[sender], old[sender] = receiver, packet.carries, packet.slot
        if not layer.last:
            packet.slot = taken.get(receiver, 0)
            taken[receiver] = packet.slot + 1
            new[receiver] = packet.slot
    copy = layer.copy
    source = copy.source if layer.first else _stopover(copy.source, hop, old)
    target = copy.target if layer.last else _stopover(copy.source, hop + 1, new)
    name = copy.stream if layer.first and layer.last else f"{copy.stream} hop {hop + 1}.{number + 1}"
    return replace(copy, source=source, target=target, to=tuple(to), carries=tuple(carries), stream=name)


def _stopover(like: Slice, hop: int, slots: list[int]) -> Slice:
    return Slice(f"forward {hop % 2}", tuple(slots), like.low, like.high)
