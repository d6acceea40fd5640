"""Bound parts: a program whose tensors have memory; a step runs its parts in order.

CallLists             calls of one category, for all replicas at once or a list per replica
PartList              parts that run one after the other
Loop                  parts that are repeated
BoundPreload          loads from Streaming Memory during other parts    (overlap)
BoundOverlappedLoop   loops with host I/O during compute                (overlap)
BoundPipeline         stages of a pipeline                              (pipeline)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from time import perf_counter_ns
from typing import Protocol

from ipu_emu.engine.calls.instruction_calls import HostPosition
from ipu_emu.engine.calls.wall_time import Wall, WallCategory
from ipu_emu.engine.threads.worker_threads import Workers
from ipu_emu.ops import Call
from ipu_emu.program.instructions import Counter


@dataclass
class StepContext:
    """State that all parts of an engine share; ``broken``: a step failed and left micro-batches incomplete."""

    host: HostPosition
    wall: Wall
    workers: Workers
    broken: bool = False


class Part(Protocol):
    """A bound part of a program."""

    def run(self, context: StepContext) -> None:
        """Run the part for one step."""

    def calls(self) -> Sequence[tuple[WallCategory, Call]]:
        """Each different prepared call once, with the category of its time."""

    def close(self) -> None:
        """End the threads of the part."""


@dataclass(frozen=True)
class CallLists:
    """Lists of calls that do not depend on each other: one for each replica, or one for all."""

    category: WallCategory
    lists: Sequence[Call]

    def run(self, context: StepContext) -> None:
        start = perf_counter_ns()
        context.workers.run(self.lists)
        context.wall.nanoseconds[self.category] += perf_counter_ns() - start

    def calls(self) -> Sequence[tuple[WallCategory, Call]]:
        return [(self.category, call) for call in self.lists]

    def close(self) -> None:
        """Calls have no threads of their own."""


@dataclass(frozen=True)
class PartList:
    """Parts that run one after the other."""

    parts: Sequence[Part]

    def run(self, context: StepContext) -> None:
        for part in self.parts:
            part.run(context)

    def calls(self) -> Sequence[tuple[WallCategory, Call]]:
        return [call for part in self.parts for call in part.calls()]

    def close(self) -> None:
        for part in self.parts:
            part.close()


@dataclass(frozen=True)
class Loop:
    """Runs ``body`` ``times`` times, with ``counter`` set to the number of the repetition."""

    times: int
    counter: Counter
    body: PartList

    def run(self, context: StepContext) -> None:
        for index in range(self.times):
            context.host.counters.set(self.counter, index)
            self.body.run(context)

    def calls(self) -> Sequence[tuple[WallCategory, Call]]:
        return self.body.calls()

    def close(self) -> None:
        self.body.close()
