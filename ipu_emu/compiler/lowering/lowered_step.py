"""LoweredStep: the instructions of a step, made from its graph.

repeat bps batches
  repeat A micro-batches
    loads | forward | backward with accumulation | stores
  totals that join others | all-reduce of the buckets | weight updates | stores of variables
stores of sums and of final variables

With a schedule the inner loop is a pipeline. Without accumulation, a training pipeline contains the outer loop and
the updates too: weights change while micro-batches that started with older weights are still in the pipeline.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise

from ipu_emu.compiler.fusion.merge_collectives import Merged, as_groups, is_remote_load
from ipu_emu.compiler.gradients.gradient import Gradient, GradientReduction
from ipu_emu.compiler.lowering.accumulation import AccumulationWriter
from ipu_emu.compiler.lowering.pipelining import Stages
from ipu_emu.compiler.options import CompileOptions, HostStreams
from ipu_emu.compiler.placement.ipu_copies import COPY
from ipu_emu.compiler.placement.tensor_places import tensor_places
from ipu_emu.graph import Graph, Op, Place, Role, StepPhase, Tensor, original_of
from ipu_emu.ops.communication.collective_ops import is_replica_collective
from ipu_emu.ops.communication.memory_copy_ops import REMOTE_LOAD, REMOTE_STORE, REMOTE_UPDATE
from ipu_emu.ops.communication.shard_ops import is_shard_collective
from ipu_emu.ops.random.counter_rng import RNG_KEY, SHARED_RNG_KEY
from ipu_emu.program.anchors import Anchor, Return
from ipu_emu.program.buckets import Bucket, buckets_of
from ipu_emu.program.instructions import (
    AccumulateAnchor,
    AllReduce,
    Compute,
    Counter,
    DrawKey,
    HostLoad,
    HostStore,
    Instruction,
    IpuCopy,
    Leaf,
    Overlap,
    Preload,
    RemoteLoad,
    RemoteStore,
    Repeat,
    ReplicaCollective,
    ShardCollectives,
    WeightUpdate,
    listing,
    of_type,
)
from ipu_emu.program.memory_layout import aligned

_COPIES: Mapping[str, type[IpuCopy | RemoteLoad | RemoteStore]] = {
    COPY: IpuCopy,
    REMOTE_LOAD: RemoteLoad,
    REMOTE_STORE: RemoteStore,
    REMOTE_UPDATE: RemoteStore,
}
_SUM, _NOW = "AnchorSum___", "AnchorNow___"


@dataclass(frozen=True)
class LoweredStep:
    """The instructions of a step, with the data that the memory planner needs about them.

    ``inputs`` come from the host. ``persistent`` names computed tensors that stay live between steps. ``buckets``
    maps the sums of gradients that are reduced to the memory regions of their buckets, in the order of their
    completion. ``shared_places`` has the region and the offset of tensors that share memory in turn.
    """

    instructions: tuple[Instruction, ...]
    inputs: tuple[Tensor, ...]
    persistent: tuple[str, ...] = ()
    buckets: Mapping[str, str] = field(default_factory=dict)
    shared_places: Mapping[str, tuple[str, int]] = field(default_factory=dict)

    def __str__(self) -> str:
        return listing(self.instructions)


def lower(
    graph: Graph,
    options: CompileOptions,
    *,
    anchors: Sequence[Anchor],
    gradients: Sequence[Gradient] = (),
    merged: Merged = (),
    stages: Stages,
) -> LoweredStep:
    """Return the program of one step of ``graph``, whose ops are in the order in which they run.

    ``stages`` has the stage of each op; further tensors that the program needs are added to ``graph``. Each of the
    ``merged`` collectives is an instruction of several ops.
    """
    return _Lowering(graph, options, anchors, gradients, merged, stages).run()


def without_host_io(program: LoweredStep) -> LoweredStep:
    """Return ``program`` for inputs that stay on the device from step to step."""
    persistent = (*program.persistent, *(tensor.id for tensor in program.inputs))
    return replace(program, instructions=tuple(_without_host_io(program.instructions)), persistent=persistent)


class _Lowering:
    def __init__(
        self,
        graph: Graph,
        options: CompileOptions,
        anchors: Sequence[Anchor],
        gradients: Sequence[Gradient],
        merged: Merged,
        stages: Stages,
    ) -> None:
        self.graph, self.options, self.step, self.anchors = graph, options, options.step, anchors
        self.gradients, self.merged, self.stages = gradients, merged, stages
        self.tensor_places = tensor_places(graph, stages.of)
        self.tensor_places |= {gradient.total: self.tensor_places[gradient.part] for gradient in gradients}
        order = {id: number for number, op in enumerate(graph.ops) for id in op.outputs}
        reduced = (gradient for gradient in gradients if not gradient.scattered)
        self.reduced = sorted(reduced, key=lambda gradient: order.get(gradient.part, len(order)))
        totals = ((graph.tensor(gradient.total), self.reduction_place(gradient)) for gradient in self.reduced)
        self.buckets = buckets_of(totals, options.bucket_bytes)
        self.remote = {gradient.total for gradient in gradients if gradient.remote}
        self.shared_places: dict[str, tuple[str, int]] = {}
        self.persistent = [g.total for g in gradients if g.scattered and g.total != g.part]

    @property
    def continuous(self) -> bool:
        """Whether weights change in the stages of a pipeline."""
        return self.stages.pipelining is not None and bool(self.gradients) and self.step.accumulation == 1

    def reduction_place(self, gradient: Gradient) -> Place:
        """Return the IPU on which a gradient is reduced, and its stage in a pipeline."""
        stage = self.stages.by_output[gradient.part] if self.continuous else 0
        return Place(stage, self.tensor_places[gradient.part].ipu)

    def run(self) -> LoweredStep:
        inputs = self.used_inputs()
        program = self.program(inputs)
        regions = {id: bucket.region for id, bucket in self.buckets.items()}
        return LoweredStep(program, tuple(inputs), tuple(self.persistent), regions, self.shared_places)

    def used_inputs(self) -> list[Tensor]:
        """Return the inputs that an op reads or that are anchored."""
        read = {id for op in self.graph.ops for id in op.reads} | {anchor.tensor for anchor in self.anchors}
        return [tensor for tensor in self.graph.with_role(Role.INPUT) if tensor.id in read]

    def program(self, inputs: Sequence[Tensor]) -> tuple[Instruction, ...]:
        forward: list[Leaf] = [*self.keys(RNG_KEY), *self.keys(SHARED_RNG_KEY, StepPhase.FORWARD, StepPhase.BACKWARD)]
        forward += [_host_load(tensor, self.options.streams) for tensor in inputs]
        passes = [op for op in self.graph.ops if op.phase is not StepPhase.UPDATE]
        forward += map(_instruction, as_groups(passes, self.merged))
        if self.step.accumulation > 1:
            forward = self.accumulation_writer.among(forward, self.gradients)
        updates: list[Leaf] = [*self.joins(), *self.reduce(), *self.keys(SHARED_RNG_KEY, StepPhase.UPDATE)]
        ops = [op for op in self.graph.ops if op.phase is StepPhase.UPDATE]
        updates += [leaf for group in as_groups(ops, self.merged) for leaf in self.update(group)]
        early, late, end = self.stores()
        if self.stages.pipelining and self.step.accumulation == 1:
            return (self.pipeline([*forward, *early, *updates, *late], self.step.batches, Counter.BATCH), *end)
        micro_batches: Instruction = self.micro_batches([*forward, *early])
        batches = Repeat(self.step.batches, Counter.BATCH, (micro_batches, *updates, *late))
        return (batches, *end)

    def update(self, ops: tuple[Op, ...]) -> list[Leaf]:
        """Return the instructions of an op of the update phase, or of several merged ops."""
        if not is_remote_load(ops[0], self.remote):
            return [_instruction(ops)]
        region = self.reduction_region(self.graph.tensor(ops[0].outputs[0]), ops[0].place.ipu)
        offset, drawn = 0, {gradient.total for gradient in self.gradients if gradient.rounded}
        for op in ops:
            self.shared_places[op.outputs[0]] = region, offset
            offset += aligned(self.graph.tensor(op.outputs[0]).nbytes)
        rounded = tuple((op.outputs[0], op.inputs[0]) for op in ops if op.inputs[0] in drawn)
        return [*map(RemoteLoad, ops), AllReduce(region, self.operator, rounded)]

    def reduction_region(self, tensor: Tensor, ipu: int) -> str:
        """Return the region in which sums from Streaming Memory are reduced one group at a time: a further bucket."""
        others = [b for b in self.buckets.values() if (b.dtype, b.group, b.ipu) == (tensor.dtype, tensor.group, ipu)]
        return Bucket(tensor.dtype, tensor.group, len(set(others)), ipu).region

    def micro_batches(self, body: Sequence[Leaf]) -> Instruction:
        if self.stages.pipelining:
            return self.pipeline(body, self.step.accumulation, Counter.MICRO_BATCH)
        parts = preloaded(self.graph, body) if self.options.preload else body
        return Repeat(self.step.accumulation, Counter.MICRO_BATCH, tuple(parts))

    def pipeline(self, body: Sequence[Leaf], count: int, counter: Counter) -> Instruction:
        reduced = {self.buckets[g.total].region: self.reduction_place(g).stage for g in self.reduced}
        return self.stages.pipeline(body, reduced, count, counter)

    def keys(self, key: str, *phases: StepPhase) -> list[Leaf]:
        """Return the instructions that set, on every IPU, the random keys that ``phases`` (default: all) read."""
        read = {id for op in self.graph.ops if not phases or op.phase in phases for id in op.reads}
        keys = [id for id in self.graph.tensors if original_of(id) == key and (not phases or id in read)]
        return [DrawKey(id, key == SHARED_RNG_KEY) for id in keys]

    @cached_property
    def accumulation_writer(self) -> AccumulationWriter:
        """The writer of the instructions that sum the gradients of micro-batches, or keep their running mean."""
        running = self.options.reduction is GradientReduction.MEAN_RUNNING
        return AccumulationWriter(self.graph, self.tensor_places, self.stages, running=running)

    def joins(self) -> list[Leaf]:
        """Return the instructions that add totals to those that they join."""
        totals = {gradient.total: gradient for gradient in self.gradients}
        joining = (gradient for gradient in self.gradients if gradient.joins)
        return [leaf for gradient in joining for leaf in self.accumulation_writer.join(gradient, totals)]

    def reduce(self) -> list[Leaf]:
        """Return one collective for each bucket."""
        shared = [
            b for b in dict.fromkeys(self.buckets.values()) if (b.group[1] if b.group else self.options.replicas) > 1
        ]
        return [AllReduce(bucket.region, self.operator, self.rounded(bucket)) for bucket in shared]

    def rounded(self, bucket: Bucket) -> tuple[tuple[str, str], ...]:
        """Return the sums in a bucket that are rounded stochastically."""
        return tuple((g.total, g.total) for g in self.reduced if g.rounded and self.buckets[g.total] == bucket)

    @property
    def operator(self) -> str:
        """The operator by which replicas combine their gradients."""
        return "mean" if self.options.reduction is GradientReduction.MEAN_RUNNING else "add"

    def stores(self) -> tuple[list[Leaf], list[Leaf], list[Leaf]]:
        """Return the stores in the micro-batch, after the update, and at the end of the step.

        Variables are stored after the update. With accumulation every micro-batch stores the value that it computed
        with, so that only the final value is stored after the update.
        """
        early: list[Leaf] = []
        late: list[Leaf] = []
        end: list[Leaf] = []
        for anchor in self.anchors:
            changed = self.changes_in_update(anchor.tensor)
            after = changed and self.step.accumulation == 1
            leaves = late if after or anchor.returns is Return.UPDATE else early
            if anchor.returns is Return.SUM:
                leaves.append(self.sum(anchor.tensor))
                end.append(HostStore(_SUM + anchor.tensor, anchor.tensor))
            elif anchor.returns is Return.FINAL and changed:
                end.append(HostStore(anchor.tensor, anchor.tensor))
            else:
                period = 0 if anchor.returns is Return.FINAL else anchor.period
                leaves += self.store(anchor.tensor, period, Overlap.NONE if leaves is late else anchor.overlap)
        return early, late, end

    def store(self, id: str, period: int, overlap: Overlap) -> list[Leaf]:
        """Store ``id``; in a pipeline, a tensor that the next micro-batch changes is copied first."""
        is_computed = any(id in op.outputs for op in self.graph.ops if op.phase is not StepPhase.UPDATE)
        lives_on = self.graph.tensor(id).role is not Role.INPUT and not is_computed
        if self.stages.pipelining is None or not lives_on:
            return [HostStore(id, id, period, overlap)]
        now = self.graph.add(replace(self.graph.tensor(id), id=_NOW + id, role=Role.COMPUTED)).id
        return [Compute(Op(COPY, (id,), (now,), place=self.tensor_places[id])), HostStore(now, id, period, overlap)]

    def changes_in_update(self, id: str) -> bool:
        updated = any(id in op.outputs for op in self.graph.ops if op.phase is StepPhase.UPDATE)
        return updated or self.graph.tensor(id).role.is_variable

    def sum(self, id: str) -> AccumulateAnchor:
        total = _SUM + id
        self.graph.add(replace(self.graph.tensor(id), id=total, role=Role.COMPUTED))
        self.persistent.append(total)
        place = self.tensor_places[id]
        first = Op("CopyInto", (total, id), (total,), place=place)
        return AccumulateAnchor(first, replace(first, type="AddInto"))


def _instruction(ops: tuple[Op, ...]) -> Leaf:
    """Return the instruction that runs an op, or several ops that are one collective."""
    op = ops[0]
    if is_shard_collective(op):
        return ShardCollectives(ops)
    if op.type in _COPIES:
        return _COPIES[op.type](op)
    if is_replica_collective(op):
        return ReplicaCollective(op)
    return WeightUpdate(op) if op.phase is StepPhase.UPDATE else Compute(op)


def _host_load(tensor: Tensor, streams: HostStreams) -> HostLoad:
    """Return the instruction that takes an input from the host."""
    shared = tensor.id in streams.broadcast
    if tensor.off_chip:
        return HostLoad(tensor.id, shared, Overlap.STAGED, streams.staged[tensor.id] - 1)
    return HostLoad(tensor.id, shared, streams.ahead.get(tensor.id, Overlap.NONE))


def _without_host_io(program: Sequence[Instruction]) -> Iterator[Instruction]:
    """Return all instructions except those of host I/O."""
    for part in program:
        if not part.is_host_io:
            yield part.with_bodies([tuple(_without_host_io(body)) for body in part.bodies])


def preloaded(graph: Graph, leaves: Sequence[Leaf]) -> Iterator[Instruction]:
    """Yield the ``leaves`` of a micro-batch; weights that do not change meanwhile are loaded one phase ahead.

        Compute a  on IPU 0                 preload
        RemoteLoad v, w  on IPU 1             RemoteLoad v, w  on IPU 1
        Compute b  on IPU 1         ->      while
        ...                                   Compute a  on IPU 0
                                            Compute b  on IPU 1

    Phases alternate between IPUs, so the next phase begins at the first instruction of another IPU.
    """
    changed = {op.inputs[0] for op in graph.ops if op.type == REMOTE_UPDATE and op.phase is not StepPhase.UPDATE}
    weights = {tensor.id for tensor in graph.with_role(Role.WEIGHT)} - changed
    runs = list(_runs(leaves))
    loads = [[], *(list(_loads(run, weights)) for run in runs[1:]), []]
    for run, own, ahead in zip(runs, loads[:-1], [after for _, after in pairwise(loads)], strict=True):
        body = tuple(leaf for leaf in run if leaf not in own)
        if ahead:
            yield Preload(tuple(ahead), body)
        else:
            yield from body


def _loads(run: Sequence[Leaf], weights: Collection[str]) -> Iterator[RemoteLoad]:
    yield from (leaf for leaf in of_type(run, RemoteLoad) if leaf.op.inputs[0] in weights)


def _runs(leaves: Sequence[Leaf]) -> Iterator[list[Leaf]]:
    """Split into runs of instructions on one IPU; an instruction on no IPU belongs to the run before it."""
    run: list[Leaf] = []
    last: int | None = None
    for leaf in leaves:
        ops = leaf.ops
        ipu = ops[0].place.ipu if ops else last
        if run and None not in (ipu, last) and ipu != last:
            yield run
            run = []
        run.append(leaf)
        last = ipu
    yield run
