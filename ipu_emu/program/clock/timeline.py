"""TimelineSegment: the work of each IPU of a replica over time, for a program or a part of it, in modelled seconds.

Instructions run one after the other, so one IPU of a sharded model works at a time. In a pipeline every IPU runs its
tasks in the order of the schedule; a task starts when its IPU is free and the previous stage is done:

    IPU 0   F0 F1 ...... B0 F2 B1 ...
    IPU 1      F0 B0 F1 ... B1                 between slots IPUs wait for each other while the host serves one

The iterations of a loop are drawn one by one; beyond ``MOST_SPANS`` spans, the rest of them as one. If I/O tiles
transfer data with the host while the other tiles compute (see ``Overlap``), a micro-batch waits for its transfers,
and every micro-batch is drawn:

    compute       m0    m1       m2
    I/O        L0 L1    S0 L2    S1    S2

The first staged inputs are loaded when a step begins, those of the next step when it ends.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ipu_emu.program.clock.machine import ModelledMachine
from ipu_emu.program.clock.pricing import CostCategory, Pricing
from ipu_emu.program.clock.span import Span
from ipu_emu.program.clock.timeline_files import timeline_file
from ipu_emu.program.executable import Executable
from ipu_emu.program.instructions import (
    AllReduce,
    HostLoad,
    HostStore,
    Instruction,
    Leaf,
    Overlap,
    Pipeline,
    PipelineStage,
    Preload,
    Repeat,
    ShardCollectives,
    host_transfers,
    leaves,
    of_type,
    row,
)
from ipu_emu.program.overlapped_loops import OverlappedLoop
from popdist_py.files.atomic_write import replace_file

#: Spans of a loop that are drawn one by one.
MOST_SPANS = 1000


@dataclass
class TimelineSegment:
    """A part of a program: its seconds, the busy seconds by IPU and category, and spans from its start."""

    seconds: float = 0.0
    busy: defaultdict[tuple[int, CostCategory], float] = field(default_factory=lambda: defaultdict(float))
    spans: list[Span] = field(default_factory=list)

    def append(self, other: TimelineSegment, times: int = 1) -> None:
        """Append a segment ``times`` times; iterations beyond ``MOST_SPANS`` spans are drawn as one on each IPU."""
        drawn = min(times, max(1, MOST_SPANS // max(len(other.spans), 1)))
        for number in range(drawn):
            start = self.seconds + number * other.seconds
            self.spans += (replace(span, start=start + span.start) for span in other.spans)
        if drawn < times and other.spans:
            start, rest = self.seconds + drawn * other.seconds, (times - drawn) * other.seconds
            name = f"{times - drawn} more iterations"
            ipus = sorted({span.ipu for span in other.spans})
            self.spans += (Span(ipu, start, rest, name, CostCategory.COMPUTE) for ipu in ipus)
        self.seconds += other.seconds * times
        self.add_busy(other, times)

    def save(self, path: str | os.PathLike[str], title: str = "timeline") -> None:
        """Write a picture (.svg) or a trace for Perfetto (.json); raise EmulatorError for other suffixes."""
        replace_file(path, timeline_file(Path(path), title, self.seconds, self.spans))

    def add_busy(self, other: TimelineSegment, times: int = 1) -> None:
        """Add the busy seconds of another segment, ``times`` times."""
        for key, seconds in other.busy.items():
            self.busy[key] += seconds * times

    def by_category(self) -> dict[CostCategory, float]:
        """Busy seconds of all IPUs, summed."""
        return {category: sum(s for (_, k), s in self.busy.items() if k is category) for category in CostCategory}

    def by_ipu(self) -> dict[int, float]:
        """Busy seconds of each IPU, without transfers that run while it computes."""
        busy: dict[int, float] = defaultdict(float)
        for (ipu, category), seconds in self.busy.items():
            busy[ipu] += 0.0 if category in (CostCategory.BESIDE, CostCategory.PREFETCH) else seconds
        return dict(sorted(busy.items()))


def timeline(executable: Executable, machine: ModelledMachine) -> TimelineSegment:
    """One step of one replica; all replicas do the same work at the same time, and wait for the hosts of all."""
    segment = _sequence(executable.program, Pricing(executable, machine))
    if any(type(leaf) in (AllReduce, ShardCollectives) for leaf in leaves(executable.program)):
        segment.seconds += float(machine.rates.waits(min(machine.system.most_hosts, machine.replicas)))
    return segment


def _sequence(program: Sequence[Instruction], pricing: Pricing) -> TimelineSegment:
    segment = TimelineSegment()
    for instruction in program:
        segment.append(row(SEGMENTS, type(instruction))(instruction, pricing))
    return segment


def _repeat(loop: Repeat, pricing: Pricing) -> TimelineSegment:
    overlapped = OverlappedLoop.of(loop, pricing.executable.plan)
    if overlapped:
        return _overlapped(overlapped, pricing)
    segment = TimelineSegment()
    segment.append(_sequence(loop.body, pricing), loop.times)
    return segment


def _preload(preload: Preload, pricing: Pricing) -> TimelineSegment:
    """The segment of a preload: the IPU of the next phase loads while that of this phase computes."""
    segment, loads = _sequence(preload.body, pricing), _sequence(preload.loads, pricing)
    segment.spans += loads.spans
    segment.seconds = max(segment.seconds, loads.seconds)
    segment.add_busy(loads)
    return segment


def _leaf(leaf: Leaf, pricing: Pricing) -> TimelineSegment:
    cost = pricing.of(leaf)
    spans = [Span(cost.ipu, 0.0, cost.seconds, str(leaf), cost.category)] if cost.seconds else []
    return TimelineSegment(cost.seconds, defaultdict(float, {(cost.ipu, cost.category): cost.seconds}), spans)


def _overlapped(loop: OverlappedLoop, pricing: Pricing) -> TimelineSegment:
    """The segment of a loop with overlapped host I/O, in the order of the engine's BoundOverlappedLoop."""
    segment, transfers = TimelineSegment(), _OverlappedTransfers(pricing)
    there = min(loop.total, *(leaf.ahead for leaf in loop.loads)) if loop.staged else 0
    work, after = (_sequence(part, pricing) for part in (loop.work, loop.after))
    for number in range(loop.total):
        segment.seconds = max(segment.seconds, transfers.ready.get(number, 0.0))
        segment.append(_sequence([] if number < there else loop.loads_for(number, overlapped=False), pricing))
        transfers.transfer(segment, number + 1, loop.stores_of(number - 1, overlapped=True))
        for later, loads in loop.coming(number, there):
            transfers.transfer(segment, later, loads)
        if loop.total <= number + there:
            transfers.transfer(segment, number + there, loop.loads)
        segment.append(_one_span(work, f"micro-batch {number}", {"micro-batch": number}))
        now = loop.stores_of(number, overlapped=False)
        segment.seconds = max(segment.seconds, 0.0 if loop.staged or not now else transfers.end)
        segment.append(_sequence(now, pricing))
        if (number + 1) % loop.micro_batches == 0:
            segment.append(_one_span(after, f"update {number // loop.micro_batches}", {}))
    segment.seconds = max(segment.seconds, transfers.end)
    return segment


@dataclass
class _OverlappedTransfers:
    """Host transfers while an IPU computes, one after the other; ``ready`` is when each micro-batch has its data."""

    pricing: Pricing
    end: float = 0.0
    ready: dict[int, float] = field(default_factory=dict)

    def transfer(self, segment: TimelineSegment, number: int, leaves: Sequence[HostLoad | HostStore]) -> None:
        """Schedule the transfers for which micro-batch ``number`` waits, as early as possible."""
        self.end = max(self.end, segment.seconds)
        for leaf in leaves:
            cost = self.pricing.of(leaf)
            kind = _overlapped_category(leaf)
            segment.spans.append(Span(cost.ipu, self.end, cost.seconds, str(leaf), kind))
            segment.busy[cost.ipu, kind] += cost.seconds
            self.end += cost.seconds
            self.ready[number] = self.end


def _overlapped_category(leaf: HostLoad | HostStore) -> CostCategory:
    return CostCategory.PREFETCH if leaf.overlap is Overlap.STAGED else CostCategory.BESIDE


def _one_span(block: TimelineSegment, name: str, about: Mapping[str, int]) -> TimelineSegment:
    """A segment of which each IPU that is busy in it has one span, with what it does as parts."""
    spans = [
        Span(ipu, 0.0, block.seconds, name, CostCategory.COMPUTE, about, [s for s in block.spans if s.ipu == ipu])
        for ipu, busy in block.by_ipu().items()
        if busy
    ]
    return TimelineSegment(block.seconds, block.busy, spans)


def _pipeline(pipeline: Pipeline, pricing: Pricing) -> TimelineSegment:
    """The segment of a pipeline: a task lasts as long as its instructions; I/O tiles serve the adjacent slots."""
    stages = [_stage(stage, pricing) for stage in pipeline.stages]
    segment, working = TimelineSegment(), [stage.ipus for stage in pipeline.stages]
    free: dict[int, float] = dict.fromkeys((ipu for ipus in working for ipu in ipus), 0.0)
    done: dict[tuple[int, int], float] = {}
    slots = [(), *pipeline.slots(), ()]
    for before, slot, after in zip([(), *slots], slots, [*slots[1:], ()], strict=False):
        transferred = dict(free)
        for task in after:
            transferred[task.ipu] += stages[task.stage].loads
        for task in before:
            transferred[task.ipu] += stages[task.stage].stores
        for task in slot:
            stage = stages[task.stage].work
            index = pipeline.stages[task.stage].index
            own = working[task.stage]
            start = max(*(free[ipu] for ipu in own), done.get((index - 1, task.micro_batch), 0.0))
            end = start + stage.seconds
            free |= dict.fromkeys(own, end)
            done[index, task.micro_batch] = max(end, done.get((index, task.micro_batch), 0.0))
            about, name = {"stage": index, "micro-batch": task.micro_batch}, str(replace(task, stage=index))
            segment.spans.append(Span(task.ipu, start, stage.seconds, name, task.what, about, stage.spans))
            segment.add_busy(stage)
        free = {ipu: max(seconds, transferred[ipu]) for ipu, seconds in free.items()}
        served = {task.ipu for task in slot if stages[task.stage].takes}
        served |= {task.ipu for task in after if stages[task.stage].gives}
        for group in pricing.machine.waiting(1 + max(free)):
            if served & set(group):
                free |= dict.fromkeys(group, max(free.get(ipu, 0.0) for ipu in group))
    segment.seconds = max(free.values(), default=0.0)
    return segment


@dataclass(frozen=True)
class _Stage:
    """The segment of a stage for one micro-batch, and the seconds that I/O tiles load and store for it.

    ``gives`` and ``takes``: whether the host writes data to the stage, and reads data from it.
    """

    work: TimelineSegment
    loads: float
    stores: float
    gives: bool
    takes: bool


def _stage(stage: PipelineStage, pricing: Pricing) -> _Stage:
    """Attribute all work of a stage to its IPU, including the copies that it receives.

    Spans are those of its instructions, on the IPU that works.
    """
    segment, working = TimelineSegment(), stage.ipus
    loads, stores = of_type(stage.body, HostLoad), of_type(stage.body, HostStore)
    overlapped = [leaf for leaf in host_transfers(stage.body) if leaf.overlap is not Overlap.NONE]
    for leaf in stage.body:
        cost = pricing.of(leaf)
        if leaf not in overlapped:
            if cost.seconds:
                ipu = cost.ipu if cost.ipu in working else stage.ipu
                segment.spans.append(Span(ipu, segment.seconds, cost.seconds, str(leaf), cost.category))
            segment.seconds += cost.seconds
            segment.busy[stage.ipu, cost.category] += cost.seconds
    for transfer in overlapped:
        segment.busy[stage.ipu, _overlapped_category(transfer)] += pricing.of(transfer).seconds
    load_seconds, store_seconds = (
        sum((pricing.of(leaf).seconds for leaf in leaves if leaf in overlapped), 0.0) for leaves in (loads, stores)
    )
    return _Stage(segment, load_seconds, store_seconds, gives=bool(loads), takes=bool(stores))


#: The segment of an instruction.
SEGMENTS: dict[type[Instruction], Callable[[Any, Pricing], TimelineSegment]] = {
    Leaf: _leaf,
    Repeat: _repeat,
    Preload: _preload,
    Pipeline: _pipeline,
}
