"""Engine: binds an executable to buffers that are laid out once, and runs it.

Instructions run in program order. Consecutive instructions of one category are bound to lists of prepared calls, one
list per replica; a step only runs through these lists, so it allocates nothing that grows with the model.
Replicas depend on each other only in collectives and at the host, so the order of all arithmetic is that of the
program, whatever the timing.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import groupby
from time import perf_counter_ns
from typing import Any

import numpy as np
from numpy.typing import NDArray

import popdist_py
from ipu_emu.engine.bound_parts import WORTH_PRELOADING, BoundPreload, CallLists, Loop, Part, PartList, StepContext
from ipu_emu.engine.calls.instruction_calls import Binder, HostPosition, StepFeedProtocol, category_of
from ipu_emu.engine.calls.wall_time import Wall, WallCategory
from ipu_emu.engine.io_loop import BoundOverlappedLoop
from ipu_emu.engine.pipeline.bound_pipeline import BoundPipeline
from ipu_emu.engine.replicas.background_reduction import BackgroundReduction
from ipu_emu.engine.replicas.buffers import Buffers, prefaulted
from ipu_emu.engine.replicas.local_replicas import Replicas
from ipu_emu.engine.threads.worker_threads import PART_IN_PIPELINES, WORTH_A_THREAD, Workers
from ipu_emu.errors import SessionError
from ipu_emu.graph import Role, original_of
from ipu_emu.hardware import mapped
from ipu_emu.ops import Call
from ipu_emu.ops.codegen.held_copies import HeldCopies
from ipu_emu.ops.codegen.llvm_compiler import give_back_compiler
from ipu_emu.ops.core.op_definition import call_chain
from ipu_emu.program.buckets import Bucket
from ipu_emu.program.early_reductions import BucketPart, EarlyReductions
from ipu_emu.program.executable import Executable
from ipu_emu.program.fused_stores import FusedStores, fused_stores
from ipu_emu.program.held_variables import held_variables
from ipu_emu.program.instructions import (
    Instruction,
    Leaf,
    Pipeline,
    Preload,
    Repeat,
    WeightUpdate,
    leaves,
    of_type,
    row,
    walk,
)
from ipu_emu.program.memory_plan import Allocation, is_off_chip
from ipu_emu.program.overlapped_loops import OverlappedLoop
from ipu_emu.program.weight_copies import CopiesRecord

#: Bytes of a plan from which the engine discards the compiler's code to save memory.
_LARGE_PLAN = 1 << 26


class Engine:
    """Local replicas of one executable, with their memory; ``folder`` is for files of Streaming Memory.

    With ``watch`` a step raises an error if an op produces an infinity or NaN.
    """

    def __init__(
        self, executable: Executable, replicas: Replicas, *, folder: str | None = None, watch: bool = False
    ) -> None:
        self.executable = executable
        self.replicas = replicas
        #: Records copies of weights to the host, if this process records a trace; set by the creator of the engine.
        self.record: CopiesRecord | None = None
        self.wall = Wall()
        sizes = executable.plan.sizes
        self._buckets = {
            region: replicas.bucket(Bucket.named(region), size)
            for region, size in sizes.items()
            if Bucket.is_bucket(region)
        }
        self._fused = FusedStores(executable.plan) if watch else fused_stores(executable)
        held = held_variables(executable)
        self._buffers = [
            Buffers(self._fused.plan, {name: rows[replica] for name, rows in self._buckets.items()}, folder, held)
            for replica in range(replicas.local)
        ]
        self._workers = Workers(self._threads())
        self._preloader: Workers | None = None
        self._host = HostPosition()
        self._context = StepContext(self._host, self.wall, self._workers)
        #: The reductions that begin during the backward pass, if any.
        self.early = None if watch else self._early_reductions()
        self._reductions = {
            region: BackgroundReduction(replicas, self._buckets[region], parts)
            for region, parts in (self.early.parts if self.early else {}).items()
        }
        #: Copies of the variables that no step changes, as kernels read them.
        self.held, self._written = _held_copies(held, folder), True
        self._binder = Binder(
            executable,
            replicas,
            self._buffers,
            self._buckets,
            self._host,
            watch=watch,
            early=self._reductions,
            held=self.held,
            fused=self._fused,
        )
        with prefaulted([part for buffers in self._buffers for part in buffers.weights()]):
            self.parts: list[Part] = list(self._bind(executable.program))
        self._warm_up()
        self._load()
        if sum(sizes.values()) >= _LARGE_PLAN:
            give_back_compiler()

    def _early_reductions(self) -> EarlyReductions | None:
        """The reductions that begin during the backward pass, if communication can overlap with compute."""
        if not self.replicas.reduces_early:
            return None
        executable = self.executable
        return EarlyReductions.of(executable.program, executable.plan, joint=not self.replicas.one_each)

    def _warm_up(self) -> None:
        """Run all collectives once, on zeros, so that their set-up does not delay the first step."""
        for part in self.parts:
            for category, call in part.calls():
                if category is WallCategory.COLLECTIVES:
                    call()

    def _load(self) -> None:
        """Set the initial values of the graph; all other memory is zero. Training sessions set variables later."""
        graph = self.executable.graph
        trains = bool(of_type(leaves(self.executable.program), WeightUpdate))
        for id, value in graph.data.items():
            if id in self.executable.plan.placements and not (trains and graph.tensors[id].role.is_variable):
                self._set(id, value)

    def _threads(self) -> int:
        """The worker threads: one per IPU that works at the same time, at most one per CPU, one for short steps."""
        pipelines = of_type(walk(self.executable.program), Pipeline)
        ipus = self.executable.plan.ipus if pipelines else 1
        least = WORTH_A_THREAD * (PART_IN_PIPELINES if pipelines else 1)
        if self.executable.cost().flops < least * ipus:
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
        self._written |= id in self.held.ids
        for replica, buffers in enumerate(self._buffers):
            own = value[self.replicas.group_of(replica, tensor.group)] if value.ndim > tensor.rank else value
            np.copyto(buffers.arrays[id], own, casting="unsafe")

    def view(self, id: str, replica: int = 0) -> NDArray[Any]:
        """A view of a tensor of one local replica in its logical shape, which the next step changes.

        The caller may write to it until then.
        """
        self._written |= id in self.held.ids
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
        """The number of steps run so far, on which random numbers depend."""
        return self._host.counters.step

    @steps.setter
    def steps(self, steps: int) -> None:
        self._host.counters.step = steps

    @property
    def seed(self) -> int:
        """The seed of the random numbers."""
        return self._host.counters.seed

    @seed.setter
    def seed(self, seed: int) -> None:
        self._host.counters.seed = seed

    def run(self, feed: StepFeedProtocol) -> None:
        """Run one step; unless the engine watches, infinities and NaN raise no error, as on the device."""
        if self._context.broken:
            raise SessionError(
                "An earlier step of this session failed in the middle of a pipeline, so some of its weights "
                "may not be updated; create a new session"
            )
        start = perf_counter_ns()
        if self._written:
            self.held.refresh()
            self._written = False
        self._host.feed = feed
        try:
            with np.errstate(all="ignore"):
                for part in self.parts:
                    part.run(self._context)
            self._host.counters.step += 1
        finally:
            self._host.feed = None
            self.wall.total += perf_counter_ns() - start

    def close(self) -> None:
        """Leave the collectives and end the threads."""
        self._workers.close()
        if self._preloader is not None:
            self._preloader.close()
        for part in self.parts:
            part.close()
        self.replicas.close()

    # Binding

    def _bind(self, instructions: Sequence[Instruction]) -> Iterator[Part]:
        for bind, group in groupby(instructions, lambda instruction: row(PARTS, type(instruction))):
            yield from bind(self, list(group))

    def _segments(self, group: Sequence[Leaf]) -> Iterator[Part]:
        for category, part in groupby(group, category_of):
            yield self._segment(category, list(part))

    def _segment(self, category: WallCategory, group: Sequence[Leaf]) -> CallLists:
        """Bind host I/O and collectives for all replicas at once, the other instructions per replica."""
        counters = self._host.counters
        if category is not WallCategory.COMPUTE:
            bound = [(leaf, [self._binder.shared(leaf, counters)]) for leaf in group]
            return CallLists(category, [self._binder.chain(bound, None, counters)])
        lists = [
            self._binder.chain(
                [(leaf, self._binder.local(leaf, replica, counters)) for leaf in group], replica, counters
            )
            for replica in range(self.replicas.local)
        ]
        return CallLists(category, lists)

    def _loops(self, group: Sequence[Repeat]) -> Iterator[Part]:
        for loop in group:
            overlapped = OverlappedLoop.of(loop, self.executable.plan)
            if overlapped:
                yield BoundOverlappedLoop(overlapped, self._binder)
            else:
                yield Loop(loop.times, loop.counter, PartList(list(self._body(loop))))

    def _body(self, loop: Repeat) -> Iterator[Part]:
        """Bind the body of a loop, and the calls that begin reductions in it."""
        start = 0
        begins = self.early.begins if self.early and loop is self.early.loop else {}
        for number, parts in sorted(begins.items()):
            yield from self._bind(loop.body[start : number + 1])
            yield CallLists(WallCategory.COLLECTIVES, [self._beginning(parts)])
            start = number + 1
        yield from self._bind(loop.body[start:])

    def _beginning(self, parts: Sequence[BucketPart]) -> Call:
        """A call that begins to reduce ``parts`` in the last micro-batch."""
        last, counters = self.executable.step.accumulation - 1, self._host.counters

        def begin() -> None:
            if counters.micro_batch == last:
                for part in parts:
                    self._reductions[part.bucket].begin(part)

        return begin

    def _pipelines(self, group: Sequence[Pipeline]) -> Iterator[Part]:
        for pipeline in group:
            yield BoundPipeline(pipeline, self._binder)

    def _preloads(self, group: Sequence[Preload]) -> Iterator[Part]:
        """Bind loads of the next phase; large loads get a thread."""
        for preload in group:
            loads: Call = call_chain(*self._segment(WallCategory.COMPUTE, preload.loads).lists)
            nbytes = sum(self.executable.graph.tensor(leaf.op.inputs[0]).nbytes for leaf in preload.loads)
            large = nbytes * self.replicas.local >= WORTH_PRELOADING
            if large and self._preloader is None:
                self._preloader = Workers(1, background=True)
            yield BoundPreload(loads, PartList(list(self._bind(preload.body))), self._preloader if large else None)


#: The method that binds consecutive instructions of a class to memory.
PARTS: dict[type[Instruction], Callable[[Engine, Any], Iterator[Part]]] = {
    Leaf: Engine._segments,
    Repeat: Engine._loops,
    Preload: Engine._preloads,
    Pipeline: Engine._pipelines,
}


def _held_copies(held: Mapping[str, Allocation], folder: str | None) -> HeldCopies:
    """Copies of variables; they are in files too if the ``folder`` of Streaming Memory has some of the variables."""
    in_files = folder is not None and any(is_off_chip(place.region) for place in held.values())
    return HeldCopies(held, partial(mapped, folder=folder) if in_files else None)
