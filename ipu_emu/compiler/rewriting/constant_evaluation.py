"""Constant evaluation: tensors that a graph computes from constants alone, by the kernels of a step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from numpy.typing import NDArray

from ipu_emu.compiler.rewriting.expansion import expanded
from ipu_emu.errors import UnsupportedError
from ipu_emu.graph import Graph
from ipu_emu.ops import TABLE, node_of
from ipu_emu.ops.control.loop_and_while import WHILE
from ipu_emu.ops.insertion import evaluate


def constants_of(graph: Graph, ids: Sequence[str]) -> list[NDArray[Any]]:
    """The values of tensors; raise UnsupportedError where an op needs a step, such as one that draws numbers."""
    if all(id in graph.data for id in ids):
        return [graph.data[id] for id in ids]
    ready = expanded(graph)
    for op in ready.ops:
        entry, node = TABLE[op], node_of(ready, op)
        if entry.kernel is None or entry.random or entry.updates or op.type == WHILE:
            raise UnsupportedError(f"Op {op.label} is not computed without a step; compute it from an input")
        ready.data |= zip(op.outputs, evaluate(entry, node, node.values), strict=True)
    return [ready.data[id] for id in ids]
