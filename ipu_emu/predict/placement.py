"""Placement: which blocks of a network are on which IPU of a replica.

    BERT-large on 4 IPUs, layers 3, 7, 7, 7, embedding on IPU 0

    IPU 0   embedding, layers 0 to 2, words (the table is tied: it stays with the embedding)
    IPU 1   layers 3 to 9
    IPU 2   layers 10 to 16
    IPU 3   layers 17 to 23, pooler, pair

Layers stay in order. Without given numbers they are divided to minimise the work of the busiest IPU; every IPU has a
block. Layers stay whole unless there are too few of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from ipu_emu.errors import EmulatorError
from ipu_emu.predict.networks import BlockKind, Network, NetworkBlock

__all__ = ["Placement", "annotated", "balanced", "given"]

#: The blocks of each IPU.
Placement = tuple[tuple[NetworkBlock, ...], ...]

_PARTS = (BlockKind.ATTENTION, BlockKind.FEED_FORWARD)


def _is_layer(block: NetworkBlock) -> bool:
    return block.kind in (BlockKind.ATTENTION, BlockKind.FEED_FORWARD, BlockKind.LAYER)


def _ends(network: Network, embedding_ipu: int, first: int, last: int) -> dict[int, list[NetworkBlock]]:
    """The blocks outside layers, by IPU; ``first`` and ``last``: the IPUs of the first and last layers."""
    places: dict[int, list[NetworkBlock]] = {}
    for block in network.blocks:
        if not _is_layer(block):
            at = last if block.kind is BlockKind.HEAD else first
            if block.kind is BlockKind.EMBEDDING or block.tied:
                at = embedding_ipu
            places.setdefault(at, []).append(block)
    return places


def _joined(
    network: Network, layers: Sequence[Sequence[NetworkBlock]], ends: dict[int, list[NetworkBlock]]
) -> Placement:
    """The blocks of each IPU in the order of the forward pass."""
    names = {block.name: index for index, block in enumerate(network.blocks)}
    together = ([*layers[ipu], *ends.get(ipu, [])] for ipu in range(len(layers)))
    return tuple(tuple(sorted(blocks, key=lambda block: names[block.name])) for blocks in together)


def given(network: Network, counts: Sequence[tuple[int, int]], embedding_ipu: int = 0) -> Placement:
    """``counts``: attention and feed-forward parts on each IPU; for networks without them, layers (twice)."""
    parts = [block for block in network.blocks if _is_layer(block)]
    wanted = (sum(one for one, _ in counts), sum(other for _, other in counts))
    has = tuple(sum(block.kind is kind for block in parts) for kind in _PARTS)
    whole = not any(has)
    has = (len(parts), len(parts)) if whole else has
    if wanted != has:
        layers = f"{has[0]} layers" if has[0] == has[1] else f"{has[0]} attention and {has[1]} feed-forward parts"
        asked = f"{wanted[0]}" if wanted[0] == wanted[1] else f"{wanted[0]} and {wanted[1]}"
        raise EmulatorError(f"--layers adds up to {asked}; {network.name} has {layers}")
    left: list[list[NetworkBlock]] = []
    rest = list(parts)
    for attention, feed_forward in counts:
        quota = {BlockKind.ATTENTION: attention, BlockKind.FEED_FORWARD: feed_forward, BlockKind.LAYER: attention}
        here: list[NetworkBlock] = []
        while rest and quota[rest[0].kind]:
            quota[rest[0].kind] -= 1
            here.append(rest.pop(0))
        left.append(here)
        if any(quota[kind] for kind in (_PARTS if not whole else (BlockKind.LAYER,))):
            raise EmulatorError(
                f"--layers {attention}/{feed_forward} on IPU {len(left) - 1}: the parts of layers are in order, "
                "attention before feed-forward; an IPU may have one more of one kind only at the ends of its range"
            )
    used = [ipu for ipu, blocks in enumerate(left) if blocks] or [0]
    return _joined(network, left, _ends(network, embedding_ipu, used[0], used[-1]))


def annotated(network: Network, ipus: int) -> Placement:
    """The placement that the network sets for its blocks."""
    missing = sorted(home for home in network.homes if not 0 <= home < ipus)
    if missing:
        raise EmulatorError(f"{network.name} has ops on IPU {missing[-1]}; a replica has IPUs 0 to {ipus - 1}")
    return tuple(tuple(block for block in network.blocks if block.home == ipu) for ipu in range(ipus))


def balanced(network: Network, ipus: int, cost: Callable[[NetworkBlock], float], embedding_ipu: int = 0) -> Placement:
    """The placement with the lowest maximum ``cost`` of an IPU."""
    ends = _ends(network, embedding_ipu, 0, ipus - 1)
    least = [int(ipu not in ends) for ipu in range(ipus)]
    groups = _whole_layers(network)
    if len(groups) < sum(least):
        groups = [[block] for block in network.blocks if _is_layer(block)]
    if len(groups) < sum(least):
        least = [0] * ipus
    fixed = [sum(cost(block) for block in ends.get(ipu, [])) for ipu in range(ipus)]
    costs = [sum(map(cost, group)) for group in groups]
    low, high = 0.0, sum(costs) + max(fixed)
    best = _fill(costs, fixed, least, math.inf)  # the sum has lost digits of costs that are much smaller than others
    for _ in range(60):
        middle = (low + high) / 2
        tried = _fill(costs, fixed, least, middle)
        if tried is None:
            low = middle
        else:
            best, high = tried, middle
    assert best is not None, "an unlimited capacity holds all"
    layers, start = [], 0
    for count in best:
        layers.append([block for group in groups[start : start + count] for block in group])
        start += count
    return _joined(network, layers, ends)


def _fill(costs: Sequence[float], fixed: Sequence[float], least: Sequence[int], capacity: float) -> list[int] | None:
    """How many layers each IPU takes in turn without exceeding ``capacity``; None if some are left over.

    Later IPUs get at ``least`` their minimum.
    """
    counts, at = [], 0
    for ipu, before in enumerate(fixed):
        room, start, end = capacity - before, at, len(costs) - sum(least[ipu + 1 :])
        while at < end and costs[at] <= room * (1 + 1e-12):
            room -= costs[at]
            at += 1
        counts.append(at - start)
    return counts if at == len(costs) else None


def _whole_layers(network: Network) -> list[list[NetworkBlock]]:
    """The blocks of each layer."""
    groups: dict[str, list[NetworkBlock]] = {}
    for block in network.blocks:
        if _is_layer(block):
            groups.setdefault(block.group, []).append(block)
    return list(groups.values())
