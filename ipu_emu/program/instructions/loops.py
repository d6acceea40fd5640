"""Instructions that contain others: a loop, loads from Streaming Memory during compute, a pipeline."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum

from gcl.drawing.units import counted
from ipu_emu.program.instructions.instruction import Instruction, Leaf, indented, of_type
from ipu_emu.program.instructions.op_instructions import RemoteLoad
from ipu_emu.program.schedules import Slot, schedule


class Counter(Enum):
    """The unit that a loop counts."""

    BATCH = "batch"
    MICRO_BATCH = "micro-batch"


@dataclass(frozen=True)
class Repeat(Instruction):
    """Run ``body`` ``count`` times."""

    times: int
    counter: Counter
    body: tuple[Instruction, ...]

    @property
    def bodies(self) -> tuple[tuple[Instruction, ...], ...]:
        return (self.body,)

    @property
    def runs_of_bodies(self) -> int:
        return self.times

    def with_bodies(self, bodies: Sequence[tuple[Instruction, ...]]) -> Repeat:
        (body,) = bodies
        return replace(self, body=body)

    def __str__(self) -> str:
        return f"repeat {counted(self.times, self.counter.value)}"


@dataclass(frozen=True)
class Preload(Instruction):
    """Run ``body``, and meanwhile load tensors for the instructions after it from Streaming Memory."""

    loads: tuple[RemoteLoad, ...]
    body: tuple[Leaf, ...]

    @property
    def bodies(self) -> tuple[tuple[Instruction, ...], ...]:
        return self.loads, self.body

    def with_bodies(self, bodies: Sequence[tuple[Instruction, ...]]) -> Preload:
        loads, body = bodies
        return Preload(tuple(of_type(loads, RemoteLoad)), tuple(of_type(body, Leaf)))

    def lines(self) -> Iterator[str]:
        yield from ("preload", *indented(self.loads), "while", *indented(self.body))


@dataclass(frozen=True)
class PipelineStage:
    """The program of the scheduled stage ``index``, or of its part on one of several IPUs, for one micro-batch.

    A sharded stage has ops on other IPUs too, which are busy for the whole stage.
    """

    ipu: int
    body: tuple[Leaf, ...]
    index: int

    @property
    def ipus(self) -> set[int]:
        """All IPUs that work for the stage."""
        return {self.ipu} | {op.place.ipu for leaf in self.body for op in leaf.ops}


@dataclass(frozen=True)
class Pipeline(Instruction):
    """Run ``count`` micro-batches through ``stages``, ``forward`` of them forward stages, by the schedule ``kind``.

    A stage with concurrent parts has an entry per part; with batch serialisation each stage processes ``iterations``
    micro-batches at a time.
    """

    kind: str
    forward: int
    training: bool
    count: int
    counter: Counter
    stages: tuple[PipelineStage, ...]
    iterations: int = 1

    @property
    def bodies(self) -> tuple[tuple[Instruction, ...], ...]:
        return tuple(stage.body for stage in self.stages)

    @property
    def runs_of_bodies(self) -> int:
        return self.count

    def with_bodies(self, bodies: Sequence[tuple[Instruction, ...]]) -> Pipeline:
        pairs = zip(self.stages, bodies, strict=True)
        return replace(self, stages=tuple(replace(stage, body=tuple(of_type(body, Leaf))) for stage, body in pairs))

    def slots(self) -> Iterator[Slot]:
        """The micro-batch that each of ``stages`` works on, slot by slot."""
        mapping = [[part.ipu for part in self.stages if part.index == stage] for stage in range(self.forward)]
        numbers = {(part.index, part.ipu): number for number, part in enumerate(self.stages)}
        slots = schedule(
            self.kind,
            self.forward,
            self.count // self.iterations,
            training=self.training,
            mapping=mapping,
            iterations=self.iterations,
        )
        for slot in slots:
            yield tuple(replace(task, stage=numbers[task.stage, task.ipu]) for task in slot)

    def lines(self) -> Iterator[str]:
        yield str(self)
        for stage in self.stages:
            yield f"  stage {stage.index} on IPU {stage.ipu}"
            yield from indented(stage.body, "    ")

    def __str__(self) -> str:
        loop = f", {self.iterations} at a time" if self.iterations > 1 else ""
        return f"pipeline {self.kind}, {counted(self.count, self.counter.value)}{loop}"
