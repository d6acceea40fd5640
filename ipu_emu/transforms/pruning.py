"""Pruning: drop the ops and tensors that nothing asked for depends on."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from ipu_emu.graph import Graph, Role
from ipu_emu.ops import TABLE

__all__ = ["drop_folded", "prune"]


def prune(graph: Graph, wanted: Iterable[str]) -> None:
    """Keep what ``wanted`` tensors need, and inputs and weights in any case; an update in place is always kept."""
    needed = set(wanted)
    kept = []
    for op in reversed(graph.ops):
        if TABLE[op].updates or needed.intersection(op.outputs):
            kept.append(op)
            needed.update(id for id in op.inputs if id)
            needed.update(op.outputs)
    graph.ops = kept[::-1]
    graph.tensors = {
        id: tensor
        for id, tensor in graph.tensors.items()
        if id in needed or tensor.role in (Role.WEIGHT, Role.STATE, Role.INPUT)
    }


def drop_folded(graph: Graph) -> None:
    """Drop what was known when the graph was built: constants as ops, and the shapes given to reshapes."""
    graph.ops = [
        replace(op, inputs=op.inputs[:1]) if op.type == "Reshape" else op
        for op in graph.ops
        if TABLE[op].kernel is not None
    ]
