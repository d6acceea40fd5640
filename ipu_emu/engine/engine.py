"""Engine: binds an executable to buffers that are laid out once, and runs it.

Instructions run in program order. A run of instructions of one kind is bound to lists of prepared calls, one list for
each replica; a step only walks these lists, so it allocates nothing that grows with the model. Replicas meet only in
collectives and at the host, so the order of all arithmetic is that of the program, whatever the timing.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from time import perf_counter_ns
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import ThreadpoolController

import popdist_py
from ipu_emu.compiler.placement.ipu_copies import original_of
from ipu_emu.engine.calls.instruction_calls import Binder, Feed, Host, kind_of
from ipu_emu.engine.calls.wall_time import Kind, Wall
from ipu_emu.engine.overlap.io_loop import OverlappedLoop
from ipu_emu.engine.overlap.preload_thread import WORTH_PRELOADING, BoundPreload
from ipu_emu.engine.pipeline.bound_pipeline import BoundPipeline
from ipu_emu.engine.replicas.buffers import Buffers
from ipu_emu.engine.replicas.local_replicas import Replicas
from ipu_emu.engine.threads.worker_threads import WORTH_A_THREAD, Workers
from ipu_emu.errors import SessionError
from ipu_emu.graph import Role
from ipu_emu.ops import Call
from ipu_emu.ops.core.call_chain import call_chain
from ipu_emu.program.buckets import Bucket
from ipu_emu.program.executable import Executable
from ipu_emu.program.instructions import Counter, Instruction, Pipeline, Preload, Repeat, leaves
from ipu_emu.program.leaf_instructions import Leaf, WeightUpdate
from ipu_emu.program.overlapped_loops import Overlapped

__all__ = ["Engine"]


@dataclass(frozen=True)
class _Segment:
    """Calls of one kind: lists that do not depend on each other, one per replica or one for all."""

    kind: Kind
    parts: Sequence[Call]


@dataclass(frozen=True)
class _Loop:
    times: int
    counter: Counter
    body: Sequence[_Part]


#: Instructions with others inside.
_WHOLE = Repeat | Preload | Pipeline
_Part = _Segment | _Loop | BoundPreload | BoundPipeline | OverlappedLoop


class Engine:
    """Local replicas of one executable, with their memory; ``folder`` is for files of Streaming Memory.

    With ``watch`` a step raises an error where an op makes an infinity or NaN.
    """

    def __init__(
        self, executable: Executable, replicas: Replicas, *, folder: str | None = None, watch: bool = False
    ) -> None:
        self.executable = executable
        self.replicas = replicas
        self.wall = Wall()
        self._host = Host()
        self._broken = False
        self._blas = ThreadpoolController().select(user_api="blas").lib_controllers
        sizes = executable.plan.sizes
        self._buckets = {
            region: replicas.bucket(Bucket.named(region), size)
            for region, size in sizes.items()
            if Bucket.is_bucket(region)
        }
        self._buffers = [
            Buffers(executable.plan, {name: rows[replica] for name, rows in self._buckets.items()}, folder)
            for replica in range(replicas.local)
        ]
        self._workers = Workers(self._threads())
        self._preloader: Workers | None = None
        self._binder = Binder(executable, replicas, self._buffers, self._buckets, self._host, watch=watch)
        self._program = list(self._bind(executable.program))
        self._warm_up(self._program)
        self._load()

    def _warm_up(self, parts: Sequence[_Part]) -> None:
        """Make the calls of collectives once, on zeros, before the first step; the others are ready."""
        self._pin_blas()
        for part in parts:
            if isinstance(part, _Loop | BoundPreload):
                self._warm_up(part.body)
                continue
            made = [(part.kind, call) for call in part.parts] if isinstance(part, _Segment) else part.calls()
            for kind, call in made:
                if kind is Kind.COLLECTIVES:
                    call()

    def _load(self) -> None:
        """Set what the graph starts from; all memory is zero as yet. Who trains sets the variables before a run."""
        graph = self.executable.graph
        trains = any(isinstance(leaf, WeightUpdate) for leaf in leaves(self.executable.program))
        for id, value in graph.data.items():
            if id in self.executable.plan.placements and not (trains and graph.tensors[id].role.is_variable):
                self._set(id, value)

    def _threads(self) -> int:
        """As many as there are IPUs that work at the same time and CPUs for them, if that is worth the trouble."""
        pipelines = any(isinstance(part, Pipeline) for part in _instructions(self.executable.program))
        ipus = self.executable.plan.ipus if pipelines else 1
        if self.executable.cost().flops < WORTH_A_THREAD * ipus:
            return 1
        cpus = len(os.sched_getaffinity(0)) // popdist_py.getNumInstances()
        return max(1, min(self.replicas.local * ipus, cpus))

    # Data

    def write(self, id: str, value: NDArray[Any]) -> None:
        """Set a tensor on all local replicas; a variable of several groups has a leading axis.

        A scalar is set on every IPU that reads it.
        """
        tensors = self.executable.graph.tensors
        twins = [other for other in tensors if original_of(other) == id] if tensors[id].role is Role.SCALAR else [id]
        for twin in twins:
            self._set(twin, value)

    def _set(self, id: str, value: NDArray[Any]) -> None:
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
        return sum(self.nbytes_of(ipu) for ipu in range(self.executable.plan.ipus))

    def nbytes_of(self, ipu: int) -> int:
        """Bytes that the engine holds for one IPU of each local replica."""
        return sum(buffers.nbytes_of(ipu) for buffers in self._buffers)

    def streaming_nbytes_of(self, ipu: int) -> int:
        """Bytes that the engine holds for the Streaming Memory of one IPU, of all local replicas."""
        return sum(buffers.streaming_nbytes_of(ipu) for buffers in self._buffers)

    # Running

    @property
    def steps(self) -> int:
        """Steps that have been run, which random numbers depend on."""
        return self._host.counts.step

    @steps.setter
    def steps(self, steps: int) -> None:
        self._host.counts.step = steps

    @property
    def seed(self) -> int:
        """What random numbers are made of, besides where they are drawn."""
        return self._host.counts.seed

    @seed.setter
    def seed(self, seed: int) -> None:
        self._host.counts.seed = seed

    def run(self, feed: Feed) -> None:
        """Run one step; infinities and NaN are values like others, as on the device, unless they are watched for."""
        if self._broken:
            raise SessionError(
                "A step of this session ended in the middle of a pipeline, so that its weights are of no step; make "
                "a new session"
            )
        start = perf_counter_ns()
        self._host.feed = feed
        try:
            self._pin_blas()
            with np.errstate(all="ignore"):
                self._walk(self._program)
            self._host.counts.step += 1
        finally:
            self._host.feed = None
            self.wall.total += perf_counter_ns() - start

    def close(self) -> None:
        """Leave the collectives and end the threads."""
        self._workers.close()
        if self._preloader is not None:
            self._preloader.close()
        for part in self._program:
            if isinstance(part, OverlappedLoop):
                part.close()
        self.replicas.close()

    def _pin_blas(self) -> None:
        """Let BLAS use one thread, for good: results must not depend on a number of threads.

        Restoring it after a step would change it under another engine that runs in another thread.
        """
        for library in self._blas:
            library.set_num_threads(1)

    def _walk(self, parts: Sequence[_Part]) -> None:
        for part in parts:
            if isinstance(part, _Loop):
                for turn in range(part.times):
                    self._host.counts.set(part.counter, turn)
                    self._walk(part.body)
            elif isinstance(part, BoundPreload):
                part.run(self._walk, self.wall.timed)
            elif isinstance(part, BoundPipeline):
                self._pipeline(part)
            elif isinstance(part, OverlappedLoop):
                part.run(self._workers, self.wall.timed)
            else:
                start = perf_counter_ns()
                self._workers.run(part.parts)
                self.wall.nanoseconds[part.kind] += perf_counter_ns() - start

    def _pipeline(self, pipeline: BoundPipeline) -> None:
        """Run a pipeline; one that ends early leaves micro-batches half done."""
        try:
            pipeline.run(self._workers, self.wall.timed)
        except BaseException:
            self._broken = True
            self._workers.close()
            raise

    # Binding

    def _bind(self, instructions: Sequence[Instruction]) -> Iterator[_Part]:
        for kind, group in groupby(instructions, _kind):
            if kind is None:
                yield from (self._whole(part) for part in group)
            else:
                yield _Segment(kind, self._segment(kind, [p for p in group if not isinstance(p, _WHOLE)]))

    def _whole(self, part: Instruction) -> _Part:
        if isinstance(part, Preload):
            return self._preloading(part)
        if isinstance(part, Pipeline):
            return BoundPipeline(part, self._binder)
        overlapped = Overlapped.of(part, self.executable.plan)
        if overlapped:
            return OverlappedLoop(overlapped, self._binder)
        assert isinstance(part, Repeat)
        return _Loop(part.times, part.counter, list(self._bind(part.body)))

    def _preloading(self, part: Preload) -> BoundPreload:
        """Loads that are large have a thread."""
        loads = call_chain(*self._segment(Kind.COMPUTE, part.loads))
        nbytes = sum(self.executable.graph.tensor(leaf.op.inputs[0]).nbytes for leaf in part.loads)
        large = nbytes * self.replicas.local >= WORTH_PRELOADING
        if large and self._preloader is None:
            self._preloader = Workers(1, aside=True)
        return BoundPreload(loads, list(self._bind(part.body)), self._preloader if large else None)

    def _segment(self, kind: Kind, leaves: Sequence[Leaf]) -> list[Call]:
        """Host and collective instructions concern all replicas at once; the others each replica alone."""
        if kind is not Kind.COMPUTE:
            return [call_chain(*(self._binder.shared(leaf, self._host.counts) for leaf in leaves))]
        counts = self._host.counts
        return [
            call_chain(*(step for leaf in leaves for step in self._binder.local(leaf, replica, counts)))
            for replica in range(self.replicas.local)
        ]


def _kind(instruction: Instruction) -> Kind | None:
    """The kind of time that an instruction costs; None for a loop or a pipeline."""
    return None if isinstance(instruction, _WHOLE) else kind_of(instruction)


def _instructions(program: Sequence[Instruction]) -> Iterator[Instruction]:
    """All instructions, loops and pipelines included."""
    for instruction in program:
        yield instruction
        if isinstance(instruction, Repeat):
            yield from _instructions(instruction.body)
