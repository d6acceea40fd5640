"""Pruning: removes ops and tensors that no result depends on."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ipu_emu.graph import Graph, Role, StepPhase
from ipu_emu.ops import TABLE
from ipu_emu.ops.control.abort_and_print import KEPT
from ipu_emu.program.anchors import Anchor


def prune(graph: Graph, wanted: Iterable[str]) -> None:
    """Keep the ops that ``wanted`` tensors depend on, and inputs, weights, updates in place, aborts and prints."""
    needed = set(wanted)
    ops = []
    for op in reversed(graph.ops):
        if TABLE[op].updates or op.type in KEPT or needed.intersection(op.outputs):
            ops.append(op)
            needed.update(id for id in op.reads if id)
            needed.update(op.outputs)
    graph.ops = ops[::-1]
    graph.tensors = {
        id: tensor
        for id, tensor in graph.tensors.items()
        if id in needed or tensor.role in (Role.WEIGHT, Role.STATE, Role.INPUT)
    }


def forward_graph(graph: Graph, anchors: Sequence[Anchor]) -> Graph:
    """Return the forward pass of a training graph, as far as ``anchors`` and updates in place need it.

    Its variables have no values: they share those of the training graph.
    """
    forward = graph.copy()
    forward.ops = [op for op in forward.ops if op.phase is StepPhase.FORWARD]
    prune(forward, [anchor.tensor for anchor in anchors])
    used = {id for op in forward.ops for id in (*op.reads, *op.outputs)}
    forward.tensors = {id: t for id, t in forward.tensors.items() if id in used or t.role is Role.INPUT}
    known = {id for id, tensor in forward.tensors.items() if not tensor.role.is_variable}
    forward.data = {id: value for id, value in forward.data.items() if id in known}
    return forward


def forward_anchors(graph: Graph, anchors: Sequence[Anchor]) -> tuple[Anchor, ...]:
    """Return the anchors that the forward pass computes."""
    computed = {id for op in graph.ops if op.phase is StepPhase.FORWARD for id in op.outputs}
    return tuple(anchor for anchor in anchors if anchor.tensor in computed)
