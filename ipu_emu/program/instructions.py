"""Instruction: one thing that all replicas of an instance do in a step.

A program is a tuple of these, for one batch of two micro-batches on several replicas for example

    repeat 1 batch
      repeat 2 micro-batch
        HostLoad input
        Compute Conv:0 = Conv(input, weights)
        ...
        AccumulateGradient Accum___weights += Gradient___weights
        HostStore loss
      AllReduce add FLOAT
      WeightUpdate UpdatedVar___weights = SgdPlain(weights, Accum___weights, ...)

and with a pipeline in the place of the inner loop

      pipeline popart, 8 micro-batches
        stage 0 on IPU 0
          HostLoad input
          ...
        stage 1 on IPU 1
          IpuCopy Conv:0/ipu1 = IpuCopy(Conv:0)
          ...
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum

from ipu_emu.program.leaf_instructions import Leaf, RemoteLoad, ops_of
from ipu_emu.program.schedules import Slot, schedule

__all__ = [
    "Counter",
    "Instruction",
    "Pipeline",
    "PipelineStage",
    "Preload",
    "Repeat",
    "leaves",
]


class Counter(Enum):
    """What a loop counts."""

    BATCH = "batch"
    MICRO_BATCH = "micro-batch"


@dataclass(frozen=True)
class Repeat:
    """Run ``body`` so many times."""

    times: int
    counter: Counter
    body: tuple[Instruction, ...]

    def __str__(self) -> str:
        return f"repeat {self.times} {self.counter.value}"


@dataclass(frozen=True)
class Preload:
    """Load from Streaming Memory what comes after ``body`` needs, while that runs."""

    loads: tuple[RemoteLoad, ...]
    body: tuple[Leaf, ...]

    def __str__(self) -> str:
        return "preload"


@dataclass(frozen=True)
class PipelineStage:
    """What the scheduled stage ``index``, or its part on one of several IPUs, does with each micro-batch.

    A sharded stage has ops on other IPUs too, which wait while it runs.
    """

    ipu: int
    body: tuple[Leaf, ...]
    index: int

    @property
    def ipus(self) -> set[int]:
        """All IPUs that work."""
        return {self.ipu} | {op.place.ipu for leaf in self.body for op in ops_of(leaf)}


@dataclass(frozen=True)
class Pipeline:
    """Run ``count`` micro-batches through ``stages``, of which so many are ``forward`` ones, as a schedule says.

    A stage with concurrent parts is there once for each; with batch serialisation each loops over ``iterations``
    micro-batches at a time.
    """

    kind: str
    forward: int
    training: bool
    count: int
    counter: Counter
    stages: tuple[PipelineStage, ...]
    iterations: int = 1

    def slots(self) -> Iterator[Slot]:
        """Which of ``stages`` works on which micro-batch, slot by slot."""
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

    def __str__(self) -> str:
        loop = f", {self.iterations} at a time" if self.iterations > 1 else ""
        return f"pipeline {self.kind}, {self.count} {self.counter.value}{loop}"


Instruction = Leaf | Repeat | Preload | Pipeline


def leaves(instructions: Sequence[Instruction]) -> Iterator[Leaf]:
    """The instructions without their loops, in program order."""
    for instruction in instructions:
        if isinstance(instruction, Repeat):
            yield from leaves(instruction.body)
        elif isinstance(instruction, Preload):
            yield from (*instruction.loads, *instruction.body)
        elif isinstance(instruction, Pipeline):
            yield from (leaf for stage in instruction.stages for leaf in stage.body)
        else:
            yield instruction
