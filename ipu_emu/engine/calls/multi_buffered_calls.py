"""Turns: prepared calls for each of the places that tensors take in turn, one micro-batch after the other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from math import lcm

from ipu_emu.engine.calls.instruction_calls import Binder, kind_of
from ipu_emu.engine.calls.step_counters import Counts
from ipu_emu.engine.calls.wall_time import Kind
from ipu_emu.ops import Call
from ipu_emu.ops.core.call_chain import call_chain
from ipu_emu.program.leaf_instructions import Leaf, touched

__all__ = ["TurnBinder", "Turns"]


@dataclass(frozen=True)
class Turns:
    """Calls of one kind for every turn: one for each replica, or one for all."""

    kind: Kind
    calls: Sequence[Sequence[Call]]

    def at(self, micro_batch: int) -> Sequence[Call]:
        return self.calls[micro_batch % len(self.calls)]


@dataclass(frozen=True)
class TurnBinder:
    """Binds instructions; ``local`` says for each replica where it is in the step, ``host`` where the host is."""

    binder: Binder
    local: Sequence[Counts]
    host: Counts

    def by_kind(self, leaves: Sequence[Leaf]) -> list[Turns]:
        """Instructions in their order; neighbours of one kind together."""
        return [self.turns(kind, list(group)) for kind, group in groupby(leaves, kind_of)]

    def turns(self, kind: Kind, leaves: Sequence[Leaf]) -> Turns:
        """Instructions of one kind."""
        bound = [self._bound(kind, leaf) for leaf in leaves]
        period = lcm(*(len(turns) for turns in bound))
        width = len(self.local) if kind is Kind.COMPUTE else 1
        calls = [
            [
                call_chain(*(step for turns in bound for step in turns[turn % len(turns)][part]))
                for part in range(width)
            ]
            for turn in range(period)
        ]
        return Turns(kind, calls)

    def _bound(self, kind: Kind, leaf: Leaf) -> list[list[list[Call]]]:
        """The calls of an instruction by turn and replica; as many turns as its tensors have different places."""
        turns = range(self.binder.buffers[0].period(touched(leaf)))
        if kind is not Kind.COMPUTE:
            return [[[self.binder.shared(leaf, self.host, turn)]] for turn in turns]
        return [
            [self.binder.local(leaf, replica, counts, turn) for replica, counts in enumerate(self.local)]
            for turn in turns
        ]
