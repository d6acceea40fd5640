"""Binding: instructions as prepared calls on the memory of the replicas."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ipu_emu.engine.calls.floating_point_checks import watched
from ipu_emu.engine.calls.op_calls import bind
from ipu_emu.engine.calls.step_counters import Counts
from ipu_emu.engine.calls.wall_time import Kind
from ipu_emu.engine.replicas.buffers import Buffers
from ipu_emu.engine.replicas.local_replicas import Replicas
from ipu_emu.engine.replicas.rounded_reduction import Sum, rounded, wide_room
from ipu_emu.engine.replicas.shard_collectives import Member, exchange
from ipu_emu.graph import Op
from ipu_emu.ops import Call
from ipu_emu.ops.core.call_chain import call_chain
from ipu_emu.program.buckets import Bucket, room_of
from ipu_emu.program.executable import Executable
from ipu_emu.program.leaf_instructions import (
    AccumulateAnchor,
    AccumulateGradient,
    AllReduce,
    Collective,
    Compute,
    CountMicroBatch,
    DrawKey,
    HostLoad,
    HostStore,
    IpuCopy,
    Leaf,
    RemoteLoad,
    RemoteStore,
    ShardExchange,
    WeightUpdate,
)

__all__ = ["Binder", "Feed", "Host", "kind_of"]


class Feed(Protocol):
    """The host's side of a step."""

    def read(self, id: str) -> NDArray[Any]:
        """The next chunk of an input: one micro-batch of one replica, in any shape."""

    def write(self, id: str, value: NDArray[Any]) -> None:
        """Take the next chunk of an anchor."""


@dataclass
class Host:
    """The feed of the current step, and where the host is in it."""

    feed: Feed | None = None
    counts: Counts = field(default_factory=Counts)

    @property
    def current(self) -> Feed:
        assert self.feed is not None
        return self.feed


class Binder:
    """Makes the calls; ``buckets`` have a row for each of the local replicas, whose memory ``buffers`` is."""

    def __init__(
        self,
        executable: Executable,
        replicas: Replicas,
        buffers: Sequence[Buffers],
        buckets: dict[str, NDArray[Any]],
        host: Host,
        *,
        watch: bool = False,
    ) -> None:
        self.executable, self.replicas, self.buffers, self.buckets = executable, replicas, buffers, buckets
        self.host, self.watch = host, watch

    def shared(self, leaf: Leaf, counts: Counts, turn: int = 0) -> Call:
        """What concerns all replicas at once: host and collective instructions."""
        if isinstance(leaf, HostLoad):
            return self._load(leaf, turn)
        if isinstance(leaf, HostStore):
            return self._store(leaf, counts, turn)
        if isinstance(leaf, Collective):
            return self._collective(leaf.op, turn)
        if isinstance(leaf, ShardExchange):
            return self._exchange(leaf.ops, turn)
        assert isinstance(leaf, AllReduce)
        bucket = self.buckets[leaf.bucket]
        step = self._reduction(leaf, counts)
        return watched("the reduction of gradients", step, [bucket], [bucket]) if self.watch else step

    def _reduction(self, leaf: AllReduce, counts: Counts) -> Call:
        kind, bucket = Bucket.named(leaf.bucket), self.buckets[leaf.bucket]
        if not leaf.rounded:
            return self.replicas.all_reduce(kind, bucket, leaf.operator)
        wide = wide_room(self.buckets[kind.room.region], bucket)
        reduce = self.replicas.all_reduce(kind, wide, leaf.operator)
        placed = [(self.executable.plan.placements[id], name) for id, name in leaf.rounded]
        sums = [Sum(one.offset_of(0) // bucket.itemsize, one.tensor.nelms, name) for one, name in placed]
        factor = self.executable.step.accumulation
        return rounded(
            bucket, wide, reduce, sums, lambda: (counts.seed, 0, counts.step, (counts.batch + 1) * factor - 1)
        )

    def local(self, leaf: Leaf, replica: int, counts: Counts, turn: int = 0) -> list[Call]:
        """What each replica does alone."""
        graph, buffers = self.executable.graph, self.buffers[replica]
        if isinstance(leaf, Compute | IpuCopy | RemoteLoad | RemoteStore | WeightUpdate):
            return bind(graph, leaf.op, buffers, turn, watch=self.watch)
        if isinstance(leaf, CountMicroBatch):
            return [_running_mean(buffers.arrays[leaf.keep], buffers.arrays[leaf.take], counts)]
        if isinstance(leaf, DrawKey):
            return [self._key(leaf, replica, counts)]
        assert isinstance(leaf, AccumulateGradient | AccumulateAnchor)
        first, others = (
            call_chain(*bind(graph, op, buffers, turn, watch=self.watch)) for op in (leaf.first, leaf.others)
        )
        if isinstance(leaf, AccumulateGradient):
            return [lambda: others() if counts.micro_batch else first()]
        return [lambda: others() if counts.micro_batch or counts.batch else first()]

    def _collective(self, op: Op, turn: int) -> Call:
        inputs = [buffers.at(op.inputs[-1], turn) for buffers in self.buffers]
        outputs = [buffers.at(op.outputs[0], turn) for buffers in self.buffers]
        step = self.replicas.collective(op, self.executable.graph.tensor(op.inputs[0]), inputs, outputs)
        return watched(f"Op {op.type} ({op.outputs[0]})", step, inputs, outputs) if self.watch else step

    def _exchange(self, ops: Sequence[Op], turn: int) -> Call:
        members = [
            Member(
                op,
                [buffers.at(op.inputs[-1], turn) for buffers in self.buffers],
                [buffers.at(op.outputs[0], turn) for buffers in self.buffers],
            )
            for op in ops
        ]
        step = exchange(self.replicas, members, self.buckets[room_of(ops[0]).region])
        if not self.watch:
            return step
        inputs = [array for member in members for array in member.inputs]
        outputs = [array for member in members for array in member.outputs]
        return watched("an exchange of shards", step, inputs, outputs)

    def _key(self, leaf: DrawKey, replica: int, counts: Counts) -> Call:
        key, factor = self.buffers[replica].arrays[leaf.tensor], self.executable.step.accumulation
        number = 0 if leaf.shared else 1 + self.replicas.offset + replica

        def set_key() -> None:
            key[:] = counts.seed, number, counts.step, counts.batch * factor + counts.micro_batch

        return set_key

    def _load(self, leaf: HostLoad, turn: int) -> Call:
        arrays = [buffers.at(leaf.tensor, turn) for buffers in self.buffers]
        id, shape, one, host = leaf.tensor, arrays[0].shape, leaf.broadcast, self.host

        def load() -> None:
            feed = host.current
            chunk = feed.read(id).reshape(shape) if one else None
            for array in arrays:
                np.copyto(array, feed.read(id).reshape(shape) if chunk is None else chunk)

        return load

    def _store(self, leaf: HostStore, counts: Counts, turn: int) -> Call:
        arrays = [buffers.at(leaf.tensor, turn) for buffers in self.buffers]
        due, host = self._due(leaf, counts), self.host

        def store() -> None:
            if due():
                for array in arrays:
                    host.current.write(leaf.anchor, array)

        return store

    def _due(self, leaf: HostStore, counts: Counts) -> Callable[[], bool]:
        """Whether a store acts in the current micro-batch; outside the loops it always does."""
        factor = self.executable.step.accumulation
        total = self.executable.step.batches * factor
        period = leaf.every or total
        if period == 1:
            return lambda: True
        return lambda: (counts.batch * factor + counts.micro_batch + 1) % period == 0


def _running_mean(keep: NDArray[Any], take: NDArray[Any], counts: Counts) -> Call:
    def count() -> None:
        keep[()] = counts.micro_batch / (counts.micro_batch + 1)
        take[()] = 1 / (counts.micro_batch + 1)

    return count


def kind_of(leaf: Leaf) -> Kind:
    """The kind of time that an instruction costs."""
    if isinstance(leaf, HostLoad | HostStore):
        return Kind.HOST_IO
    return Kind.COLLECTIVES if isinstance(leaf, AllReduce | Collective | ShardExchange) else Kind.COMPUTE
