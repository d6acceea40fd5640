"""Pruning: removes ops and tensors that no result depends on."""

from __future__ import annotations

from collections.abc import Iterable

from ipu_emu.graph import Graph, Role
from ipu_emu.ops import TABLE
from ipu_emu.ops.control.abort_and_print import KEPT

__all__ = ["prune"]


def prune(graph: Graph, wanted: Iterable[str]) -> None:
    """Keep the ops that ``wanted`` tensors depend on, and inputs, weights, updates in place, aborts and prints."""
    needed = set(wanted)
    kept = []
    for op in reversed(graph.ops):
        if TABLE[op].updates or op.type in KEPT or needed.intersection(op.outputs):
            kept.append(op)
            needed.update(id for id in op.reads if id)
            needed.update(op.outputs)
    graph.ops = kept[::-1]
    graph.tensors = {
        id: tensor
        for id, tensor in graph.tensors.items()
        if id in needed or tensor.role in (Role.WEIGHT, Role.STATE, Role.INPUT)
    }
