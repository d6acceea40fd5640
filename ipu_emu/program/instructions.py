"""Instruction: one action of all local replicas in a step; a program is a tuple of instructions.

The program of one batch of two micro-batches on several replicas, for example:

    repeat 1 batch
      repeat 2 micro-batches
        HostLoad input
        Compute Conv:0 = Conv(input, weights)
        ...
        AccumulateGradient Accum___weights += Gradient___weights
        HostStore loss
      AllReduce add FLOAT
      WeightUpdate UpdatedVar___weights = SgdPlain(weights, Accum___weights, ...)

With a pipeline in place of the inner loop:

      pipeline popart, 8 micro-batches
        stage 0 on IPU 0
          HostLoad input
          ...
        stage 1 on IPU 1
          IpuCopy Conv:0/ipu1 = IpuCopy(Conv:0)
          ...

A ``Leaf`` contains no other instructions; ``Repeat``, ``Preload`` and ``Pipeline`` do. The attributes of an
instruction describe it; a reader of programs has a table with a row for each class of instructions (see ``row``). A
new instruction is a class here, its name in ``INSTRUCTIONS``, and a row per reader.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import ClassVar, TypeVar

from gcl.drawing.units import counted
from ipu_emu.errors import InternalError
from ipu_emu.graph import Op
from ipu_emu.ops import TABLE
from ipu_emu.program.schedules import Slot, schedule

__all__ = [
    "INSTRUCTIONS",
    "AccumulateAnchor",
    "AccumulateGradient",
    "Accumulation",
    "AllReduce",
    "Compute",
    "CountMicroBatch",
    "Counter",
    "DrawKey",
    "HostLoad",
    "HostStore",
    "Instruction",
    "IpuCopy",
    "Leaf",
    "OpInstruction",
    "Overlap",
    "Pipeline",
    "PipelineStage",
    "Preload",
    "RemoteLoad",
    "RemoteStore",
    "Repeat",
    "ReplicaCollective",
    "ShardCollectives",
    "WeightUpdate",
    "host_transfers",
    "leaves",
    "listing",
    "of_type",
    "row",
    "walk",
]

_T = TypeVar("_T")
_I = TypeVar("_I", bound="Instruction")


class Instruction:
    """The attributes that all instructions have."""

    #: Whether the host is involved.
    is_host_io: ClassVar[bool] = False

    @property
    def bodies(self) -> tuple[tuple[Instruction, ...], ...]:
        """The programs that it contains."""
        return ()

    def with_bodies(self, bodies: Sequence[tuple[Instruction, ...]]) -> Instruction:
        """A copy of the instruction that contains other programs."""
        assert not bodies
        return self

    def lines(self) -> Iterator[str]:
        """The instruction as text, with the programs that it contains indented."""
        yield str(self)
        for body in self.bodies:
            yield from _indented(body)


class Leaf(Instruction):
    """An instruction that contains no others."""

    #: Whether it only moves data from one memory to another.
    is_copy: ClassVar[bool] = False

    @property
    def ops(self) -> tuple[Op, ...]:
        """The ops that it runs, or chooses from."""
        return ()

    @property
    def reads(self) -> tuple[str, ...]:
        """The ids of the tensors that it reads."""
        return tuple(id for op in self.ops for id in op.reads if id)

    @property
    def writes(self) -> tuple[str, ...]:
        """The ids of the tensors that it writes; for AllReduce, the bucket."""
        return tuple(id for op in self.ops for id in _written(op))

    @property
    def tensors(self) -> tuple[str, ...]:
        """The ids of all tensors that it reads or writes."""
        return tuple(dict.fromkeys((*self.reads, *self.writes)))


def _written(op: Op) -> Iterator[str]:
    yield from (id for id in op.outputs if id)
    yield from (op.inputs[index] for _, index in TABLE.in_place(op))


# Host I/O


class Overlap(Enum):
    """When the host transfers a tensor: just in time, or during the compute of the adjacent micro-batch.

    Two batches of three micro-batches; L loads, C computes, S stores, U updates the weights:

        NONE     compute      C0       C1       C2    U     C3       C4       C5    U
                 I/O       L0    S0 L1    S1 L2    S2    L3    S3 L4    S4 L5    S5

        INNER    compute      C0  C1  C2       U     C3  C4  C5       U
                 I/O       L0 L1  L2      S2      L3 L4  L5      S5
                                  S0  S1                 S3  S4

        LOOPS    compute      C0  C1  C2  U  C3  C4  C5  U
                 I/O       L0 L1  L2  L3     L4  L5         S5
                                  S0  S1     S2  S3  S4

    A tensor that is transferred during compute is double-buffered: one buffer is in use while the other is filled or
    read. Tensors that stay between micro-batches, such as weights, have one buffer and are stored just in time.

    STAGED inputs are loaded into Streaming Memory several micro-batches ahead; the IPU loads them from there.
    """

    NONE = ""
    INNER = " (during the adjacent micro-batch of the batch)"
    LOOPS = " (during the adjacent micro-batch)"
    STAGED = " (ahead, into Streaming Memory)"


@dataclass(frozen=True)
class HostLoad(Leaf):
    """Load the next chunk of ``tensor`` from the host for each replica, or with ``broadcast`` one chunk for all.

    With an overlap it may be loaded up to ``ahead`` micro-batches before it is used.
    """

    is_host_io: ClassVar[bool] = True

    tensor: str
    broadcast: bool = False
    overlap: Overlap = Overlap.NONE
    ahead: int = 1

    @property
    def writes(self) -> tuple[str, ...]:
        return (self.tensor,)

    @property
    def spare_places(self) -> int:
        """Buffers that the tensor needs in addition to the one in use, if it is loaded during compute."""
        return self.ahead

    def __str__(self) -> str:
        far = f", up to {self.ahead} micro-batches" if self.ahead > 1 else ""
        return f"HostLoad {self.tensor}{' (one for all replicas)' if self.broadcast else ''}{self.overlap.value}{far}"


@dataclass(frozen=True)
class HostStore(Leaf):
    """Store ``tensor`` of each replica on the host, as ``anchor``.

    With ``every`` = n only in every n-th micro-batch of the step; with ``every`` = 0 only in the last one.
    """

    is_host_io: ClassVar[bool] = True

    tensor: str
    anchor: str
    every: int = 1
    overlap: Overlap = Overlap.NONE

    @property
    def reads(self) -> tuple[str, ...]:
        return (self.tensor,)

    @property
    def spare_places(self) -> int:
        """Buffers that the tensor needs in addition to the one in use, if it is stored during compute."""
        return 1

    def __str__(self) -> str:
        when = {0: " (last micro-batch)", 1: ""}.get(self.every, f" (every {self.every} micro-batches)")
        return f"HostStore {self.anchor}{when}{self.overlap.value}"


# Instructions that run one op


@dataclass(frozen=True)
class OpInstruction(Leaf):
    """Base of the instructions that run one op."""

    op: Op

    @property
    def ops(self) -> tuple[Op, ...]:
        return (self.op,)

    def __str__(self) -> str:
        return f"{type(self).__name__} {self.op}"


class Compute(OpInstruction):
    """Run an op."""


class WeightUpdate(OpInstruction):
    """Run an op that changes a weight and its optimiser states in place."""


class IpuCopy(OpInstruction):
    """Copy a tensor to the IPU of ``op``."""

    is_copy: ClassVar[bool] = True


class RemoteLoad(OpInstruction):
    """Copy a tensor from Streaming Memory to its IPU."""

    is_copy: ClassVar[bool] = True


class RemoteStore(OpInstruction):
    """Copy a tensor from an IPU to its Streaming Memory."""

    is_copy: ClassVar[bool] = True


class ReplicaCollective(OpInstruction):
    """Run a collective op: each replica contributes its input and receives its output."""


# Other collectives


@dataclass(frozen=True)
class ShardCollectives(Leaf):
    """Run collectives of sharded tensors as one: each replica contributes all inputs and receives all outputs."""

    members: tuple[Op, ...]

    @property
    def ops(self) -> tuple[Op, ...]:
        return self.members

    def __str__(self) -> str:
        return f"ShardCollectives {'; '.join(map(str, self.members))}"


@dataclass(frozen=True)
class AllReduce(Leaf):
    """Combine a bucket over the replicas of its group, in all instances, in place.

    ``rounded`` are the tensors in a FLOAT16 bucket whose results are rounded stochastically, each with the name that
    selects its random numbers.
    """

    bucket: str
    operator: str
    rounded: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        return f"AllReduce {self.operator} {self.bucket}{', rounded stochastically' if self.rounded else ''}"


# Sums over micro-batches, and random numbers


@dataclass(frozen=True)
class Accumulation(Leaf):
    """Run ``first`` in the first micro-batch and ``others`` in the others."""

    first: Op
    others: Op

    @property
    def ops(self) -> tuple[Op, ...]:
        return self.first, self.others

    def __str__(self) -> str:
        return f"{type(self).__name__} {self.first.outputs[0]} += {self.first.inputs[1]}"


class AccumulateGradient(Accumulation):
    """Sum over the micro-batches of a batch."""


class AccumulateAnchor(Accumulation):
    """Sum over the micro-batches of a step."""


@dataclass(frozen=True)
class CountMicroBatch(Leaf):
    """Set the weights of a running mean: after f micro-batches, ``keep`` = f/(f+1) and ``take`` = 1/(f+1)."""

    keep: str
    take: str

    @property
    def writes(self) -> tuple[str, ...]:
        return self.keep, self.take

    def __str__(self) -> str:
        return f"CountMicroBatch {self.keep}, {self.take}"


@dataclass(frozen=True)
class DrawKey(Leaf):
    """Set the key of random numbers: [seed, global replica (0 if ``shared``), step, micro-batch of the step]."""

    tensor: str
    shared: bool = False

    @property
    def writes(self) -> tuple[str, ...]:
        return (self.tensor,)

    def __str__(self) -> str:
        return f"DrawKey {self.tensor}"


# Instructions that contain others


class Counter(Enum):
    """What a loop counts."""

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
        yield from ("preload", *_indented(self.loads), "while", *_indented(self.body))


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
            yield from _indented(stage.body, "    ")

    def __str__(self) -> str:
        loop = f", {self.iterations} at a time" if self.iterations > 1 else ""
        return f"pipeline {self.kind}, {counted(self.count, self.counter.value)}{loop}"


#: Every instruction that a program may have.
INSTRUCTIONS: tuple[type[Instruction], ...] = (
    HostLoad,
    HostStore,
    Compute,
    WeightUpdate,
    IpuCopy,
    RemoteLoad,
    RemoteStore,
    ReplicaCollective,
    ShardCollectives,
    AllReduce,
    AccumulateGradient,
    AccumulateAnchor,
    CountMicroBatch,
    DrawKey,
    Repeat,
    Preload,
    Pipeline,
)


def row(table: Mapping[type[Instruction], _T], kind: type[Instruction]) -> _T:
    """The row of a reader's table for a class of instructions: its own, or that of the nearest base class."""
    for cls in kind.__mro__:
        if cls in table:
            return table[cls]
    raise InternalError(f"a reader of programs has no row for {kind.__name__}")


def host_transfers(program: Iterable[Instruction]) -> Iterator[HostLoad | HostStore]:
    """The instructions of host I/O, in program order."""
    for leaf in leaves(program):
        if isinstance(leaf, HostLoad | HostStore):
            yield leaf


def of_type(instructions: Iterable[Instruction], kind: type[_I]) -> list[_I]:
    """The instructions of one class, or of classes derived from it."""
    return [instruction for instruction in instructions if isinstance(instruction, kind)]


def walk(program: Iterable[Instruction]) -> Iterator[Instruction]:
    """All instructions in program order, each before those that it contains."""
    for instruction in program:
        yield instruction
        for body in instruction.bodies:
            yield from walk(body)


def leaves(program: Iterable[Instruction]) -> Iterator[Leaf]:
    """The instructions that contain no others, in program order."""
    yield from of_type(walk(program), Leaf)


def listing(program: Iterable[Instruction]) -> str:
    """A program as text, a line for each instruction."""
    return "\n".join(line for instruction in program for line in instruction.lines())


def _indented(program: Iterable[Instruction], indent: str = "  ") -> Iterator[str]:
    for instruction in program:
        yield from (indent + line for line in instruction.lines())
