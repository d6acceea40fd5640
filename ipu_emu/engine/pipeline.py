"""Pipeline: the stages of a pipeline, bound, and the walk through the slots of its schedule.

The stages of one slot run at the same time, each on the worker of its IPU; those of one IPU one after the other, in
the order of the schedule. Meanwhile the host, in the caller's thread, gives the data of the next slot and takes the
results of the last one, as far as the sync pattern allows (see meetings.py).

    slot        0          1          2          3
    IPU 0       stage 0    0          0 2        0 2
    IPU 1                  1          1          1

Every stage keeps to micro-batch m modulo the number of places of what it touches. So that nothing depends on timing,
each IPU of each replica counts for itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

from ipu_emu.engine.binding import Binder
from ipu_emu.engine.counts import Counts
from ipu_emu.engine.meetings import Meeting, Tasks, meetings
from ipu_emu.engine.turns import TurnBinder, Turns
from ipu_emu.engine.wall import Kind
from ipu_emu.engine.workers import Workers
from ipu_emu.hardware.sync import PATTERNS
from ipu_emu.ops import Step
from ipu_emu.program.instructions import HostLoad, HostStore, Pipeline, PipelineStage

__all__ = ["BoundPipeline"]

#: Makes a call and adds its time to a kind.
Clock = Callable[[Kind, Step], None]


@dataclass(frozen=True)
class _Stage:
    ipu: int
    loads: Turns
    work: Sequence[Turns]
    stores: Turns


class BoundPipeline:
    """A pipeline on the memory of the replicas."""

    def __init__(self, pipeline: Pipeline, binder: Binder) -> None:
        self.counter, self.host = pipeline.counter, binder.host
        slots = [tuple((task.stage, task.micro_batch) for task in slot) for slot in pipeline.slots()]
        ipus = [stage.ipu for stage in pipeline.stages]
        self.meetings = list(meetings(slots, ipus, PATTERNS[binder.executable.sync]))
        self.ipus = 1 + max(ipus)
        self.counts = [[Counts() for _ in range(self.ipus)] for _ in binder.buffers]
        self.stages = [_stage(binder, stage, self.counts) for stage in pipeline.stages]
        #: Collectives are for all replicas at once, so their stages cannot run at the same time as others.
        self.together = any(len(stage.work) != 1 for stage in self.stages)

    def run(self, workers: Workers, clock: Clock) -> None:
        """Run all micro-batches; ``clock`` makes a call and adds its time to a kind."""
        for counts in (counts for replica in self.counts for counts in replica):
            counts.follow(self.host.counts)
        for meeting in self.meetings:
            clock(Kind.HOST_IO, partial(self._give, meeting.given_before))
            self._slot(meeting, workers, clock)
            clock(Kind.HOST_IO, partial(self._take, meeting.taken_after))

    def _slot(self, meeting: Meeting, workers: Workers, clock: Clock) -> None:
        beside = workers.count > 1 and not self.together
        if beside:
            workers.start(self._jobs(meeting.tasks))
        try:
            clock(Kind.HOST_IO, partial(self._beside, meeting))
        finally:
            if beside:
                clock(Kind.COMPUTE, workers.wait)
        if not beside:
            self._in_turn(meeting.tasks, workers, clock)

    def _beside(self, meeting: Meeting) -> None:
        """What the host does during a slot."""
        self._give(meeting.given_beside)
        self._take(meeting.taken_beside)

    def _give(self, tasks: Tasks) -> None:
        self._serve((micro_batch, self.stages[stage].loads) for stage, micro_batch in tasks)

    def _take(self, tasks: Tasks) -> None:
        self._serve((micro_batch, self.stages[stage].stores) for stage, micro_batch in tasks)

    def _serve(self, work: Iterable[tuple[int, Turns]]) -> None:
        for micro_batch, turns in work:
            self.host.counts.set(self.counter, micro_batch)
            for call in turns.at(micro_batch):
                call()

    def _jobs(self, slot: Tasks) -> list[Step]:
        """One job for each IPU of each replica, those of a replica side by side."""
        replicas = range(len(self.counts))
        return [self._job(slot, replica, ipu) for replica in replicas for ipu in range(self.ipus)]

    def _job(self, slot: Tasks, replica: int, ipu: int) -> Step:
        counts, counter = self.counts[replica][ipu], self.counter
        work = [(m, self.stages[s].work[0].at(m)[replica]) for s, m in slot if self.stages[s].ipu == ipu]

        def job() -> None:
            for micro_batch, call in work:
                counts.set(counter, micro_batch)
                call()

        return job

    def _in_turn(self, slot: Tasks, workers: Workers, clock: Clock) -> None:
        """One stage after the other, the replicas side by side."""
        for number, micro_batch in slot:
            stage = self.stages[number]
            for replica in self.counts:
                replica[stage.ipu].set(self.counter, micro_batch)
            for turns in stage.work:
                clock(turns.kind, partial(workers.run, turns.at(micro_batch)))

    def calls(self) -> list[tuple[Kind, Step]]:
        """One of each of the prepared calls."""
        turns = [turns for stage in self.stages for turns in (stage.loads, *stage.work, stage.stores)]
        return [(one.kind, call) for one in turns for call in one.at(0)]


def _stage(binder: Binder, stage: PipelineStage, counts: Sequence[Sequence[Counts]]) -> _Stage:
    """Bind one stage."""
    bind = TurnBinder(binder, [replica[stage.ipu] for replica in counts], binder.host.counts)
    loads = [leaf for leaf in stage.body if isinstance(leaf, HostLoad)]
    stores = [leaf for leaf in stage.body if isinstance(leaf, HostStore)]
    work = bind.by_kind([leaf for leaf in stage.body if not isinstance(leaf, HostLoad | HostStore)])
    work = work or [bind.turns(Kind.COMPUTE, [])]
    return _Stage(stage.ipu, bind.turns(Kind.HOST_IO, loads), work, bind.turns(Kind.HOST_IO, stores))
