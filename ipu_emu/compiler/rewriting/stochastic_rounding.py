"""Stochastic rounding: FLOAT16 results are rounded with random numbers, as IPUs optionally do.

    y = Gemm(x, w)                x32 = Cast(x), w32 = Cast(w), y32 = Gemm(x32, w32), y = RoundStochastically(y32)
    w = SgdPlain(w, g, ...)       w32 = SgdPlain(Cast(w), Cast(g), ...), w = RoundStochasticallyInto(w, w32)

Ops that only move elements are unchanged. Sums over micro-batches are rounded by the ops that compute them
(AddRounded, MeanRounded), reduced gradients by their all-reduce. Tensors that are equal on all replicas are rounded
alike on all.
"""

from __future__ import annotations

from dataclasses import replace

from ipu_emu.graph import Graph, Op, Place, Role, StepPhase
from ipu_emu.graph.dtype import FLOAT, FLOAT16
from ipu_emu.ops import TABLE, node_of
from ipu_emu.ops.communication.collective_ops import (
    GATHER_SHARDS,
    GATHER_WEIGHT,
    REDUCTIONS,
    SCATTER_GRADIENT,
    is_replica_collective,
)
from ipu_emu.ops.random.counter_rng import key_in

#: Collectives of shards, whose sizes in bytes are fixed already.
_SHARDED = (SCATTER_GRADIENT, GATHER_WEIGHT, GATHER_SHARDS)


def round_stochastically(graph: Graph) -> None:
    """Let every op that computes a FLOAT16 result compute in FLOAT and round stochastically."""
    ops, graph.ops = graph.ops, []
    rounding = _Rounding(graph)
    for op in ops:
        if rounding.concerns(op):
            rounding.replace(op)
        else:
            graph.ops.append(op)


class _Rounding:
    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.widened: dict[tuple[str, bool, Place], str] = {}

    def is_half(self, id: str) -> bool:
        return bool(id) and self.graph.tensors[id].dtype is FLOAT16

    def concerns(self, op: Op) -> bool:
        if not any(self.is_half(id) for id in op.outputs):
            return False
        if is_replica_collective(op):
            return op.type not in _SHARDED
        narrows = op.type == "Cast" and self.graph.tensors[op.inputs[0]].dtype is FLOAT
        return narrows or TABLE[op].cost(node_of(self.graph, op)).flops > 0

    def replace(self, op: Op) -> None:
        if op.type == "Cast":
            self.round(op, op.inputs[0], op.outputs[0])
            return
        wide = {id: self.wide(id, like=op) for id in op.outputs if self.is_half(id)}
        inputs = tuple(self.widen(id, op) if self.is_half(id) else id for id in op.inputs)
        outputs = tuple(wide.get(id, id) for id in op.outputs)
        self.graph.ops.append(replace(op, inputs=inputs, outputs=outputs))
        for output, index in zip(op.outputs, [*TABLE[op].updates, *[None] * len(op.outputs)], strict=False):
            if output in wide:
                self.round(op, wide[output], output, None if index is None else op.inputs[index])

    def wide(self, id: str, *, like: Op) -> str:
        """Add a FLOAT tensor of the shape of ``id``; return its id."""
        name = self.graph.unused(f"{id}/{like.phase.value}/float")
        self.graph.add(replace(self.graph.tensors[id], id=name, dtype=FLOAT, role=Role.COMPUTED))
        return name

    def widen(self, id: str, op: Op) -> str:
        """Return ``id`` cast to FLOAT; every update in place gets its own copy."""
        shared = not TABLE[op].updates
        key = (id, op.phase is StepPhase.UPDATE, op.place)
        if not shared or key not in self.widened:
            name = self.wide(id, like=op)
            attributes = {"to": FLOAT.onnx}
            self.graph.ops.append(Op("Cast", (id,), (name,), attributes, phase=op.phase, place=op.place))
            if not shared:
                return name
            self.widened[key] = name
        return self.widened[key]

    def round(self, op: Op, source: str, output: str, target: str | None = None) -> None:
        key = key_in(self.graph, shared=op.phase is StepPhase.UPDATE or op.type in REDUCTIONS)
        inputs = (source, key) if target is None else (target, source, key)
        type = "RoundStochastically" if target is None else "RoundStochasticallyInto"
        rounding = Op(type, inputs, (output,), {}, phase=op.phase, place=op.place, guard=op.guard)
        self.graph.ops.append(rounding)
