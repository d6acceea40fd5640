"""Engine: binds an executable to buffers that are laid out once, and runs it.

Instructions run in program order. A run of instructions of one kind is bound to lists of prepared calls, one list for
each replica; a step only walks these lists, so it allocates nothing that grows with the model. Replicas meet only in
collectives and at the host, so the order of all arithmetic is that of the program, whatever the timing.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from time import perf_counter_ns
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import ThreadpoolController

import popdist_py
from ipu_emu.engine.bind import bind
from ipu_emu.engine.buffers import Buffers
from ipu_emu.engine.replicas import Replicas
from ipu_emu.engine.wall import Kind, Wall
from ipu_emu.engine.warm import compile_calls
from ipu_emu.engine.workers import WORTH_A_THREAD, Workers
from ipu_emu.graph import Op
from ipu_emu.ops import Step
from ipu_emu.ops.arrays import chain
from ipu_emu.program.buckets import Bucket
from ipu_emu.program.executable import Executable
from ipu_emu.program.instructions import (
    AccumulateAnchor,
    AccumulateGradient,
    AllReduce,
    Collective,
    Compute,
    Counter,
    CountMicroBatch,
    DrawKey,
    HostLoad,
    HostStore,
    Instruction,
    Leaf,
    Repeat,
    WeightUpdate,
    leaves,
)

__all__ = ["Engine", "Feed"]


class Feed(Protocol):
    """The host's side of a step."""

    def read(self, id: str) -> NDArray[Any]:
        """The next chunk of an input: one micro-batch of one replica, in any shape."""

    def write(self, id: str, value: NDArray[Any]) -> None:
        """Take the next chunk of an anchor."""


@dataclass
class _Counts:
    """Where a step is."""

    batch: int = 0
    micro_batch: int = 0
    step: int = 0


@dataclass(frozen=True)
class _Segment:
    """Calls of one kind: lists that do not depend on each other, one per replica or one for all."""

    kind: Kind
    parts: Sequence[Step]


@dataclass(frozen=True)
class _Loop:
    times: int
    counter: Counter
    body: Sequence[_Segment | _Loop]


class Engine:
    """Local replicas of one executable, with their memory."""

    def __init__(self, executable: Executable, replicas: Replicas) -> None:
        self.executable = executable
        self.replicas = replicas
        self.wall = Wall()
        self.seed = 0
        self._counts = _Counts()
        self._feed: Feed | None = None
        self._blas = ThreadpoolController().select(user_api="blas").lib_controllers
        sizes = executable.plan.sizes
        self._buckets = {
            region: replicas.bucket(Bucket.named(region), size)
            for region, size in sizes.items()
            if Bucket.is_bucket(region)
        }
        self._buffers = [
            Buffers(executable.plan, {name: rows[replica] for name, rows in self._buckets.items()})
            for replica in range(replicas.local)
        ]
        self._workers = Workers(self._threads())
        self._program = list(self._bind(executable.program))
        self._warm_up(self._program)
        self._load()

    def _warm_up(self, parts: Sequence[_Segment | _Loop]) -> None:
        """Compile what the calls need, and make those of collectives once, on zeros, before the first step."""
        self._pin_blas()
        for part in parts:
            if isinstance(part, _Loop):
                self._warm_up(part.body)
                continue
            for calls in part.parts:
                if part.kind is Kind.COLLECTIVES:
                    calls()
                else:
                    compile_calls(calls)

    def _load(self) -> None:
        """Set what the graph starts from; all memory is zero as yet. Who trains sets the variables before a run."""
        graph = self.executable.graph
        trains = any(isinstance(leaf, WeightUpdate) for leaf in leaves(self.executable.program))
        for id, value in graph.data.items():
            if id in self.executable.plan.placements and not (trains and graph.tensors[id].role.is_variable):
                self.write(id, value)

    def _threads(self) -> int:
        """As many as there are replicas and CPUs for them, if a micro-batch is worth the trouble."""
        if self.executable.cost().flops < WORTH_A_THREAD:
            return 1
        return max(1, min(self.replicas.local, len(os.sched_getaffinity(0)) // popdist_py.getNumInstances()))

    # Data

    def write(self, id: str, value: NDArray[Any]) -> None:
        """Set a tensor on all local replicas; a variable of several groups has a leading axis."""
        tensor = self.executable.graph.tensors[id]
        for replica, buffers in enumerate(self._buffers):
            own = value[self.replicas.group_of(replica, tensor.group)] if value.ndim > tensor.rank else value
            np.copyto(buffers.arrays[id], own, casting="unsafe")

    def view(self, id: str, replica: int = 0) -> NDArray[Any]:
        """A tensor of one local replica where it lies, in its logical shape; the next step changes it."""
        return self._buffers[replica].arrays[id]

    def read(self, id: str, replica: int = 0) -> NDArray[Any]:
        """A copy of a tensor of one local replica, in its logical shape."""
        return np.array(self._buffers[replica].arrays[id], order="C")

    @property
    def nbytes(self) -> int:
        """Bytes that the engine holds for all local replicas."""
        return self.replicas.local * sum(self.executable.plan.sizes.values())

    # Running

    def run(self, feed: Feed) -> None:
        """Run one step; infinities and NaN are values like others, as on the device."""
        start = perf_counter_ns()
        self._feed = feed
        try:
            self._pin_blas()
            with np.errstate(all="ignore"):
                self._walk(self._program)
            self._counts.step += 1
        finally:
            self._feed = None
            self.wall.total += perf_counter_ns() - start

    def _pin_blas(self) -> None:
        """Let BLAS use one thread, for good: results must not depend on a number of threads.

        Restoring it after a step would change it under another engine that runs in another thread.
        """
        for library in self._blas:
            library.set_num_threads(1)

    def _walk(self, parts: Sequence[_Segment | _Loop]) -> None:
        spent = self.wall.nanoseconds
        for part in parts:
            if isinstance(part, _Loop):
                for turn in range(part.times):
                    self._count(part.counter, turn)
                    self._walk(part.body)
                continue
            start = perf_counter_ns()
            self._workers.run(part.parts)
            spent[part.kind] += perf_counter_ns() - start

    def _count(self, counter: Counter, turn: int) -> None:
        if counter is Counter.BATCH:
            self._counts.batch = turn
        else:
            self._counts.micro_batch = turn

    # Binding

    def _bind(self, instructions: Sequence[Instruction]) -> Iterator[_Segment | _Loop]:
        for kind, group in groupby(instructions, _kind):
            if kind is None:
                for loop in group:
                    assert isinstance(loop, Repeat)
                    yield _Loop(loop.times, loop.counter, list(self._bind(loop.body)))
            else:
                yield _Segment(kind, self._segment(kind, [leaf for leaf in group if not isinstance(leaf, Repeat)]))

    def _segment(self, kind: Kind, leaves: Sequence[Leaf]) -> list[Step]:
        """Host and collective instructions concern all replicas at once; the others each replica alone."""
        if kind is not Kind.COMPUTE:
            return [chain(*(step for leaf in leaves for step in self._bind_shared(leaf)))]
        return [
            chain(*(step for leaf in leaves for step in self._bind_local(leaf, buffers))) for buffers in self._buffers
        ]

    def _bind_shared(self, leaf: Leaf) -> list[Step]:
        if isinstance(leaf, HostLoad):
            return [self._take(leaf)]
        if isinstance(leaf, HostStore):
            return [self._store(leaf)]
        if isinstance(leaf, Collective):
            return [self._collective(leaf.op)]
        assert isinstance(leaf, AllReduce)
        return [self.replicas.all_reduce(Bucket.named(leaf.bucket), self._buckets[leaf.bucket], leaf.operator)]

    def _collective(self, op: Op) -> Step:
        inputs = [buffers.arrays[op.inputs[0]] for buffers in self._buffers]
        outputs = [buffers.arrays[op.outputs[0]] for buffers in self._buffers]
        return self.replicas.collective(op, self.executable.graph.tensor(op.inputs[0]), inputs, outputs)

    def _bind_local(self, leaf: Leaf, buffers: Buffers) -> list[Step]:
        graph, counts = self.executable.graph, self._counts
        if isinstance(leaf, Compute | WeightUpdate):
            return bind(graph, leaf.op, buffers)
        if isinstance(leaf, CountMicroBatch):
            return [self._running_mean(leaf, buffers)]
        if isinstance(leaf, DrawKey):
            return [self._key(leaf, buffers)]
        assert isinstance(leaf, AccumulateGradient | AccumulateAnchor)
        first, others = (chain(*bind(graph, op, buffers)) for op in (leaf.first, leaf.others))
        if isinstance(leaf, AccumulateGradient):
            return [lambda: others() if counts.micro_batch else first()]
        return [lambda: others() if counts.micro_batch or counts.batch else first()]

    def _running_mean(self, leaf: CountMicroBatch, buffers: Buffers) -> Step:
        keep, take, counts = buffers.arrays[leaf.keep], buffers.arrays[leaf.take], self._counts

        def count() -> None:
            keep[()] = counts.micro_batch / (counts.micro_batch + 1)
            take[()] = 1 / (counts.micro_batch + 1)

        return count

    def _key(self, leaf: DrawKey, buffers: Buffers) -> Step:
        key, counts, factor = buffers.arrays[leaf.tensor], self._counts, self.executable.step.accumulation
        replica = 0 if leaf.shared else 1 + self.replicas.offset + self._buffers.index(buffers)

        def set_key() -> None:
            key[:] = self.seed, replica, counts.step, counts.batch * factor + counts.micro_batch

        return set_key

    @property
    def steps(self) -> int:
        """Steps that have been run, which random numbers depend on."""
        return self._counts.step

    @steps.setter
    def steps(self, steps: int) -> None:
        self._counts.step = steps

    def _take(self, leaf: HostLoad) -> Step:
        arrays = [buffers.arrays[leaf.tensor] for buffers in self._buffers]
        id, shape, one = leaf.tensor, arrays[0].shape, leaf.broadcast

        def load() -> None:
            feed = self._current()
            chunk = feed.read(id).reshape(shape) if one else None
            for array in arrays:
                np.copyto(array, feed.read(id).reshape(shape) if chunk is None else chunk)

        return load

    def _store(self, leaf: HostStore) -> Step:
        arrays = [buffers.arrays[leaf.tensor] for buffers in self._buffers]
        due = self._due(leaf)

        def store() -> None:
            if due():
                feed = self._current()
                for array in arrays:
                    feed.write(leaf.anchor, array)

        return store

    def _due(self, leaf: HostStore) -> Callable[[], bool]:
        """Whether a store acts in the current micro-batch; outside the loops it always does."""
        counts, factor = self._counts, self.executable.step.accumulation
        total = self.executable.step.batches * factor
        period = leaf.every or total
        if period == 1:
            return lambda: True
        return lambda: (counts.batch * factor + counts.micro_batch + 1) % period == 0

    def _current(self) -> Feed:
        assert self._feed is not None
        return self._feed


def _kind(instruction: Instruction) -> Kind | None:
    """The kind of time that an instruction costs; None for a loop."""
    if isinstance(instruction, Repeat):
        return None
    if isinstance(instruction, HostLoad | HostStore):
        return Kind.HOST_IO
    return Kind.COLLECTIVES if isinstance(instruction, AllReduce | Collective) else Kind.COMPUTE
