"""Lowering: from a graph to the program of a step.

repeat bps batches
  repeat A micro-batches
    loads | forward | backward | accumulation | stores
  all-reduce of the buckets | weight updates | stores of variables
stores of sums and of final variables

With a schedule the inner loop is a pipeline. A training pipeline without accumulation has the outer loop, updates and
all, in its stages: weights change while micro-batches that have seen older ones are on their way.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from ipu_emu.compiler.fusion.elementwise_fusion import fuse
from ipu_emu.compiler.fusion.merge_collectives import is_remote_load, merge_collectives
from ipu_emu.compiler.gradients.activation_checkpointing import Recomputation
from ipu_emu.compiler.gradients.recomputation import recompute
from ipu_emu.compiler.lowering.accumulation import Accumulation
from ipu_emu.compiler.lowering.host_streams import Streams, without_streams
from ipu_emu.compiler.lowering.pipelining import Pipelining, Stages
from ipu_emu.compiler.lowering.weight_preloading import preloaded
from ipu_emu.compiler.memory.input_staging import stage_inputs
from ipu_emu.compiler.memory.loop_bodies import plan_bodies
from ipu_emu.compiler.memory.offloading import ActivationStorage, offload_activations
from ipu_emu.compiler.memory.planner import plan_memory
from ipu_emu.compiler.placement.ipu_copies import COPY, insert_ipu_copies
from ipu_emu.compiler.placement.tensor_places import tensor_places
from ipu_emu.compiler.step_graph import Gradient, Reduction
from ipu_emu.graph import Graph, Op, Phase, Place, Role, Tensor, original_of
from ipu_emu.ops.communication.collective_ops import is_replica_collective
from ipu_emu.ops.communication.memory_copy_ops import REMOTE_LOAD, REMOTE_STORE, REMOTE_UPDATE
from ipu_emu.ops.communication.shard_ops import is_shard_collective
from ipu_emu.ops.random.counter_rng import RNG_KEY, SHARED_RNG_KEY
from ipu_emu.program.anchors import Anchor, Return, StepShape
from ipu_emu.program.buckets import Bucket, buckets_of
from ipu_emu.program.executable import Executable
from ipu_emu.program.instructions import (
    AccumulateAnchor,
    AllReduce,
    Collective,
    Compute,
    Counter,
    DrawKey,
    HostStore,
    Instruction,
    IpuCopy,
    Leaf,
    Overlap,
    RemoteLoad,
    RemoteStore,
    Repeat,
    ShardCollectives,
    WeightUpdate,
)
from ipu_emu.program.memory_layout import aligned
from ipu_emu.program.storage_order import batch_innermost

__all__ = ["lower"]

_COPIES: Mapping[str, type[IpuCopy | RemoteLoad | RemoteStore]] = {
    COPY: IpuCopy,
    REMOTE_LOAD: RemoteLoad,
    REMOTE_STORE: RemoteStore,
    REMOTE_UPDATE: RemoteStore,
}
_SUM, _NOW = "AnchorSum___", "AnchorNow___"


def lower(
    graph: Graph,
    step: StepShape,
    anchors: Sequence[Anchor],
    *,
    gradients: Sequence[Gradient] = (),
    reduction: Reduction = Reduction.SUM,
    replicas: int = 1,
    broadcast: frozenset[str] = frozenset(),
    bucket_bytes: int | None = None,
    schedule: str | None = None,
    iterations: int = 1,
    preload: bool = False,
    recomputation: Recomputation = Recomputation.NONE,
    ahead: Mapping[str, Overlap] = MappingProxyType({}),
    staged: Mapping[str, int] = MappingProxyType({}),
    activations: ActivationStorage | None = None,
    fused: bool = True,
    synthetic: bool = False,
) -> Executable:
    """Compile one step of ``graph``.

    ``replicas`` counts all instances, ``broadcast`` names inputs without R, ``bucket_bytes`` limits how much is
    reduced at a time; ``schedule`` names the schedule of a pipeline, whose stages are the places of the ops and loop
    over ``iterations`` micro-batches at a time; with ``preload`` weights off chip are loaded a phase ahead; ``ahead``
    has the inputs that are not loaded just in time, ``staged`` those that wait in Streaming Memory, each with the
    number of its places there; ``activations`` says where those are kept; ``fused`` chains of element-wise ops are
    one op. ``synthetic`` inputs are on the device already, and nothing leaves it.
    """
    if fused:
        fuse(graph, [*(a.tensor for a in anchors), *(g.part for g in gradients), *(g.total for g in gradients)])
    plan_bodies(graph, fused=fused)
    training = bool(gradients)
    if training:
        recompute(graph, recomputation, [anchor.tensor for anchor in anchors])
    stage_inputs(graph, {} if synthetic else staged)
    pipelining = Pipelining.of(graph, schedule, training=training, iterations=iterations) if schedule else None
    if pipelining:
        pipelining.check(step.accumulation if step.accumulation > 1 else step.batches)
    continuous = training and step.accumulation == 1
    stages = Stages(graph, pipelining, continuous=continuous)
    insert_ipu_copies(graph, stages.of, {gradient.total: gradient.part for gradient in gradients})
    if training:
        offload_activations(graph, activations or ActivationStorage())
    stages = Stages(graph, pipelining, continuous=continuous)
    streams = Streams(broadcast, ahead, staged, synthetic)
    made = _Lowering(graph, step, anchors, gradients, reduction, replicas, streams, bucket_bytes, stages, preload)
    return made.run()


class _Lowering:
    def __init__(
        self,
        graph: Graph,
        step: StepShape,
        anchors: Sequence[Anchor],
        gradients: Sequence[Gradient],
        reduction: Reduction,
        replicas: int,
        streams: Streams,
        bucket_bytes: int | None,
        stages: Stages,
        preload: bool,
    ) -> None:
        self.graph, self.step, self.anchors = graph, step, anchors
        self.gradients, self.reduction, self.replicas, self.streams = gradients, reduction, replicas, streams
        self.stages, self.bucket_bytes, self.preload = stages, bucket_bytes, preload
        self.tensor_places = tensor_places(graph, stages.of)
        self.tensor_places |= {gradient.total: self.tensor_places[gradient.part] for gradient in gradients}
        self.reduced = [gradient for gradient in gradients if not gradient.scattered]
        self.buckets = buckets_of(((graph.tensor(g.total), self.whole(g)) for g in self.reduced), bucket_bytes)
        self.remote = {gradient.total for gradient in gradients if gradient.remote}
        self.rooms: dict[str, tuple[str, int]] = {}
        self.kept = [g.total for g in gradients if g.scattered and g.total != g.part]

    @property
    def continuous(self) -> bool:
        """Whether weights change in the stages of a pipeline."""
        return self.stages.pipelining is not None and bool(self.gradients) and self.step.accumulation == 1

    def whole(self, gradient: Gradient) -> Place:
        """Where a gradient is reduced, and in which stage if that is one of a pipeline."""
        stage = self.stages.by_output[gradient.part] if self.continuous else 0
        return Place(stage, self.tensor_places[gradient.part].ipu)

    def run(self) -> Executable:
        inputs = self.used_inputs()
        program = self.program(inputs)
        if self.streams.synthetic:
            program = tuple(without_streams(program))
            self.kept += [tensor.id for tensor in inputs]
        orders = batch_innermost(self.graph)
        plan = plan_memory(
            self.graph,
            program,
            batch_innermost=orders,
            totals={id: bucket.region for id, bucket in self.buckets.items()},
            kept=self.kept,
            rooms=self.rooms,
        )
        anchors = {anchor.tensor: anchor for anchor in self.anchors}
        return Executable(self.graph, program, plan, self.step, anchors, tuple(inputs))

    def used_inputs(self) -> list[Tensor]:
        """Inputs that an op reads or that are anchored."""
        read = {id for op in self.graph.ops for id in op.reads} | {anchor.tensor for anchor in self.anchors}
        return [tensor for tensor in self.graph.with_role(Role.INPUT) if tensor.id in read]

    def program(self, inputs: Sequence[Tensor]) -> tuple[Instruction, ...]:
        forward: list[Leaf] = [*self.keys(RNG_KEY), *self.keys(SHARED_RNG_KEY, Phase.FORWARD, Phase.BACKWARD)]
        forward += [self.streams.load(tensor) for tensor in inputs]
        passes = [op for op in self.graph.ops if op.phase is not Phase.UPDATE]
        forward += map(_instruction, merge_collectives(self.graph, passes, self.stages.of, self.bucket_bytes))
        forward += self.accumulation()
        updates: list[Leaf] = [*self.reduce(), *self.keys(SHARED_RNG_KEY, Phase.UPDATE)]
        ops = [op for op in self.graph.ops if op.phase is Phase.UPDATE]
        groups = merge_collectives(self.graph, ops, self.stages.of, self.bucket_bytes, self.remote)
        updates += [leaf for group in groups for leaf in self.update(group)]
        early, late, end = self.stores()
        if self.stages.pipelining and self.step.accumulation == 1:
            return (self.pipeline([*forward, *early, *updates, *late], self.step.batches, Counter.BATCH), *end)
        micro_batches: Instruction = self.micro_batches([*forward, *early])
        batches = Repeat(self.step.batches, Counter.BATCH, (micro_batches, *updates, *late))
        return (batches, *end)

    def update(self, ops: tuple[Op, ...]) -> list[Leaf]:
        """What an op of the update phase does, or several that are merged."""
        if not is_remote_load(ops[0], self.remote):
            return [_instruction(ops)]
        room = self.room(self.graph.tensor(ops[0].outputs[0]), ops[0].place.ipu)
        offset, drawn = 0, {gradient.total for gradient in self.gradients if gradient.rounded}
        for op in ops:
            self.rooms[op.outputs[0]] = room, offset
            offset += aligned(self.graph.tensor(op.outputs[0]).nbytes)
        rounded = tuple((op.outputs[0], op.inputs[0]) for op in ops if op.inputs[0] in drawn)
        return [*map(RemoteLoad, ops), AllReduce(room, self.operator, rounded)]

    def room(self, tensor: Tensor, ipu: int) -> str:
        """Where sums that were off chip are reduced, one group after the other: a bucket behind all others."""
        others = [b for b in self.buckets.values() if (b.dtype, b.group, b.ipu) == (tensor.dtype, tensor.group, ipu)]
        return Bucket(tensor.dtype, tensor.group, len(set(others)), ipu).region

    def micro_batches(self, body: Sequence[Leaf]) -> Instruction:
        if self.stages.pipelining:
            return self.pipeline(body, self.step.accumulation, Counter.MICRO_BATCH)
        parts = preloaded(self.graph, body) if self.preload else body
        return Repeat(self.step.accumulation, Counter.MICRO_BATCH, tuple(parts))

    def pipeline(self, body: Sequence[Leaf], count: int, counter: Counter) -> Instruction:
        reduced = {self.buckets[g.total].region: self.whole(g).stage for g in self.reduced}
        return self.stages.pipeline(body, reduced, count, counter)

    def keys(self, key: str, *phases: Phase) -> list[Leaf]:
        """Set what random numbers of these phases (none: of all) are made of, if there are any, on every IPU."""
        read = {id for op in self.graph.ops if not phases or op.phase in phases for id in op.reads}
        found = [id for id in self.graph.tensors if original_of(id) == key and (not phases or id in read)]
        return [DrawKey(id, key == SHARED_RNG_KEY) for id in found]

    def accumulation(self) -> list[Leaf]:
        """Sum, or keep the running mean of, the gradients of the micro-batches of a batch."""
        if self.step.accumulation == 1:
            return []
        running = self.reduction is Reduction.MEAN_RUNNING
        return Accumulation(self.graph, self.tensor_places, self.stages, running=running).of(self.gradients)

    def reduce(self) -> list[Leaf]:
        """One collective for each bucket."""
        shared = [b for b in dict.fromkeys(self.buckets.values()) if (b.group[1] if b.group else self.replicas) > 1]
        return [AllReduce(bucket.region, self.operator, self.rounded(bucket)) for bucket in shared]

    def rounded(self, bucket: Bucket) -> tuple[tuple[str, str], ...]:
        """The sums in a bucket that are rounded stochastically."""
        return tuple((g.total, g.total) for g in self.reduced if g.rounded and self.buckets[g.total] == bucket)

    @property
    def operator(self) -> str:
        """What replicas do with their gradients."""
        return "mean" if self.reduction is Reduction.MEAN_RUNNING else "add"

    def stores(self) -> tuple[list[Leaf], list[Leaf], list[Leaf]]:
        """Stores in the micro-batch, after the update, and at the end of the step.

        Variables are stored after the update; with accumulation every micro-batch reports what it was given,
        so only their final value comes after it.
        """
        early: list[Leaf] = []
        late: list[Leaf] = []
        end: list[Leaf] = []
        for anchor in self.anchors:
            changed = self.changes_in_update(anchor.tensor)
            place = late if changed and self.step.accumulation == 1 else early
            if anchor.returns is Return.SUM:
                place.append(self.sum(anchor.tensor))
                end.append(HostStore(_SUM + anchor.tensor, anchor.tensor))
            elif anchor.returns is Return.FINAL and changed:
                end.append(HostStore(anchor.tensor, anchor.tensor))
            else:
                period = 0 if anchor.returns is Return.FINAL else anchor.period
                place += self.store(anchor.tensor, period, Overlap.NONE if place is late else anchor.overlap)
        return early, late, end

    def store(self, id: str, period: int, overlap: Overlap) -> list[Leaf]:
        """Store ``id``; in a pipeline what lives on is stored as it is now, while the next micro-batch changes it."""
        made = any(id in op.outputs for op in self.graph.ops if op.phase is not Phase.UPDATE)
        lives_on = self.graph.tensor(id).role is not Role.INPUT and not made
        if self.stages.pipelining is None or not lives_on:
            return [HostStore(id, id, period, overlap)]
        now = self.graph.add(replace(self.graph.tensor(id), id=_NOW + id, role=Role.COMPUTED)).id
        return [Compute(Op(COPY, (id,), (now,), place=self.tensor_places[id])), HostStore(now, id, period, overlap)]

    def changes_in_update(self, id: str) -> bool:
        updated = any(id in op.outputs for op in self.graph.ops if op.phase is Phase.UPDATE)
        return updated or self.graph.tensor(id).role.is_variable

    def sum(self, id: str) -> AccumulateAnchor:
        total = _SUM + id
        self.graph.add(replace(self.graph.tensor(id), id=total, role=Role.COMPUTED))
        self.kept.append(total)
        place = self.tensor_places[id]
        first = Op("CopyInto", (total, id), (total,), place=place)
        return AccumulateAnchor(first, replace(first, type="AddInto"))


def _instruction(ops: tuple[Op, ...]) -> Leaf:
    """The instruction that runs an op, or several that are one collective."""
    op = ops[0]
    if is_shard_collective(op):
        return ShardCollectives(ops)
    if op.type in _COPIES:
        return _COPIES[op.type](op)
    if is_replica_collective(op):
        return Collective(op)
    return WeightUpdate(op) if op.phase is Phase.UPDATE else Compute(op)
