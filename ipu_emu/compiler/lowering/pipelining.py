"""Pipelining: the micro-batch loop of a program, divided into the stages of a schedule.

Every instruction of a micro-batch belongs to one stage: an op to the stage of its place, a load to the first stage
that reads the tensor, a store to the stage that makes it. A backward op runs in the scheduled stage that mirrors its
forward stage.

    repeat 8 micro-batches                pipeline popart, 8 micro-batches
      HostLoad x                            stage 0 on IPU 0:  HostLoad x, Compute y = ...
      Compute y = ...             ->        stage 1 on IPU 1:  IpuCopy y/ipu1, Compute loss, Compute Gradient___y, ...
      Compute loss                          stage 2 on IPU 0:  IpuCopy Gradient___y/ipu0, Compute Gradient___w, ...
      ...
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from ipu_emu.errors import EmulatorError
from ipu_emu.graph import Graph, Op, StepPhase
from ipu_emu.ops import TABLE
from ipu_emu.program.instructions import (
    AccumulateAnchor,
    Accumulation,
    AllReduce,
    Counter,
    CountMicroBatch,
    DrawKey,
    HostLoad,
    HostStore,
    Instruction,
    Leaf,
    OpInstruction,
    Pipeline,
    PipelineStage,
    ShardCollectives,
    row,
)
from ipu_emu.program.schedules import schedule
from ipu_emu.program.schedules.schedule_table import scheduled_stages

#: The stage of an update that depends on no stage.
_ANY = -1


@dataclass(frozen=True)
class Pipelining:
    """A pipeline: the name of its schedule, and with ``mapping`` the IPUs of each forward stage.

    A stage with concurrent parts counts once per IPU. A stage whose parts read each other's results is sharded: it
    counts once, on the first of its IPUs, to which all its work is attributed.
    """

    kind: str
    mapping: tuple[tuple[int, ...], ...]
    training: bool
    iterations: int = 1

    @classmethod
    def of(cls, graph: Graph, kind: str, *, training: bool, iterations: int = 1) -> Pipelining:
        """Return the pipeline of a graph whose ops have places.

        If the forward pass of a stage, such as that of a loss, is not needed, the stage has the IPUs of its
        gradients.
        """
        ipus: dict[int, set[int]] = {}
        for phase in (StepPhase.FORWARD, StepPhase.BACKWARD):
            missing = {op.place for op in graph.ops if op.phase is phase and op.place.stage not in ipus}
            for place in missing:
                ipus.setdefault(place.stage, set()).add(place.ipu)
        for stage in _sharded(graph):
            ipus[stage] = {min(ipus[stage])}
        mapping = tuple(tuple(sorted(ipus.get(stage, {0}))) for stage in range(max(ipus, default=0) + 1))
        return cls(kind, mapping, training, iterations)

    @cached_property
    def parts(self) -> list[tuple[int, int]]:
        """The scheduled stages and their IPUs."""
        forward = len(self.mapping)
        stages = scheduled_stages(self.kind, forward, training=self.training, mapping=self.mapping)
        return [(stage.index, ipu) for stage in stages for ipu in stage.ipus]

    @property
    def scheduled(self) -> list[int]:
        """The IPU of each part."""
        return [ipu for _, ipu in self.parts]

    def number(self, op: Op) -> int:
        """Return the part that an op of the forward or the backward pass belongs to."""
        stage = op.place.stage if op.phase is StepPhase.FORWARD else self.parts[-1][0] - op.place.stage
        ipus = self.mapping[op.place.stage]
        return self.parts.index((stage, ipus[0] if len(ipus) == 1 else op.place.ipu))

    def check(self, count: int) -> None:
        """Raise EmulatorError for a number of micro-batches that the schedule cannot run."""
        if count % self.iterations:
            raise EmulatorError(
                f"{count} micro-batches per step, but batch serialisation takes {self.iterations} at a time; "
                f"use a multiple of {self.iterations}"
            )
        schedule(
            self.kind,
            len(self.mapping),
            count // self.iterations,
            training=self.training,
            mapping=self.mapping,
            iterations=self.iterations,
        )


def _sharded(graph: Graph) -> set[int]:
    """Return the forward stages in which an op reads a result of another IPU of the same stage."""
    places = {id: op.place for op in graph.ops if op.phase is StepPhase.FORWARD for id in op.outputs}
    return {
        op.place.stage
        for op in graph.ops
        if op.phase is StepPhase.FORWARD
        for id in op.reads
        if id in places and places[id].stage == op.place.stage and places[id].ipu != op.place.ipu
    }


class Stages:
    """The scheduled stage of every op; without pipelining all ops are in one.

    Updates come after the pipeline. If they are ``continuous``, each runs as soon as its gradient is complete.
    """

    def __init__(self, graph: Graph, pipelining: Pipelining | None, *, continuous: bool) -> None:
        self.pipelining = pipelining
        self.last = len(pipelining.scheduled) if pipelining else 0
        self.by_output: dict[str, int] = {}
        for op in graph.ops:
            self.by_output |= dict.fromkeys(op.outputs, self._find(op, continuous))
        if pipelining and continuous:
            self._find_early(graph, pipelining.scheduled)
            for op in graph.ops:
                self._check(op, pipelining.scheduled)

    def _find(self, op: Op, continuous: bool) -> int:
        if self.pipelining is None:
            return int(op.phase is StepPhase.UPDATE)
        if op.phase is not StepPhase.UPDATE:
            return self.pipelining.number(op)
        return max((self.by_output.get(id, _ANY) for id in op.inputs), default=_ANY) if continuous else self.last

    def _find_early(self, graph: Graph, scheduled: Sequence[int]) -> None:
        """Give the update ops that read no gradient, such as loads of a state, the stage of their update."""
        readers: dict[str, list[int]] = {}
        for op in reversed(graph.ops):
            number = self.of(op)
            if number == _ANY:
                last = max(stage for stage, ipu in enumerate(scheduled) if ipu == op.place.ipu)
                number = min((stage for id in op.outputs for stage in readers.get(id, ())), default=last)
                self.by_output |= dict.fromkeys(op.outputs, number)
            for id in op.inputs:
                readers.setdefault(id, []).append(number)

    def _check(self, op: Op, scheduled: Sequence[int]) -> None:
        """Raise EmulatorError if an update would wait for a stage on another IPU."""
        home = scheduled[self.of(op)]
        if home != op.place.ipu:
            raise EmulatorError(
                f"{op.label} on IPU {op.place.ipu} needs a gradient of a stage on IPU {home} before its own weights "
                "may change, but in a pipeline without gradient accumulation weights change at once; set "
                "enableGradientAccumulation"
            )

    def of(self, op: Op) -> int:
        """Return the stage of an op."""
        return self.by_output[op.outputs[0]]

    def pipeline(self, leaves: Sequence[Leaf], reduced: Mapping[str, int], count: int, counter: Counter) -> Pipeline:
        """Return ``leaves`` of one micro-batch as a pipeline; each stage runs its own in their order.

        ``reduced`` maps buckets to the stages in which they are reduced.
        """
        how = self.pipelining
        assert how is not None
        bodies: list[list[Leaf]] = [[] for _ in how.parts]
        for leaf, numbers in zip(leaves, _Distribution(leaves, self.by_output, reduced).numbers(), strict=True):
            for number in numbers:
                bodies[number].append(leaf)
        stages = tuple(
            PipelineStage(ipu, tuple(body), index) for (index, ipu), body in zip(how.parts, bodies, strict=True)
        )
        return Pipeline(how.kind, len(how.mapping), how.training, count, counter, stages, how.iterations)


class _Distribution:
    """Assigns instructions to stages."""

    def __init__(self, leaves: Sequence[Leaf], by_output: Mapping[str, int], reduced: Mapping[str, int]) -> None:
        self.leaves, self.reduced = leaves, reduced
        self.written: dict[str, int] = dict(by_output)
        self.read: dict[str, set[int]] = {}
        for leaf in leaves:
            for op in () if type(leaf) is AccumulateAnchor else leaf.ops:
                (number,) = self.stages(leaf)
                changed = (op.inputs[index] for _, index in TABLE.in_place(op))
                self.written |= dict.fromkeys([*op.outputs, *changed], number)
                for id in op.reads:
                    self.read.setdefault(id, set()).add(number)

    def numbers(self) -> Iterator[Iterable[int]]:
        """The stages of each instruction."""
        return map(self.stages, self.leaves)

    def stages(self, leaf: Leaf) -> Iterable[int]:
        """The stages that run an instruction."""
        return row(STAGES, type(leaf))(self, leaf)

    def where(self, id: str) -> int:
        """The stage that makes or changes ``id`` last, or reads it first."""
        return self.written.get(id, min(self.read.get(id, {0})))

    def of_load(self, leaf: HostLoad) -> Iterable[int]:
        """The first stage that reads it."""
        return [min(self.read.get(leaf.tensor, {0}))]

    def of_store(self, leaf: HostStore) -> Iterable[int]:
        return [self.where(leaf.tensor)]

    def of_reduction(self, leaf: AllReduce) -> Iterable[int]:
        return [self.reduced[leaf.bucket]]

    def of_accumulation(self, leaf: Accumulation) -> Iterable[int]:
        """The stage that makes the gradient to add."""
        return [self.where(leaf.first.inputs[1])]

    def of_op(self, leaf: Leaf) -> Iterable[int]:
        """The stage of the output, or if that is unknown of the input."""
        op = leaf.ops[0]
        return [self.where(op.outputs[0] if op.outputs[0] in self.written else op.inputs[0])]

    def of_key(self, leaf: DrawKey) -> Iterable[int]:
        return sorted(self.read.get(leaf.tensor, ()))

    def of_count(self, leaf: CountMicroBatch) -> Iterable[int]:
        return sorted(self.read.get(leaf.keep, ()))


#: The stages that run each instruction of a micro-batch: every stage that reads a scalar sets it.
STAGES: dict[type[Instruction], Callable[[_Distribution, Any], Iterable[int]]] = {
    HostLoad: _Distribution.of_load,
    HostStore: _Distribution.of_store,
    OpInstruction: _Distribution.of_op,
    ShardCollectives: _Distribution.of_op,
    AllReduce: _Distribution.of_reduction,
    Accumulation: _Distribution.of_accumulation,
    DrawKey: _Distribution.of_key,
    CountMicroBatch: _Distribution.of_count,
}
