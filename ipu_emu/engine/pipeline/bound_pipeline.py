"""Pipeline: the stages of a pipeline, bound, and the threads that go through them.

Every IPU of every replica works through its stages in the order of the schedule, and waits for what it needs alone
(see events.py): copies of other IPUs, places of its outputs, the data of the host. Neighbouring IPUs share a thread
where there are more of them than CPUs. Meanwhile the host, in the caller's thread, gives data and takes results as
far as the sync pattern allows (see meetings.py).

    slot        0          1          2          3
    IPU 0       stage 0    0          0 2        0 2
    IPU 1                  1          1          1

Every stage keeps to micro-batch m modulo the number of places of what it touches. So that nothing depends on timing,
each IPU of each replica counts for itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import groupby

from ipu_emu.engine.calls.instruction_calls import Binder, kind_of
from ipu_emu.engine.calls.multi_buffered_calls import TurnBinder, Turns
from ipu_emu.engine.calls.step_counters import Counts
from ipu_emu.engine.calls.wall_time import Kind
from ipu_emu.engine.pipeline.host_sync import meetings, partners
from ipu_emu.engine.pipeline.pipeline_events import FABRIC, HOST, Doing, Event, Uses, events, needs
from ipu_emu.engine.threads.dependency_threads import Clock, Job, Lanes, links
from ipu_emu.engine.threads.worker_threads import Workers
from ipu_emu.hardware.sync_groups import PATTERNS
from ipu_emu.ops import Call
from ipu_emu.program.instructions import Counter, Pipeline, PipelineStage
from ipu_emu.program.leaf_instructions import HostLoad, HostStore, IpuCopy, Leaf

__all__ = ["BoundPipeline"]


@dataclass(frozen=True)
class _Piece:
    """Instructions of a stage between which nobody waits."""

    turns: Turns
    uses: Uses


@dataclass(frozen=True)
class _Stage:
    ipu: int
    gives: _Piece
    work: Sequence[_Piece]
    takes: _Piece

    def piece(self, event: Event) -> _Piece:
        return {Doing.GIVE: self.gives, Doing.TAKE: self.takes}.get(event.doing) or self.work[event.piece]


class BoundPipeline:
    """A pipeline on the memory of the replicas."""

    def __init__(self, pipeline: Pipeline, binder: Binder) -> None:
        self.counter, self.host = pipeline.counter, binder.host
        self.ipus = [stage.ipu for stage in pipeline.stages]
        self.parts = pipeline.stages
        self.width = 1 + max(ipu for stage in pipeline.stages for ipu in stage.ipus)
        self.counts = [[Counts() for _ in range(self.width)] for _ in binder.buffers]
        self.stages = [_stage(binder, stage, self.counts) for stage in pipeline.stages]
        self.pattern = PATTERNS[binder.executable.sync]
        self.order = list(self._events(pipeline))
        self._lanes: dict[int, Lanes] = {}

    def _events(self, pipeline: Pipeline) -> Iterator[Event]:
        slots = [tuple((task.stage, task.micro_batch) for task in slot) for slot in pipeline.slots()]
        return events(
            list(meetings(slots, self.ipus, self.pattern)),
            self.ipus,
            [[piece.turns.kind is Kind.COLLECTIVES for piece in stage.work] for stage in self.stages],
            given={number for number, stage in enumerate(self.stages) if stage.gives.uses.of},
            taken={number for number, stage in enumerate(self.stages) if stage.takes.uses.of},
        )

    def run(self, workers: Workers, clock: Clock) -> None:
        """Run all micro-batches; ``clock`` makes a call and adds its time to a kind."""
        for counts in (counts for replica in self.counts for counts in replica):
            counts.follow(self.host.counts)
        if workers.count == 1:
            self._in_turn(workers, clock)
            return
        if workers.count not in self._lanes:
            self._lanes[workers.count] = Lanes(self._jobs(workers.count))
        self._lanes[workers.count].run(workers, clock)

    def _in_turn(self, workers: Workers, clock: Clock) -> None:
        """One event after the other, the replicas side by side."""
        for event in self.order:
            turns = self.stages[event.stage].piece(event).turns
            if event.actor in (HOST, FABRIC):
                clock(turns.kind, self._call(event, HOST))
                continue
            for replica in self.counts:
                replica[event.actor].set(self.counter, event.micro_batch)
            clock(turns.kind, partial(workers.run, turns.at(event.micro_batch)))

    @cached_property
    def _needs(self) -> list[set[int]]:
        waiting = partners(self.width, self.pattern)
        return list(needs(self.order, lambda event: self.stages[event.stage].piece(event).uses, waiting, self.parts))

    def _jobs(self, count: int) -> list[list[Job]]:
        """What each of ``count`` threads does, and after them the caller's: the host, and collectives.

        An event of an IPU is a job for every replica.
        """
        replicas = range(len(self.counts))
        share = -(-len(replicas) * self.width // count)
        host = -(-len(replicas) * self.width // share)
        numbers: dict[tuple[int, int], int] = {}
        made: list[tuple[int, Kind, Call]] = []
        needed: list[set[int]] = []
        for number, event in enumerate(self.order):
            for replica in [HOST] if event.actor in (HOST, FABRIC) else replicas:
                near = (*replicas, HOST) if replica == HOST else (replica, HOST)
                numbers[number, replica] = len(made)
                lane = host if replica == HOST else (replica * self.width + event.actor) // share
                made.append((lane, self._kind(event), self._call(event, replica)))
                needed.append(
                    {numbers[one, each] for one in self._needs[number] for each in near if (one, each) in numbers}
                )
        lanes: list[list[Job]] = [[] for _ in range(host + 1)]
        for (lane, kind, call), link in zip(made, links([lane for lane, *_ in made], needed), strict=True):
            lanes[lane].append(Job(call, kind, link))
        return lanes

    def _kind(self, event: Event) -> Kind:
        return self.stages[event.stage].piece(event).turns.kind

    def _call(self, event: Event, replica: int) -> Call:
        """What an event calls for a replica, or for all of them at once."""
        counts = self.host.counts if replica == HOST else self.counts[replica][event.actor]
        call = self.stages[event.stage].piece(event).turns.at(event.micro_batch)[max(replica, 0)]
        return partial(_counted, counts.set, self.counter, event.micro_batch, call)

    def calls(self) -> list[tuple[Kind, Call]]:
        """One of each of the prepared calls."""
        pieces = [piece for stage in self.stages for piece in (stage.gives, *stage.work, stage.takes)]
        return [(piece.turns.kind, call) for piece in pieces for call in piece.turns.at(0)]


def _counted(count: Callable[[Counter, int], None], counter: Counter, micro_batch: int, call: Call) -> None:
    count(counter, micro_batch)
    call()


def _stage(binder: Binder, stage: PipelineStage, counts: Sequence[Sequence[Counts]]) -> _Stage:
    """Bind one stage."""
    bind = TurnBinder(binder, [replica[stage.ipu] for replica in counts], binder.host.counts)
    loads = [leaf for leaf in stage.body if isinstance(leaf, HostLoad)]
    stores = [leaf for leaf in stage.body if isinstance(leaf, HostStore)]
    work = [leaf for leaf in stage.body if not isinstance(leaf, HostLoad | HostStore)]

    def piece(kind: Kind, leaves: Sequence[Leaf]) -> _Piece:
        return _Piece(bind.turns(kind, leaves), Uses.by(leaves, binder.executable.plan))

    pieces = [piece(kind, list(group)) for (kind, _), group in groupby(work, _piece_of)]
    return _Stage(
        stage.ipu,
        piece(Kind.HOST_IO, loads),
        pieces or [piece(Kind.COMPUTE, [])],
        piece(Kind.HOST_IO, stores),
    )


def _piece_of(leaf: Leaf) -> tuple[Kind, bool]:
    """What the instructions of a piece have in common; others wait for copies alone."""
    return kind_of(leaf), isinstance(leaf, IpuCopy)
