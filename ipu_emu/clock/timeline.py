"""timeline: when each IPU of a replica does what, for a whole program.

Instructions follow each other, so that of a sharded model one IPU works at a time. In a pipeline every IPU goes
through its tasks in the order of the schedule; a task starts when its IPU is free and the stage before it is done:

    IPU 0   F0 F1 ...... B0 F2 B1 ...
    IPU 1      F0 B0 F1 ... B1                 with slots as barriers, all wait for the slowest after each

A loop is drawn once and counted as often as it runs.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from ipu_emu.clock.machine import Machine
from ipu_emu.clock.pricing import Kind, Pricing
from ipu_emu.program.executable import Executable
from ipu_emu.program.instructions import Instruction, Leaf, Pipeline, PipelineStage, Repeat

__all__ = ["Block", "Span", "timeline"]


@dataclass(frozen=True)
class Span:
    """``seconds`` of one IPU from ``start`` on."""

    ipu: int
    start: float
    seconds: float
    name: str


@dataclass
class Block:
    """A stretch of a program: modelled seconds, the busy ones by IPU and kind, and spans from its start."""

    seconds: float = 0.0
    busy: defaultdict[tuple[int, Kind], float] = field(default_factory=lambda: defaultdict(float))
    spans: list[Span] = field(default_factory=list)

    def append(self, other: Block, times: int = 1) -> None:
        """Add what comes after, ``times`` times; its spans only once."""
        self.spans += (Span(s.ipu, self.seconds + s.start, s.seconds, s.name) for s in other.spans)
        self.seconds += other.seconds * times
        self.add_busy(other, times)

    def add_busy(self, other: Block, times: int = 1) -> None:
        for key, seconds in other.busy.items():
            self.busy[key] += seconds * times

    def by_kind(self) -> dict[Kind, float]:
        """Busy seconds of all IPUs together."""
        return {kind: sum(s for (_, k), s in self.busy.items() if k is kind) for kind in Kind}

    def by_ipu(self) -> dict[int, float]:
        """Busy seconds of each IPU."""
        found: dict[int, float] = defaultdict(float)
        for (ipu, _), seconds in self.busy.items():
            found[ipu] += seconds
        return dict(sorted(found.items()))


def timeline(executable: Executable, machine: Machine) -> Block:
    """One step of one replica; all replicas do the same at the same time."""
    return _block(executable.program, Pricing(executable, machine))


def _block(program: Sequence[Instruction], pricing: Pricing) -> Block:
    made = Block()
    for instruction in program:
        if isinstance(instruction, Repeat):
            made.append(_block(instruction.body, pricing), instruction.times)
        elif isinstance(instruction, Pipeline):
            made.append(_pipeline(instruction, pricing))
        else:
            made.append(_leaf(instruction, pricing))
    return made


def _leaf(leaf: Leaf, pricing: Pricing) -> Block:
    found = pricing.of(leaf)
    spans = [Span(found.ipu, 0.0, found.seconds, str(leaf))] if found.seconds else []
    return Block(found.seconds, defaultdict(float, {(found.ipu, found.kind): found.seconds}), spans)


def _pipeline(pipeline: Pipeline, pricing: Pricing) -> Block:
    """Every task as long as the instructions of its stage."""
    stages = [_stage(stage, pricing) for stage in pipeline.stages]
    made = Block()
    free: dict[int, float] = dict.fromkeys((stage.ipu for stage in pipeline.stages), 0.0)
    done: dict[tuple[int, int], float] = {}
    for slot in pipeline.slots():
        for task in slot:
            stage = stages[task.stage]
            start = max(free[task.ipu], done.get((task.stage - 1, task.micro_batch), 0.0))
            free[task.ipu] = done[task.stage, task.micro_batch] = start + stage.seconds
            made.spans.append(Span(task.ipu, start, stage.seconds, str(task)))
            made.add_busy(stage)
        if pricing.machine.slots_are_barriers:
            free = dict.fromkeys(free, max(free.values()))
    made.seconds = max(free.values(), default=0.0)
    return made


def _stage(stage: PipelineStage, pricing: Pricing) -> Block:
    """All of a stage is done by its IPU, copies that it receives too."""
    made = Block()
    for leaf in stage.body:
        found = pricing.of(leaf)
        made.seconds += found.seconds
        made.busy[stage.ipu, found.kind] += found.seconds
    return made
