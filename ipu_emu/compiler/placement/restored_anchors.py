"""Restored anchors: anchors of the stash of an activation, and of its value when a backward stage restores it.

anchored: Restored___y        y -> stage 2's gradients    ->    Restored___y = Identity(y), in that backward stage
anchored: Stashed___y         y, made in stage 0          ->    Stashed___y = the stash once it has y, in stage 0

A stash has a place for each micro-batch between the two stages, and for the current one; they are used in turn.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from ipu_emu.compiler.rewriting.op_writer import OpWriter
from ipu_emu.compiler.rewriting.reserved_prefixes import RESTORED, STASHED
from ipu_emu.graph import Graph, Op, Role, StepPhase, Tensor
from ipu_emu.graph.dtype import FLOAT

__all__ = ["restore_anchored"]


def restore_anchored(graph: Graph, anchored: Iterable[str]) -> None:
    """Append the ops that make the anchors of stashed activations; the last forward stage stashes none."""
    last = max((op.place.stage for op in graph.ops if op.phase is StepPhase.FORWARD), default=0)
    for id in anchored:
        base = id.removeprefix(RESTORED).removeprefix(STASHED)
        if base == id or base not in graph.tensors or graph.tensor(base).role.is_variable:
            continue
        readers = [
            op for op in graph.ops if op.phase is StepPhase.BACKWARD and base in op.reads and op.place.stage < last
        ]
        if readers and id.startswith(RESTORED):
            OpWriter(graph, StepPhase.BACKWARD, readers[0].place).append("Identity", (base,), (id,))
        elif readers:
            _show_stash(graph, base, readers, last)


def _show_stash(graph: Graph, id: str, readers: Sequence[Op], last: int) -> None:
    """Append a copy of the stash of ``id``, in the forward stage that puts ``id`` into it."""
    index, op = next((index, op) for index, op in enumerate(graph.ops) if id in op.outputs or id in op.inputs)
    made = int(id in op.outputs)
    tensor, stash, count = graph.tensor(id), f"{STASHED}{id}/places", f"{STASHED}{id}/count"
    depth = 2 * last - min(reader.place.stage for reader in readers) - op.place.stage + 1
    for state in (Tensor(stash, tensor.dtype, (depth, *tensor.shape)), Tensor(count, FLOAT, ())):
        graph.add(Tensor(state.id, state.dtype, state.shape, Role.STATE), np.zeros(state.shape, state.dtype.numpy))
    outputs = (f"Updated{stash}", f"Updated{count}", STASHED + id)
    OpWriter(graph, StepPhase.FORWARD, op.place).append("PutIntoStash", (id, stash, count), outputs)
    graph.ops.insert(index + made, graph.ops.pop())
