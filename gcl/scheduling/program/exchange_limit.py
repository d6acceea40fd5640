"""Exchange limit: splits exchanges that would put more than maxBytesPerTile on a tile.

limit of 4 elements       exchange 1   [0:10] clockwise             exchange 1   [0:3]
                                                                    exchange 2   [3:6]
                                                                    exchange 3   [6:10]

The limit applies to the sum of what an IPU sends in an exchange, because that is in one buffer.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from gcl.scheduling.program.step_program import CrossReplicaCopy, Exchange, Slice, Step, StepProgram


def limited(program: StepProgram, most: int) -> StepProgram:
    """``program`` with exchanges in which no IPU sends more than ``most`` elements (at least 1 per copy)."""
    steps: list[Step] = []
    for step in program.steps:
        steps += _parts(step, max(1, most)) if isinstance(step, Exchange) else [step]
    return replace(program, steps=tuple(steps))


def _parts(exchange: Exchange, most: int) -> Iterator[Exchange]:
    sent: dict[int, int] = {}
    for copy in exchange.copies:
        sent[copy.ipu] = sent.get(copy.ipu, 0) + copy.source.elements
    widest = max((copy.source.elements for copy in exchange.copies), default=1)
    parts = min(widest, -(-max(sent.values(), default=0) // most))
    if parts <= 1:
        yield exchange
        return
    for part in range(parts):
        copies = (_part(copy, part, parts) for copy in exchange.copies)
        yield Exchange(tuple(copy for copy in copies if copy.source.elements))


def _part(copy: CrossReplicaCopy, part: int, parts: int) -> CrossReplicaCopy:
    return replace(copy, source=_piece(copy.source, part, parts), target=_piece(copy.target, part, parts))


def _piece(fragment: Slice, part: int, parts: int) -> Slice:
    size = fragment.elements
    return replace(fragment, low=fragment.low + size * part // parts, high=fragment.low + size * (part + 1) // parts)
