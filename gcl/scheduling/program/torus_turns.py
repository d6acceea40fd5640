"""Torus turns: the split of exchanges without which a torus with more than two IPUs per replica deadlocks.

The IPUs of a replica that have data, by rail and then by bytes (fewest first), take turns in pairs:

    IPU      0    1    2    3         even   2 (10)  0 (40)        exchange a   IPUs 2 and 1
    bytes   40   20   10   30         odd    1 (20)  3 (30)        exchange b   IPUs 0 and 3
"""

from __future__ import annotations

from itertools import zip_longest

from gcl.fabric.fabric import Fabric, Topology
from gcl.scheduling.program.step_program import Exchange, StepProgram


def pairs(sizes: dict[int, int]) -> list[tuple[int, ...]]:
    """The IPUs, of those with ``sizes`` (IPU -> bytes or elements), of each exchange, in order."""
    rails = [sorted((ipu for ipu in sorted(sizes) if ipu % 2 == rail), key=sizes.__getitem__) for rail in (0, 1)]
    return [tuple(ipu for ipu in pair if ipu is not None) for pair in zip_longest(*rails)]


def split(program: StepProgram, fabric: Fabric) -> StepProgram:
    """``program`` with every exchange split where ``fabric`` needs it."""
    if fabric.topology is not Topology.TORUS or fabric.ipus_per_replica <= 2:
        return program
    return program.with_exchanges(_split_exchange)


def _split_exchange(exchange: Exchange) -> list[Exchange]:
    turns = pairs(exchange.elements_by_ipu())
    return [Exchange(tuple(copy for ipu in pair for copy in exchange.copies if copy.ipu == ipu)) for pair in turns]
