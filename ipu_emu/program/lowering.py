"""Lowering: from a graph to the program of a step.

repeat bps batches
  repeat A micro-batches
    loads | forward | backward | accumulation | stores
  all-reduce of the buckets | weight updates | stores of variables
stores of sums and of final variables
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ipu_emu.graph import Graph, Op, Phase, Role, Tensor
from ipu_emu.graph.dtype import FLOAT
from ipu_emu.ops.collectives import between_replicas
from ipu_emu.ops.random import KEY, SHARED_KEY
from ipu_emu.program.anchors import Anchor, Return, StepShape
from ipu_emu.program.buckets import Bucket, buckets_of
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
    Repeat,
    WeightUpdate,
    leaves,
)
from ipu_emu.program.memory import plan_memory
from ipu_emu.transforms.fusion import fuse
from ipu_emu.transforms.storage import batch_innermost
from ipu_emu.transforms.training import Gradient, Reduction

__all__ = ["lower"]

_SUM = "AnchorSum___"
_KEEP, _TAKE = "RunningMean___keep", "RunningMean___take"


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
) -> Executable:
    """Compile one step of ``graph``.

    ``replicas`` counts all instances, ``broadcast`` names inputs without R, ``bucket_bytes`` limits how much is
    reduced at a time.
    """
    fuse(graph, [*(anchor.tensor for anchor in anchors), *(g.part for g in gradients), *(g.total for g in gradients)])
    buckets = buckets_of((graph.tensor(gradient.total) for gradient in gradients), bucket_bytes)
    return _Lowering(graph, step, anchors, gradients, reduction, replicas, broadcast, buckets).run()


class _Lowering:
    def __init__(
        self,
        graph: Graph,
        step: StepShape,
        anchors: Sequence[Anchor],
        gradients: Sequence[Gradient],
        reduction: Reduction,
        replicas: int,
        broadcast: frozenset[str],
        buckets: dict[str, Bucket],
    ) -> None:
        self.graph, self.step, self.anchors = graph, step, anchors
        self.gradients, self.reduction, self.replicas, self.broadcast = gradients, reduction, replicas, broadcast
        self.buckets = buckets
        self.sums: list[str] = []

    def run(self) -> Executable:
        inputs = self.used_inputs()
        program = self.program(inputs)
        orders = batch_innermost(self.graph)
        flat = tuple(leaves(program))
        plan = plan_memory(
            self.graph,
            flat,
            batch_innermost=orders,
            totals={id: bucket.region for id, bucket in self.buckets.items()},
            kept=self.sums,
        )
        anchors = {anchor.tensor: anchor for anchor in self.anchors}
        return Executable(self.graph, program, plan, self.step, anchors, tuple(inputs))

    def used_inputs(self) -> list[Tensor]:
        """Inputs that an op reads or that are anchored."""
        read = {id for op in self.graph.ops for id in op.inputs} | {anchor.tensor for anchor in self.anchors}
        return [tensor for tensor in self.graph.with_role(Role.INPUT) if tensor.id in read]

    def program(self, inputs: Sequence[Tensor]) -> tuple[Instruction, ...]:
        forward: list[Instruction] = self.keys(KEY)
        forward += [HostLoad(tensor.id, tensor.id in self.broadcast) for tensor in inputs]
        forward += [
            (Collective if between_replicas(op) else Compute)(op)
            for op in self.graph.ops
            if op.phase is not Phase.UPDATE
        ]
        forward += self.accumulation()
        early, late, end = self.stores()
        micro_batches = Repeat(self.step.accumulation, Counter.MICRO_BATCH, (*forward, *early))
        updates: list[Instruction] = [*self.keys(SHARED_KEY)]
        updates += [WeightUpdate(op) for op in self.graph.ops if op.phase is Phase.UPDATE]
        batches = Repeat(self.step.batches, Counter.BATCH, (micro_batches, *self.reduce(), *updates, *late))
        return (batches, *end)

    def keys(self, id: str) -> list[Instruction]:
        """Set what random numbers are made of, if there are any."""
        return [DrawKey(id, id == SHARED_KEY)] if id in self.graph.tensors else []

    def accumulation(self) -> list[Instruction]:
        """Sum, or keep the running mean of, the gradients of the micro-batches of a batch."""
        if self.step.accumulation == 1:
            return []
        running = self.reduction is Reduction.MEAN_RUNNING
        made: list[Instruction] = [self.counter()] if running else []
        for gradient in self.gradients:
            operands = (gradient.total, gradient.part)
            first = Op("CopyInto", operands, (gradient.total,))
            others = Op("AddInto", operands, (gradient.total,))
            if running:
                others = Op("MeanInto", (*operands, _KEEP, _TAKE), (gradient.total,))
            made.append(AccumulateGradient(first, others))
        return made

    def counter(self) -> CountMicroBatch:
        for id in (_KEEP, _TAKE):
            self.graph.add(Tensor(id, FLOAT, (), Role.SCALAR), np.zeros((), np.float32))
        return CountMicroBatch(_KEEP, _TAKE)

    def reduce(self) -> list[Instruction]:
        """One collective for each bucket."""
        operator = "mean" if self.reduction is Reduction.MEAN_RUNNING else "add"
        shared = [b for b in dict.fromkeys(self.buckets.values()) if (b.group[1] if b.group else self.replicas) > 1]
        return [AllReduce(bucket.region, operator) for bucket in shared]

    def stores(self) -> tuple[list[Instruction], list[Instruction], list[Instruction]]:
        """Stores in the micro-batch, after the update, and at the end of the step.

        Variables are stored after the update; with accumulation every micro-batch reports what it was given,
        so only their final value comes after it.
        """
        early: list[Instruction] = []
        late: list[Instruction] = []
        end: list[Instruction] = []
        for anchor in self.anchors:
            changed = self.changes_in_update(anchor.tensor)
            place = late if changed and self.step.accumulation == 1 else early
            if anchor.returns is Return.SUM:
                place.append(self.sum(anchor.tensor))
                end.append(HostStore(_SUM + anchor.tensor, anchor.tensor))
            elif anchor.returns is Return.FINAL:
                (end if changed else early).append(HostStore(anchor.tensor, anchor.tensor, 1 if changed else 0))
            else:
                place.append(HostStore(anchor.tensor, anchor.tensor, anchor.period))
        return early, late, end

    def changes_in_update(self, id: str) -> bool:
        updated = any(id in op.outputs for op in self.graph.ops if op.phase is Phase.UPDATE)
        return updated or self.graph.tensor(id).role.is_variable

    def sum(self, id: str) -> AccumulateAnchor:
        total = _SUM + id
        self.graph.add(replace(self.graph.tensor(id), id=total, role=Role.COMPUTED))
        self.sums.append(total)
        return AccumulateAnchor(Op("CopyInto", (total, id), (total,)), Op("AddInto", (total, id), (total,)))
