"""timeline: when each IPU of a replica does what, for a whole program.

Instructions follow each other, so that of a sharded model one IPU works at a time. In a pipeline every IPU goes
through its tasks in the order of the schedule; a task starts when its IPU is free and the stage before it is done:

    IPU 0   F0 F1 ...... B0 F2 B1 ...
    IPU 1      F0 B0 F1 ... B1                 between slots IPUs wait for each other while the host serves one

A loop is drawn once and counted as often as it runs. Where I/O tiles exchange data with the host while the others
compute (see ``program.overlap``), a micro-batch waits for what it needs, and every one is drawn:

    compute       m0    m1       m2
    I/O        L0 L1    S0 L2    S1    S2

Of staged inputs the first are there when a step begins, and those of the next step when it ends.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from ipu_emu.clock.machine import Machine
from ipu_emu.clock.pricing import Kind, Pricing
from ipu_emu.program.executable import Executable
from ipu_emu.program.instructions import Instruction, Pipeline, PipelineStage, Preload, Repeat
from ipu_emu.program.io_overlap import Overlap
from ipu_emu.program.leaf_instructions import HostLoad, HostStore, Leaf
from ipu_emu.program.overlapped_loops import Overlapped
from ipu_emu.program.schedules import Work

__all__ = ["Block", "Span", "timeline"]


@dataclass(frozen=True)
class Span:
    """``seconds`` of one IPU from ``start`` on, for an instruction or for a task of a pipeline."""

    ipu: int
    start: float
    seconds: float
    name: str
    kind: Kind | Work


@dataclass
class Block:
    """A stretch of a program: modelled seconds, the busy ones by IPU and kind, and spans from its start."""

    seconds: float = 0.0
    busy: defaultdict[tuple[int, Kind], float] = field(default_factory=lambda: defaultdict(float))
    spans: list[Span] = field(default_factory=list)

    def append(self, other: Block, times: int = 1) -> None:
        """Add what comes after, ``times`` times; its spans only once."""
        self.spans += (replace(span, start=self.seconds + span.start) for span in other.spans)
        self.seconds += other.seconds * times
        self.add_busy(other, times)

    def add_busy(self, other: Block, times: int = 1) -> None:
        """Add busy seconds of one kind to an IPU."""
        for key, seconds in other.busy.items():
            self.busy[key] += seconds * times

    def by_kind(self) -> dict[Kind, float]:
        """Busy seconds of all IPUs together."""
        return {kind: sum(s for (_, k), s in self.busy.items() if k is kind) for kind in Kind}

    def by_ipu(self) -> dict[int, float]:
        """Busy seconds of each IPU, without what is done beside it while it computes."""
        found: dict[int, float] = defaultdict(float)
        for (ipu, kind), seconds in self.busy.items():
            found[ipu] += 0.0 if kind in (Kind.BESIDE, Kind.PREFETCH) else seconds
        return dict(sorted(found.items()))


def timeline(executable: Executable, machine: Machine) -> Block:
    """One step of one replica; all replicas do the same at the same time."""
    return _block(executable.program, Pricing(executable, machine))


def _block(program: Sequence[Instruction], pricing: Pricing) -> Block:
    made = Block()
    for instruction in program:
        loop = Overlapped.of(instruction, pricing.executable.plan)
        if loop:
            made.append(_overlapped(loop, pricing))
        elif isinstance(instruction, Preload):
            made.append(_preload(instruction, pricing))
        elif isinstance(instruction, Repeat):
            made.append(_block(instruction.body, pricing), instruction.times)
        elif isinstance(instruction, Pipeline):
            made.append(_pipeline(instruction, pricing))
        else:
            made.append(_leaf(instruction, pricing))
    return made


def _preload(preload: Preload, pricing: Pricing) -> Block:
    """The IPU of the next phase loads while that of this one computes."""
    made, loads = _block(preload.body, pricing), _block(preload.loads, pricing)
    made.spans += loads.spans
    made.seconds = max(made.seconds, loads.seconds)
    made.add_busy(loads)
    return made


def _leaf(leaf: Leaf, pricing: Pricing) -> Block:
    found = pricing.of(leaf)
    spans = [Span(found.ipu, 0.0, found.seconds, str(leaf), found.kind)] if found.seconds else []
    return Block(found.seconds, defaultdict(float, {(found.ipu, found.kind): found.seconds}), spans)


def _overlapped(loop: Overlapped, pricing: Pricing) -> Block:
    """The order of the engine: see ``engine.overlap``."""
    made, beside = Block(), _Beside(pricing)
    there = min(loop.total, *(leaf.ahead for leaf in loop.loads)) if loop.staged else 0
    work, after = (_block(part, pricing) for part in (loop.work, loop.after))
    for number in range(loop.total):
        made.seconds = max(made.seconds, beside.ready.get(number, 0.0))
        made.append(_block([] if number < there else loop.loads_for(number, beside=False), pricing))
        beside.exchange(made, number + 1, loop.stores_of(number - 1, beside=True))
        for later, loads in loop.coming(number, there):
            beside.exchange(made, later, loads)
        if loop.total <= number + there:
            beside.exchange(made, number + there, loop.loads)
        made.append(_one_span(work, f"micro-batch {number}"))
        now = loop.stores_of(number, beside=False)
        made.seconds = max(made.seconds, 0.0 if loop.staged or not now else beside.end)
        made.append(_block(now, pricing))
        if (number + 1) % loop.micro_batches == 0:
            made.append(_one_span(after, f"update {number // loop.micro_batches}"))
    made.seconds = max(made.seconds, beside.end)
    return made


@dataclass
class _Beside:
    """What the host does while an IPU computes, one after the other; micro-batches are ``ready`` with its end."""

    pricing: Pricing
    end: float = 0.0
    ready: dict[int, float] = field(default_factory=dict)

    def exchange(self, made: Block, number: int, leaves: Sequence[HostLoad | HostStore]) -> None:
        """Exchange as soon as possible from now on what micro-batch ``number`` waits for."""
        self.end = max(self.end, made.seconds)
        for leaf in leaves:
            found = self.pricing.of(leaf)
            kind = _kind_beside(leaf)
            made.spans.append(Span(found.ipu, self.end, found.seconds, str(leaf), kind))
            made.busy[found.ipu, kind] += found.seconds
            self.end += found.seconds
            self.ready[number] = self.end


def _kind_beside(leaf: HostLoad | HostStore) -> Kind:
    return Kind.PREFETCH if leaf.overlap is Overlap.STAGED else Kind.BESIDE


def _one_span(block: Block, name: str) -> Block:
    """A block that is drawn as a whole on each IPU that is busy in it."""
    spans = [Span(ipu, 0.0, block.seconds, name, Kind.COMPUTE) for ipu, busy in block.by_ipu().items() if busy]
    return Block(block.seconds, block.busy, spans)


def _pipeline(pipeline: Pipeline, pricing: Pricing) -> Block:
    """Every task as long as the instructions of its stage; I/O tiles work for the slots before and after."""
    stages = [_stage(stage, pricing) for stage in pipeline.stages]
    made, working = Block(), [stage.ipus for stage in pipeline.stages]
    free: dict[int, float] = dict.fromkeys((ipu for ipus in working for ipu in ipus), 0.0)
    done: dict[tuple[int, int], float] = {}
    slots = [(), *pipeline.slots(), ()]
    for before, slot, after in zip([(), *slots], slots, [*slots[1:], ()], strict=False):
        exchanged = dict(free)
        for task in after:
            exchanged[task.ipu] += stages[task.stage].loads
        for task in before:
            exchanged[task.ipu] += stages[task.stage].stores
        for task in slot:
            stage = stages[task.stage].work
            index = pipeline.stages[task.stage].index
            own = working[task.stage]
            start = max(*(free[ipu] for ipu in own), done.get((index - 1, task.micro_batch), 0.0))
            end = start + stage.seconds
            free |= dict.fromkeys(own, end)
            done[index, task.micro_batch] = max(end, done.get((index, task.micro_batch), 0.0))
            made.spans.append(Span(task.ipu, start, stage.seconds, str(replace(task, stage=index)), task.what))
            made.add_busy(stage)
        free = {ipu: max(seconds, exchanged[ipu]) for ipu, seconds in free.items()}
        served = {task.ipu for task in slot if stages[task.stage].takes}
        served |= {task.ipu for task in after if stages[task.stage].gives}
        for group in pricing.machine.waiting(1 + max(free)):
            if served & set(group):
                free |= dict.fromkeys(group, max(free.get(ipu, 0.0) for ipu in group))
    made.seconds = max(free.values(), default=0.0)
    return made


@dataclass(frozen=True)
class _Stage:
    """What a stage takes for a micro-batch; seconds of loads and stores are those of I/O tiles.

    ``gives`` and ``takes`` say whether the host has to do with it.
    """

    work: Block
    loads: float
    stores: float
    gives: bool
    takes: bool


def _stage(stage: PipelineStage, pricing: Pricing) -> _Stage:
    """All of a stage is done by its IPU, copies that it receives too."""
    made = Block()
    beside: dict[type, float] = {HostLoad: 0.0, HostStore: 0.0}
    for leaf in stage.body:
        found = pricing.of(leaf)
        if isinstance(leaf, HostLoad | HostStore) and leaf.overlap is not Overlap.NONE:
            beside[type(leaf)] += found.seconds
            made.busy[stage.ipu, _kind_beside(leaf)] += found.seconds
        else:
            made.seconds += found.seconds
            made.busy[stage.ipu, found.kind] += found.seconds
    gives, takes = (any(isinstance(leaf, kind) for leaf in stage.body) for kind in (HostLoad, HostStore))
    return _Stage(made, beside[HostLoad], beside[HostStore], gives, takes)
