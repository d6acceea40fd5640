"""MultiBufferedCalls: prepared calls on tensors that have several buffers, one list of calls per buffer.

Micro-batch m uses buffer m modulo the number of buffers. Instructions on tensors with 2 and 3 buffers have 6 lists.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from math import lcm
from typing import Any

from ipu_emu.engine.calls.instruction_calls import Binder, category_of
from ipu_emu.engine.calls.step_counters import StepCounters
from ipu_emu.engine.calls.wall_time import WallCategory
from ipu_emu.ops import Call
from ipu_emu.program.instructions import Leaf


@dataclass(frozen=True)
class MultiBufferedCalls:
    """Calls of one category for each buffer: one per replica, or one for all."""

    category: WallCategory
    calls: Sequence[Sequence[Call]]

    def at(self, micro_batch: int) -> Sequence[Call]:
        """The calls of a micro-batch."""
        return self.calls[micro_batch % len(self.calls)]


@dataclass(frozen=True)
class MultiBufferedBinder:
    """Binds instructions; ``local`` has the position of each replica in the step, ``host`` that of the host.

    ``about`` is the label of the instructions in a trace.
    """

    binder: Binder
    local: Sequence[StepCounters]
    host: StepCounters
    about: Mapping[str, Any] = field(default_factory=dict)

    def by_category(self, leaves: Sequence[Leaf]) -> list[MultiBufferedCalls]:
        """Bind instructions in order; consecutive ones of one category share a list."""
        return [self.bind(category, list(group)) for category, group in groupby(leaves, category_of)]

    def bind(self, category: WallCategory, leaves: Sequence[Leaf]) -> MultiBufferedCalls:
        """Instructions of one category."""
        bound = [(leaf, self._calls(category, leaf)) for leaf in leaves]
        period = lcm(*(len(places) for _, places in bound))
        local = category is WallCategory.COMPUTE

        def chain(place: int, part: int) -> Call:
            calls = [(leaf, places[place % len(places)][part]) for leaf, places in bound]
            counters = self.local[part] if local else self.host
            return self.binder.chain(calls, part if local else None, counters, self.about)

        parts = range(len(self.local) if local else 1)
        return MultiBufferedCalls(category, [[chain(place, part) for part in parts] for place in range(period)])

    def _calls(self, category: WallCategory, leaf: Leaf) -> list[list[list[Call]]]:
        """The calls of an instruction by buffer and replica."""
        places = range(self.binder.buffers[0].period(leaf.tensors))
        if category is not WallCategory.COMPUTE:
            return [[[self.binder.shared(leaf, self.host, place)]] for place in places]
        return [
            [self.binder.local(leaf, replica, counters, place) for replica, counters in enumerate(self.local)]
            for place in places
        ]
