"""MultiBufferedCalls: prepared calls on tensors that have several buffers, one list of calls per buffer.

Micro-batch m uses buffer m modulo the number of buffers. Instructions on tensors with 2 and 3 buffers have 6 lists.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from math import lcm

from ipu_emu.engine.calls.instruction_calls import Binder, category_of
from ipu_emu.engine.calls.step_counters import StepCounters
from ipu_emu.engine.calls.wall_time import WallCategory
from ipu_emu.ops import Call
from ipu_emu.ops.core.call_chain import call_chain
from ipu_emu.program.instructions import Leaf

__all__ = ["MultiBufferedBinder", "MultiBufferedCalls"]


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
    """Binds instructions; ``local`` has the position of each replica in the step, ``host`` that of the host."""

    binder: Binder
    local: Sequence[StepCounters]
    host: StepCounters

    def by_category(self, leaves: Sequence[Leaf]) -> list[MultiBufferedCalls]:
        """Bind instructions in order; consecutive ones of one category share a list."""
        return [self.bind(category, list(group)) for category, group in groupby(leaves, category_of)]

    def bind(self, category: WallCategory, leaves: Sequence[Leaf]) -> MultiBufferedCalls:
        """Instructions of one category."""
        bound = [self._calls(category, leaf) for leaf in leaves]
        period = lcm(*(len(places) for places in bound))
        width = len(self.local) if category is WallCategory.COMPUTE else 1
        calls = [
            [
                call_chain(*(step for places in bound for step in places[place % len(places)][part]))
                for part in range(width)
            ]
            for place in range(period)
        ]
        return MultiBufferedCalls(category, calls)

    def _calls(self, category: WallCategory, leaf: Leaf) -> list[list[list[Call]]]:
        """The calls of an instruction by buffer and replica."""
        places = range(self.binder.buffers[0].period(leaf.tensors))
        if category is not WallCategory.COMPUTE:
            return [[[self.binder.shared(leaf, self.host, place)]] for place in places]
        return [
            [self.binder.local(leaf, replica, counters, place) for replica, counters in enumerate(self.local)]
            for place in places
        ]
