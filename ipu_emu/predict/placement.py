"""Placement: which blocks of a network are on which IPU of a replica.

    BERT-large on 4 IPUs, layers 3, 7, 7, 7, embedding on IPU 0

    IPU 0   embedding, layers 0 to 2, words (the table is tied: it stays with the embedding)
    IPU 1   layers 3 to 9
    IPU 2   layers 10 to 16
    IPU 3   layers 17 to 23, pooler, pair

Layers stay in order. Without given numbers they are divided such that the slowest IPU is as fast as possible, also
inside a layer; every IPU has a block if there are enough.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from ipu_emu.compiler.placement.balance import Chain, balance
from ipu_emu.errors import EmulatorError
from ipu_emu.predict.networks import BlockKind, Network, NetworkBlock

#: The blocks of each IPU.
Placement = tuple[tuple[NetworkBlock, ...], ...]

_PARTS = (BlockKind.ATTENTION, BlockKind.FEED_FORWARD)


def _is_layer(block: NetworkBlock) -> bool:
    return block.kind in (BlockKind.ATTENTION, BlockKind.FEED_FORWARD, BlockKind.LAYER)


def _is_at_home(block: NetworkBlock) -> bool:
    """Whether a block is on the IPU of the embedding."""
    return block.kind is BlockKind.EMBEDDING or block.tied


def can_divide(network: Network, ipus: int) -> bool:
    """Whether each of ``ipus`` has a block of a balanced network."""
    at_home = [*map(_is_at_home, network.blocks)]
    return at_home.count(False) + any(at_home) >= ipus


def _ends(network: Network, embedding_ipu: int, first: int, last: int) -> dict[int, list[NetworkBlock]]:
    """The blocks outside layers, by IPU; ``first`` and ``last``: the IPUs of the first and last layers."""
    places: dict[int, list[NetworkBlock]] = {}
    for block in network.blocks:
        if not _is_layer(block):
            at = last if block.kind is BlockKind.HEAD else first
            at = embedding_ipu if _is_at_home(block) else at
            places.setdefault(at, []).append(block)
    return places


def _joined(
    network: Network, layers: Sequence[Sequence[NetworkBlock]], ends: dict[int, list[NetworkBlock]]
) -> Placement:
    """The blocks of each IPU in the order of the forward pass."""
    names = {block.name: index for index, block in enumerate(network.blocks)}
    together = ([*layers[ipu], *ends.get(ipu, [])] for ipu in range(len(layers)))
    return tuple(tuple(sorted(blocks, key=lambda block: names[block.name])) for blocks in together)


def by_counts(network: Network, counts: Sequence[tuple[int, int]], embedding_ipu: int = 0) -> Placement:
    """``counts``: attention and feed-forward parts on each IPU; for networks without them, layers (twice)."""
    parts = [block for block in network.blocks if _is_layer(block)]
    wanted = (sum(attention for attention, _ in counts), sum(other for _, other in counts))
    has = tuple(sum(block.kind is kind for block in parts) for kind in _PARTS)
    has_layers = not any(has)
    has = (len(parts), len(parts)) if has_layers else has
    if wanted != has:
        layers = f"{has[0]} layers" if has[0] == has[1] else f"{has[0]} attention and {has[1]} feed-forward parts"
        total = f"{wanted[0]}" if wanted[0] == wanted[1] else f"{wanted[0]} and {wanted[1]}"
        raise EmulatorError(f"--layers adds up to {total}; {network.name} has {layers}")
    left: list[list[NetworkBlock]] = []
    rest = list(parts)
    for attention, feed_forward in counts:
        quota = {BlockKind.ATTENTION: attention, BlockKind.FEED_FORWARD: feed_forward, BlockKind.LAYER: attention}
        here: list[NetworkBlock] = []
        while rest and quota[rest[0].kind]:
            quota[rest[0].kind] -= 1
            here.append(rest.pop(0))
        left.append(here)
        if any(quota[kind] for kind in (_PARTS if not has_layers else (BlockKind.LAYER,))):
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


def balanced(
    network: Network,
    ipus: int,
    loads: Mapping[str, tuple[float, float]],
    copies: Callable[[NetworkBlock], float],
    embedding_ipu: int,
    limit: float,
) -> Placement:
    """The placement with the fastest slowest IPU, as the compiler divides the ops of a graph (``balance``).

    ``loads``: seconds and bytes of each block by name. ``copies``: the seconds of a copy of what a block passes on.
    ``limit``: the bytes of an IPU.
    """
    at_home = [block for block in network.blocks if _is_at_home(block)]
    units = [block for block in network.blocks if not _is_at_home(block)]
    seconds, nbytes = ([loads[block.name][part] for block in units] for part in range(2))
    fixed = sum(loads[block.name][0] for block in at_home), sum(loads[block.name][1] for block in at_home)
    before = [0.0, *map(copies, units[:-1])]
    chain = Chain(seconds, nbytes, before, fixed, embedding_ipu, enough=bool(at_home))
    layers: list[list[NetworkBlock]] = [[] for _ in range(ipus)]
    for block, ipu in zip(units, balance(chain, (1.0,) * ipus, limit), strict=True):
        layers[ipu].append(block)
    return _joined(network, layers, {embedding_ipu: at_home})
