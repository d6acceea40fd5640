"""Binder: turns instructions into prepared calls on the memory of the local replicas.

Host I/O and collectives serve all local replicas at once: one call. Any other instruction is run by each replica
alone: a list of calls per replica. ``CALLS`` has a row for every instruction: the category of its time, and the
method that prepares its calls.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ipu_emu.engine.calls.floating_point_checks import with_floating_point_check
from ipu_emu.engine.calls.instruction_trace import BoundLeaves, InstructionTrace
from ipu_emu.engine.calls.op_calls import op_calls
from ipu_emu.engine.calls.step_counters import StepCounters
from ipu_emu.engine.calls.wall_time import WallCategory
from ipu_emu.engine.replicas.background_reduction import (
    BackgroundReduction,
    RoundedSum,
    float_view,
    rounded_reduction,
)
from ipu_emu.engine.replicas.buffers import Buffers
from ipu_emu.engine.replicas.local_replicas import Replicas
from ipu_emu.engine.replicas.shard_collectives import CollectiveMember, shard_collective_call
from ipu_emu.graph import Op
from ipu_emu.ops import Call
from ipu_emu.ops.codegen.held_copies import HeldCopies
from ipu_emu.ops.core.op_definition import call_chain
from ipu_emu.program.buckets import Bucket, workspace_of
from ipu_emu.program.executable import Executable
from ipu_emu.program.fused_stores import FusedStores
from ipu_emu.program.instructions import (
    AccumulateAnchor,
    AccumulateGradient,
    AllReduce,
    CountMicroBatch,
    DrawKey,
    HostLoad,
    HostStore,
    Instruction,
    Leaf,
    OpInstruction,
    ReplicaCollective,
    ShardCollectives,
    row,
)
from popdist_py import trace

_Arrays = Sequence[NDArray[Any]]


class StepFeedProtocol(Protocol):
    """Protocol of the data that the host exchanges with a step."""

    def read(self, id: str) -> NDArray[Any]:
        """The next chunk of an input: one micro-batch of one replica, in any shape."""

    def write(self, id: str, value: NDArray[Any]) -> None:
        """Take the next chunk of an anchor."""


@dataclass
class HostPosition:
    """The feed of the current step, and the micro-batch that the host is transferring."""

    feed: StepFeedProtocol | None = None
    counters: StepCounters = field(default_factory=StepCounters)

    @property
    def current(self) -> StepFeedProtocol:
        assert self.feed is not None
        return self.feed


class Binder:
    """Prepares calls; ``buckets`` have a row per local replica, and ``buffers`` are the memory of these replicas.

    A tensor with several buffers is used in the buffer of ``micro_batch``. The all-reduces of ``early`` buckets begin
    elsewhere. Ops read copies of the tensors that are ``held``. Products apply ``fused`` functions to their results.
    """

    def __init__(
        self,
        executable: Executable,
        replicas: Replicas,
        buffers: Sequence[Buffers],
        buckets: dict[str, NDArray[Any]],
        host: HostPosition,
        *,
        watch: bool = False,
        early: Mapping[str, BackgroundReduction] = MappingProxyType({}),
        held: HeldCopies | None = None,
        fused: FusedStores | None = None,
    ) -> None:
        self.executable, self.replicas, self.buffers, self.buckets = executable, replicas, buffers, buckets
        self.host, self.watch, self._early, self._held = host, watch, early, held
        self._fused = fused or FusedStores(executable.plan)
        self._recorder = trace.recorder()

    def shared(self, leaf: Leaf, counters: StepCounters, micro_batch: int = 0) -> Call:
        """The call of an instruction that serves all replicas at once."""
        step: Call = _row(leaf).bind(self, leaf, counters, micro_batch)
        return step

    def local(self, leaf: Leaf, replica: int, counters: StepCounters, micro_batch: int = 0) -> list[Call]:
        """The calls of an instruction that each replica runs alone."""
        steps: list[Call] = _row(leaf).bind(self, leaf, replica, counters, micro_batch)
        return steps

    def chain(
        self,
        bound: BoundLeaves,
        replica: int | None,
        counters: StepCounters,
        about: Mapping[str, Any] | None = None,
    ) -> Call:
        """One call of the calls of several instructions; ``replica``: the one that runs them, None for all at once.

        If this process records a trace, every instruction becomes a span with the label ``about``.
        """
        if self._recorder is None:
            return call_chain(*(call for _, calls in bound for call in calls))
        return InstructionTrace(self._recorder, self.replicas.offset, about).chain(bound, replica, counters)

    # Instructions that each replica runs alone

    def op(self, leaf: OpInstruction, replica: int, counters: StepCounters, micro_batch: int) -> list[Call]:
        if leaf.op.outputs[0] in self._fused.done:
            return []
        return self._op_calls(leaf.op, replica, micro_batch)

    def gradient_sum(
        self, leaf: AccumulateGradient, replica: int, counters: StepCounters, micro_batch: int
    ) -> list[Call]:
        first, others = (call_chain(*self._op_calls(op, replica, micro_batch)) for op in (leaf.first, leaf.others))
        return [lambda: others() if counters.micro_batch else first()]

    def anchor_sum(
        self, leaf: AccumulateAnchor, replica: int, counters: StepCounters, micro_batch: int
    ) -> list[Call]:
        first, others = (call_chain(*self._op_calls(op, replica, micro_batch)) for op in (leaf.first, leaf.others))
        return [lambda: others() if counters.micro_batch or counters.batch else first()]

    def mean_weights(
        self, leaf: CountMicroBatch, replica: int, counters: StepCounters, micro_batch: int
    ) -> list[Call]:
        keep, take = (self.buffers[replica].arrays[id] for id in (leaf.keep, leaf.take))

        def count() -> None:
            keep[()] = counters.micro_batch / (counters.micro_batch + 1)
            take[()] = 1 / (counters.micro_batch + 1)

        return [count]

    def key(self, leaf: DrawKey, replica: int, counters: StepCounters, micro_batch: int) -> list[Call]:
        key, factor = self.buffers[replica].arrays[leaf.tensor], self.executable.step.accumulation
        number = 0 if leaf.shared else 1 + self.replicas.offset + replica

        def set_key() -> None:
            key[:] = counters.seed, number, counters.step, counters.batch * factor + counters.micro_batch

        return [set_key]

    def _op_calls(self, op: Op, replica: int, micro_batch: int) -> list[Call]:
        buffers, graph = self.buffers[replica], self.executable.graph
        then = self._fused.functions.get(op.outputs[0])
        return op_calls(graph, op, buffers, micro_batch, watch=self.watch, held=self._held, then=then)

    # Collectives

    def all_reduce(self, leaf: AllReduce, counters: StepCounters, micro_batch: int) -> Call:
        if leaf.bucket in self._early:
            return self._early[leaf.bucket].wait
        bucket = self.buckets[leaf.bucket]
        return self._watched("the reduction of gradients", self._reduction(leaf, counters), [bucket], [bucket])

    def _reduction(self, leaf: AllReduce, counters: StepCounters) -> Call:
        kind, bucket = Bucket.named(leaf.bucket), self.buckets[leaf.bucket]
        if not leaf.rounded:
            return self.replicas.all_reduce(kind, bucket, leaf.operator)
        wide = float_view(self.buckets[kind.workspace.region], bucket)
        reduce = self.replicas.all_reduce(kind, wide, leaf.operator)
        placed = [(self.executable.plan.placements[id], name) for id, name in leaf.rounded]
        sums = [RoundedSum(at.offset_of(0) // bucket.itemsize, at.tensor.nelms, name) for at, name in placed]
        factor = self.executable.step.accumulation
        return rounded_reduction(
            bucket,
            wide,
            reduce,
            sums,
            lambda: (counters.seed, 0, counters.step, (counters.batch + 1) * factor - 1),
        )

    def collective(self, leaf: ReplicaCollective, counters: StepCounters, micro_batch: int) -> Call:
        member = self._member(leaf.op, micro_batch)
        source = self.executable.graph.tensor(leaf.op.inputs[0])
        step = self.replicas.collective(leaf.op, source, member.inputs, member.outputs)
        return self._watched(f"Op {leaf.op.type} ({leaf.op.outputs[0]})", step, member.inputs, member.outputs)

    def shard_collectives(self, leaf: ShardCollectives, counters: StepCounters, micro_batch: int) -> Call:
        members = [self._member(op, micro_batch) for op in leaf.members]
        workspace = self.buckets[workspace_of(leaf.members[0]).region]
        step = shard_collective_call(self.replicas, members, workspace)
        inputs = [array for member in members for array in member.inputs]
        outputs = [array for member in members for array in member.outputs]
        return self._watched("a collective of shards", step, inputs, outputs)

    def _member(self, op: Op, micro_batch: int) -> CollectiveMember:
        inputs, outputs = (
            [buffers.at(id, micro_batch) for buffers in self.buffers] for id in (op.inputs[-1], op.outputs[0])
        )
        return CollectiveMember(op, inputs, outputs)

    def _watched(self, label: str, step: Call, inputs: _Arrays, outputs: _Arrays) -> Call:
        return with_floating_point_check(label, step, inputs, outputs) if self.watch else step

    # Host I/O

    def load(self, leaf: HostLoad, counters: StepCounters, micro_batch: int) -> Call:
        arrays = [buffers.at(leaf.tensor, micro_batch) for buffers in self.buffers]
        id, shape, broadcast, host = leaf.tensor, arrays[0].shape, leaf.broadcast, self.host

        def load() -> None:
            feed = host.current
            chunk = feed.read(id).reshape(shape) if broadcast else None
            for array in arrays:
                np.copyto(array, feed.read(id).reshape(shape) if chunk is None else chunk)

        return load

    def store(self, leaf: HostStore, counters: StepCounters, micro_batch: int) -> Call:
        arrays = [buffers.at(leaf.tensor, micro_batch) for buffers in self.buffers]
        due, host = self._due(leaf, counters), self.host

        def store() -> None:
            if due():
                for array in arrays:
                    host.current.write(leaf.anchor, array)

        return store

    def _due(self, leaf: HostStore, counters: StepCounters) -> Callable[[], bool]:
        """Whether a store is due in the current micro-batch; outside of the loops it always is."""
        factor = self.executable.step.accumulation
        period = leaf.every or self.executable.step.batches * factor
        if period == 1:
            return lambda: True
        return lambda: (counters.batch * factor + counters.micro_batch + 1) % period == 0


@dataclass(frozen=True)
class _CallRow:
    """``bind`` prepares the one call of all replicas, or for the category COMPUTE the calls of one replica."""

    category: WallCategory
    bind: Callable[..., Any]


#: How each instruction is run.
CALLS: dict[type[Instruction], _CallRow] = {
    OpInstruction: _CallRow(WallCategory.COMPUTE, Binder.op),
    AccumulateGradient: _CallRow(WallCategory.COMPUTE, Binder.gradient_sum),
    AccumulateAnchor: _CallRow(WallCategory.COMPUTE, Binder.anchor_sum),
    CountMicroBatch: _CallRow(WallCategory.COMPUTE, Binder.mean_weights),
    DrawKey: _CallRow(WallCategory.COMPUTE, Binder.key),
    AllReduce: _CallRow(WallCategory.COLLECTIVES, Binder.all_reduce),
    ReplicaCollective: _CallRow(WallCategory.COLLECTIVES, Binder.collective),
    ShardCollectives: _CallRow(WallCategory.COLLECTIVES, Binder.shard_collectives),
    HostLoad: _CallRow(WallCategory.HOST_IO, Binder.load),
    HostStore: _CallRow(WallCategory.HOST_IO, Binder.store),
}


def category_of(leaf: Leaf) -> WallCategory:
    """The category of the time of an instruction."""
    return _row(leaf).category


def _row(leaf: Leaf) -> _CallRow:
    return row(CALLS, type(leaf))
