"""Fused updates: a fused kernel whose results are only copied into variables writes directly to the variables.

    m, w = Fused(..., momentum, weight)
    CopyVarUpdate(momentum, m)              ->    momentum, weight = FusedUpdate(momentum, weight, ...)
    CopyVarUpdate(weight, w)

So every element-wise weight update reads and writes its data once, whatever the optimiser, with the same arithmetic.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from ipu_emu.graph import Graph, Op
from ipu_emu.ops import TABLE
from ipu_emu.ops.elementwise.fused_elementwise import MOST_UPDATES


def fuse_updates(graph: Graph, wanted: Iterable[str]) -> None:
    """Make the fused kernels of ``graph`` update variables in place; ``wanted`` tensors must still be stored."""
    _Updates(graph, set(wanted)).run()


class _Updates:
    def __init__(self, graph: Graph, wanted: set[str]) -> None:
        self.graph, self.wanted = graph, wanted
        self.owners: dict[str, str] = {}  # view: the tensor whose memory it shares
        self.users: dict[str, list[int]] = {}
        for index, op in enumerate(graph.ops):
            view = TABLE[op].view_of
            if view is not None:
                self.owners[op.outputs[0]] = self.owner(op.inputs[view])
            for id in op.inputs:
                self.users.setdefault(self.owner(id), []).append(index)

    def owner(self, id: str) -> str:
        return self.owners.get(id, id)

    def run(self) -> None:
        dropped: set[int] = set()
        for index, op in enumerate(self.graph.ops):
            copies = self.copies(index, op) if op.type == "Fused" and not op.domain else None
            if copies:
                self.graph.ops[index] = self.updating(op, [self.graph.ops[copy] for copy in copies])
                dropped.update(copies)
        self.graph.ops = [op for index, op in enumerate(self.graph.ops) if index not in dropped]

    def copies(self, index: int, op: Op) -> list[int] | None:
        """The indices of the copies of all results of ``op`` into variables; None if a result has another use."""
        copies = [self.copy_of(index, op, output) for output in op.outputs]
        indices = [copy for copy in copies if copy is not None]
        changed = [self.graph.ops[copy].inputs[0] for copy in indices]
        if len(indices) < len(copies) or len(set(changed)) < len(changed) or len(changed) > MOST_UPDATES:
            return None
        later = (user for id in changed for user in self.users[id] if user > index)
        return indices if set(later) <= set(indices) else None

    def copy_of(self, index: int, op: Op, output: str) -> int | None:
        users = self.users.get(output, [])
        if len(users) != 1 or output in self.wanted:
            return None
        copy = self.graph.ops[users[0]]
        alike = (copy.phase, copy.place, copy.guard) == (op.phase, op.place, op.guard)
        into = copy.type == "CopyVarUpdate" and copy.inputs[1] == output and copy.inputs[0] not in self.owners
        return users[0] if into and alike else None

    def updating(self, op: Op, copies: list[Op]) -> Op:
        """``op`` with the variables as its first inputs, in the order of its outputs."""
        changed = [copy.inputs[0] for copy in copies]
        inputs = [*changed, *(id for id in op.inputs if id not in changed)]
        moved = {index: inputs.index(id) for index, id in enumerate(op.inputs)}
        columns = {moved[index]: width for index, width in op.attributes["columns"].items()}
        rows = [moved[index] for index in op.attributes["rows"]]
        more = len(inputs) - len(op.inputs)
        body = tuple(_moved(instruction, moved, more) for instruction in op.attributes["body"])
        for id in op.outputs:
            del self.graph.tensors[id]
        return replace(
            op,
            type="FusedUpdate",
            inputs=tuple(inputs),
            outputs=tuple(copy.outputs[0] for copy in copies),
            attributes={**op.attributes, "body": body, "columns": columns, "rows": rows},
        )


def _moved(instruction: tuple[Any, ...], indices: dict[int, int], more: int) -> tuple[Any, ...]:
    """An instruction of the kernel with the operands at their new indices."""
    kind, *rest = instruction
    if kind == "load":
        return (kind, indices[rest[0]])
    if kind == "store":
        return (kind, rest[0] + more, rest[1])
    return instruction
