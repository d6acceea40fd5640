"""Recomputation: ops of the forward pass are repeated in the backward pass, right before their results are needed.

    y = Gemm(x, w)                              y = Gemm(x, w)
    z = Tanh(y)                                 z = Tanh(y)
    ...                                         ...
    dy = TanhGrad(dz, z)            ->          Recomputed___y = Gemm(x, w)
                                                Recomputed___z = Tanh(Recomputed___y)
                                                dy = TanhGrad(dz, Recomputed___z)

The originals are freed in the forward pass. The repeated op is the same kernel with the same operands, random keys
included, in the place of the op: no bit differs. In a pipeline without gradient accumulation it sees the weights of
its own slot, as in PopART.

A sharded weight that a repeated op reads is gathered once more, for that op and for the gradients of its place, so
that no pipeline keeps whole weights for the micro-batches in flight.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from ipu_emu.compiler.gradients.activation_checkpointing import Recomputation, recomputed_tensors
from ipu_emu.errors import EmulatorError
from ipu_emu.graph import Graph, Op, Place, StepPhase
from ipu_emu.ops.communication.collective_ops import GATHER_SHARDS
from ipu_emu.ops.communication.memory_copy_ops import REMOTE_LOAD
from ipu_emu.ops.random.counter_rng import RNG_KEY, STREAM_ID, stream_id_of

RECOMPUTED = "Recomputed___"


def _one(stages: int, stage: int) -> int:
    return 1


def recompute(
    graph: Graph, kind: Recomputation, wanted: Iterable[str], copies: Callable[[int, int], int] = _one
) -> None:
    """Repeat ops in the backward pass as ``kind`` and annotations say; ``wanted`` tensors are kept.

    ``copies(n, s)`` is for how many micro-batches stage s of n keeps its checkpoints.
    """
    chosen = recomputed_tensors(graph, kind, wanted, copies)
    if chosen:
        _Recomputation(graph, chosen).run()
    if kind is Recomputation.PIPELINE:
        _check_stages(graph)


def _check_stages(graph: Graph) -> None:
    """Raise EmulatorError if several stages would recompute from one stash."""
    stages: dict[tuple[str, int], set[int]] = {}
    activations = {id for op in graph.ops if op.phase is StepPhase.FORWARD for id in op.outputs}
    for op in graph.ops:
        if op.outputs[0].startswith(RECOMPUTED):
            for id in activations.intersection(op.inputs):
                stages.setdefault((id, op.place.ipu), set()).add(op.place.stage)
    for (id, _), numbers in stages.items():
        if len(numbers) > 1:
            raise EmulatorError(
                "SessionOptions::autoRecomputation == RecomputationType::Pipeline is not compatible with the "
                f"partitioning of operations over pipeline stages. To-stash Tensor '{id}' must be restored for "
                "recomputation of a descendent that is not a direct consumer on more than 1 PipelineStage, but this "
                "is currently not supported",
                note=f"Stages {', '.join(map(str, sorted(numbers)))} on one IPU read it. Put them on IPUs of their "
                "own, or choose RecomputationType.Standard",
            )


#: What an op provides at a place: the weight, and the type of the op.
_Brought = tuple[str, str, Place]


def _brought(graph: Graph, phase: StepPhase) -> dict[str, _Brought]:
    """The ops of a pass that gather sharded weights, and load the shards for that, by their results."""
    loads = {op.outputs[0]: op for op in graph.ops if op.type == REMOTE_LOAD and op.phase is phase}
    brought: dict[str, _Brought] = {}
    for op in graph.ops:
        if op.type == GATHER_SHARDS and op.phase is phase:
            shard = weight = op.inputs[0]
            if shard in loads:
                weight = loads[shard].inputs[0]
                brought[shard] = weight, REMOTE_LOAD, op.place
            brought[op.outputs[0]] = weight, GATHER_SHARDS, op.place
    return brought


class _Recomputation:
    def __init__(self, graph: Graph, chosen: set[str]) -> None:
        before = _brought(graph, StepPhase.FORWARD)
        self.graph, self.chosen = graph, chosen | before.keys()
        self.before = {brought: id for id, brought in before.items()}
        self.again = _brought(graph, StepPhase.BACKWARD)
        self.producers = {id: number for number, op in enumerate(graph.ops) for id in op.outputs if id in self.chosen}
        self.forward = list(graph.ops)
        self.copies: dict[str, str] = {}

    def run(self) -> None:
        ops, self.graph.ops = self.graph.ops, []
        for op in ops:
            if op.phase is StepPhase.BACKWARD:
                if self.is_brought(op):
                    continue
                for number in self.missing(op):
                    self.repeat(self.forward[number])
                op = replace(op, inputs=self.renamed(op))
            self.graph.ops.append(op)

    def is_brought(self, op: Op) -> bool:
        """Whether a repeated op already provides the result of ``op``; otherwise, repeated ops read that result."""
        id = op.outputs[0]
        first = self.before.get(self.again[id]) if id in self.again else None
        if first is None:
            return False
        if first in self.copies:
            self.copies[id] = self.copies[first]
            del self.graph.tensors[id]
            return True
        self.copies[first] = id
        return False

    def missing(self, op: Op) -> list[int]:
        """The ops that have to be repeated before ``op``, in order."""
        missing: set[int] = set()
        open_ids = list(op.inputs)
        while open_ids:
            id = open_ids.pop()
            if id in self.producers and id not in self.copies and self.producers[id] not in missing:
                missing.add(self.producers[id])
                open_ids += self.forward[self.producers[id]].inputs
        return sorted(missing)

    def repeat(self, op: Op) -> None:
        inputs, outputs = self.renamed(op), tuple(self.copy_of(id) if id else "" for id in op.outputs)
        attributes = {**op.attributes, STREAM_ID: stream_id_of(op)} if RNG_KEY in op.inputs else op.attributes
        repeated = replace(op, inputs=inputs, outputs=outputs, attributes=attributes, phase=StepPhase.BACKWARD)
        self.graph.ops.append(repeated)

    def renamed(self, op: Op) -> tuple[str, ...]:
        return tuple(self.copies.get(id, id) for id in op.inputs)

    def copy_of(self, id: str) -> str:
        name = self.graph.unused(RECOMPUTED + id)
        self.graph.add(replace(self.graph.tensor(id), id=name))
        if id in self.chosen:
            self.copies[id] = name
        return name
