"""Bound parts: a program whose tensors have memory; a step runs its parts in order.

CallLists             calls of one category, for all replicas at once or a list per replica
PartList              parts that run one after the other
Loop                  parts that are repeated
BoundPreload          loads from Streaming Memory during other parts
BoundOverlappedLoop   loops with host I/O during compute                (io_loop)
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

#: The number of bytes below which starting loads in a thread costs more than it saves.
WORTH_PRELOADING = 1 << 20


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


@dataclass(frozen=True)
class BoundPreload:
    """``thread`` runs ``loads`` from Streaming Memory during ``body``; without a thread the loads run first.

    caller    phase 0 ........  phase 1 ...  wait  phase 2 ...
    thread    load 1            load 2 .........

    Phases use different memory, so results do not depend on timing.
    """

    loads: Call
    body: PartList
    thread: Workers | None

    def run(self, context: StepContext) -> None:
        if self.thread is None:
            context.wall.timed(WallCategory.COMPUTE, self.loads)
            self.body.run(context)
            return
        self.thread.start([self.loads])
        try:
            self.body.run(context)
        finally:
            context.wall.timed(WallCategory.COMPUTE, self.thread.wait)

    def calls(self) -> Sequence[tuple[WallCategory, Call]]:
        return self.body.calls()

    def close(self) -> None:
        self.body.close()
