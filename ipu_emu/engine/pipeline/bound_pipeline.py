"""BoundPipeline: the stages of a pipeline on the memory of the replicas, and the threads that run them.

Every IPU of every replica runs its stages in the order of the schedule, and waits only for its dependencies (see
pipeline_events): copies from other IPUs, buffers for its outputs, data from the host. Adjacent IPUs share a thread if
there are more IPUs than CPUs. Meanwhile the caller's thread acts as the host: it writes inputs and reads results as
early as the sync pattern allows (see host_sync).

    slot        0          1          2          3
    IPU 0       stage 0    0          0 2        0 2
    IPU 1                  1          1          1

In micro-batch m a stage uses buffer m modulo the number of buffers of each tensor. Each IPU of each replica has its
own counters, so results do not depend on timing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import groupby

from ipu_emu.engine.bound_parts import StepContext
from ipu_emu.engine.calls.instruction_calls import Binder, category_of
from ipu_emu.engine.calls.multi_buffered_calls import MultiBufferedBinder, MultiBufferedCalls
from ipu_emu.engine.calls.step_counters import StepCounters
from ipu_emu.engine.calls.wall_time import Timer, WallCategory
from ipu_emu.engine.pipeline.host_sync import host_syncs, sync_partners
from ipu_emu.engine.pipeline.pipeline_events import (
    FABRIC,
    HOST,
    Event,
    EventKind,
    MemoryAccess,
    dependencies_of,
    events,
)
from ipu_emu.engine.threads.dependency_threads import DependencyThreads, ThreadTask, dependencies
from ipu_emu.engine.threads.worker_threads import Workers
from ipu_emu.hardware.sync_groups import PATTERNS
from ipu_emu.ops import Call
from ipu_emu.program.instructions import Counter, HostLoad, HostStore, IpuCopy, Leaf, Pipeline, PipelineStage, of_type


@dataclass(frozen=True)
class _Piece:
    """Instructions of a stage that run without synchronisation in between."""

    calls: MultiBufferedCalls
    access: MemoryAccess


@dataclass(frozen=True)
class _Stage:
    ipu: int
    gives: _Piece
    work: Sequence[_Piece]
    takes: _Piece

    def piece(self, event: Event) -> _Piece:
        return {EventKind.GIVE: self.gives, EventKind.TAKE: self.takes}.get(event.kind) or self.work[event.piece]


class BoundPipeline:
    """A pipeline on the memory of the replicas."""

    def __init__(self, pipeline: Pipeline, binder: Binder) -> None:
        self.counter, self.host = pipeline.counter, binder.host
        self.ipus = [stage.ipu for stage in pipeline.stages]
        self.parts = pipeline.stages
        self.width = 1 + max(ipu for stage in pipeline.stages for ipu in stage.ipus)
        self.counters = [[StepCounters() for _ in range(self.width)] for _ in binder.buffers]
        self.stages = [_stage(binder, stage, self.counters) for stage in pipeline.stages]
        self.pattern = PATTERNS[binder.executable.sync]
        self.order = list(self._events(pipeline))
        self._threads: dict[int, DependencyThreads] = {}

    def _events(self, pipeline: Pipeline) -> Iterator[Event]:
        slots = [tuple((task.stage, task.micro_batch) for task in slot) for slot in pipeline.slots()]
        return events(
            list(host_syncs(slots, self.ipus, self.pattern)),
            self.ipus,
            [[piece.calls.category is WallCategory.COLLECTIVES for piece in stage.work] for stage in self.stages],
            loaded={number for number, stage in enumerate(self.stages) if stage.gives.access.spans},
            taken={number for number, stage in enumerate(self.stages) if stage.takes.access.spans},
        )

    def run(self, context: StepContext) -> None:
        """Run all micro-batches; a run that fails leaves some of them incomplete."""
        try:
            self._run(context.workers, context.wall.timed)
        except BaseException:
            context.broken = True
            context.workers.close()
            raise

    def _run(self, workers: Workers, timer: Timer) -> None:
        for counters in (counters for replica in self.counters for counters in replica):
            counters.follow(self.host.counters)
        if workers.count == 1:
            self._in_one_thread(workers, timer)
            return
        if workers.count not in self._threads:
            self._threads[workers.count] = DependencyThreads(self._tasks(workers.count))
        self._threads[workers.count].run(workers, timer)

    def _in_one_thread(self, workers: Workers, timer: Timer) -> None:
        """Run all events in order in one thread, for all replicas."""
        for event in self.order:
            calls = self._piece(event).calls
            if event.actor in (HOST, FABRIC):
                timer(calls.category, self._call(event, HOST))
                continue
            for replica in self.counters:
                replica[event.actor].set(self.counter, event.micro_batch)
            timer(calls.category, partial(workers.run, calls.at(event.micro_batch)))

    @cached_property
    def needs(self) -> list[set[int]]:
        """The numbers of the earlier events on which each event depends."""
        waiting = sync_partners(self.width, self.pattern)
        return list(dependencies_of(self.order, lambda event: self._piece(event).access, waiting, self.parts))

    def _tasks(self, count: int) -> list[list[ThreadTask]]:
        """The tasks of each of ``count`` threads, then those of the caller: host I/O and collectives.

        An event of an IPU is a task for every replica.
        """
        replicas = range(len(self.counters))
        share = -(-len(replicas) * self.width // count)
        host = -(-len(replicas) * self.width // share)
        numbers: dict[tuple[int, int], int] = {}
        tasks: list[tuple[int, WallCategory, Call]] = []
        needed: list[set[int]] = []
        for number, event in enumerate(self.order):
            for replica in [HOST] if event.actor in (HOST, FABRIC) else replicas:
                near = (*replicas, HOST) if replica == HOST else (replica, HOST)
                numbers[number, replica] = len(tasks)
                thread = host if replica == HOST else (replica * self.width + event.actor) // share
                tasks.append((thread, self._piece(event).calls.category, self._call(event, replica)))
                needed.append({numbers[n, r] for n in self.needs[number] for r in near if (n, r) in numbers})
        threads: list[list[ThreadTask]] = [[] for _ in range(host + 1)]
        tokens = dependencies([thread for thread, *_ in tasks], needed)
        for (thread, category, call), dependency in zip(tasks, tokens, strict=True):
            threads[thread].append(ThreadTask(call, category, dependency))
        return threads

    def _piece(self, event: Event) -> _Piece:
        return self.stages[event.stage].piece(event)

    def _call(self, event: Event, replica: int) -> Call:
        """The call of an event for a replica, or for all of them at once."""
        counters = self.host.counters if replica == HOST else self.counters[replica][event.actor]
        call = self._piece(event).calls.at(event.micro_batch)[max(replica, 0)]
        return partial(_counted, counters.set, self.counter, event.micro_batch, call)

    def calls(self) -> Sequence[tuple[WallCategory, Call]]:
        pieces = [piece for stage in self.stages for piece in (stage.gives, *stage.work, stage.takes)]
        return [(piece.calls.category, call) for piece in pieces for call in piece.calls.at(0)]

    def close(self) -> None:
        """Nothing to end: the threads belong to the engine."""


def _counted(count: Callable[[Counter, int], None], counter: Counter, micro_batch: int, call: Call) -> None:
    count(counter, micro_batch)
    call()


def _stage(binder: Binder, stage: PipelineStage, counters: Sequence[Sequence[StepCounters]]) -> _Stage:
    """Bind one stage."""
    about = {"stage": stage.index, "ipu": stage.ipu}
    buffered = MultiBufferedBinder(binder, [replica[stage.ipu] for replica in counters], binder.host.counters, about)

    def piece(category: WallCategory, leaves: Sequence[Leaf]) -> _Piece:
        return _Piece(buffered.bind(category, leaves), MemoryAccess.of(leaves, binder.executable.plan))

    work = [leaf for leaf in stage.body if not leaf.is_host_io]
    pieces = [piece(category, list(group)) for (category, _), group in groupby(work, _piece_key)]
    return _Stage(
        stage.ipu,
        piece(WallCategory.HOST_IO, of_type(stage.body, HostLoad)),
        pieces or [piece(WallCategory.COMPUTE, [])],
        piece(WallCategory.HOST_IO, of_type(stage.body, HostStore)),
    )


def _piece_key(leaf: Leaf) -> tuple[WallCategory, bool]:
    """The key by which instructions form a piece; copies are separate, because other IPUs wait for them."""
    return category_of(leaf), type(leaf) is IpuCopy
