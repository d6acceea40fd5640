"""Method: the algorithm of a reduce-scatter or an all-gather, by name, and the generators that make its steps.

"auto" has two meanings. In ``schedule`` and ``gcl.explain``, AUTO picks one of the other methods by size and fabric
(``method_choice``). In ``connect(method="auto")`` no step program runs at all: the result is computed
directly; the chain "auto,auto", or GCL_REAL_COLLECTIVES=1 where no method is passed, runs the step programs that GCL
would pick. ``connect(transport="auto")`` is unrelated: it picks how bytes move between processes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from gcl.errors import ArgumentError
from gcl.scheduling.methods import (
    anticlockwise_ring,
    bidirectional_ring_pair,
    broadcast,
    clockwise_ring,
    meet_in_middle_ring,
    quad_directional_ring,
)
from gcl.scheduling.methods.ring_stream import Generator
from popdist_py.messages.suggestion import did_you_mean


class Method(StrEnum):
    """The methods; AUTO is not an algorithm: it leaves the choice to GCL (see the module docstring)."""

    AUTO = "auto"
    CLOCKWISE_RING = "clockwise_ring"
    ANTICLOCKWISE_RING = "anticlockwise_ring"
    BIDIRECTIONAL_RING_PAIR = "bidirectional_ring_pair"
    MEET_IN_MIDDLE_RING = "meet_in_middle_ring"
    QUAD_DIRECTIONAL_RING = "quad_directional_ring"
    BROADCAST = "broadcast"


@dataclass(frozen=True)
class MethodPrograms:
    """The generators of a method, and the number of pieces (``splits``) into which it cuts a fragment."""

    reduce_scatter: Generator
    all_gather: Generator
    splits: int = 1


METHODS: dict[Method, MethodPrograms] = {
    Method.CLOCKWISE_RING: MethodPrograms(clockwise_ring.reduce_scatter, clockwise_ring.all_gather),
    Method.ANTICLOCKWISE_RING: MethodPrograms(anticlockwise_ring.reduce_scatter, anticlockwise_ring.all_gather),
    Method.BIDIRECTIONAL_RING_PAIR: MethodPrograms(
        bidirectional_ring_pair.reduce_scatter, bidirectional_ring_pair.all_gather, splits=2
    ),
    Method.MEET_IN_MIDDLE_RING: MethodPrograms(meet_in_middle_ring.reduce_scatter, meet_in_middle_ring.all_gather),
    Method.QUAD_DIRECTIONAL_RING: MethodPrograms(
        quad_directional_ring.reduce_scatter, quad_directional_ring.all_gather, splits=4
    ),
    Method.BROADCAST: MethodPrograms(broadcast.reduce_scatter, broadcast.all_gather),
}


def method_chain(names: str | Sequence[str]) -> tuple[Method, ...]:
    """The methods called ``names`` (a list, or names separated by commas); ArgumentError lists the known ones."""
    if isinstance(names, str):
        names = [name.strip() for name in names.split(",")]
    if not isinstance(names, list | tuple) or not names:
        raise ArgumentError(f"method {names!r} is not valid; give the name of a method, or a list of names")
    unknown = [name for name in names if name not in list(Method)]
    if unknown:
        raise ArgumentError(
            f"method {', '.join(map(repr, unknown))} is unknown; use {', '.join(Method)}, "
            f"or a chain of them separated by commas{did_you_mean(unknown[0], Method)}"
        )
    return tuple(Method(name) for name in names)
