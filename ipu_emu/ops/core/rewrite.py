"""Rewrite: collects the ops that replace one op; their shapes are inferred when they enter the graph."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from ipu_emu.graph import Graph, Op, Role, Tensor, dtype_of


class Rewrite:
    """Collects ops that replace ``op``; they keep its annotations, its phase and its guard."""

    def __init__(self, graph: Graph, op: Op) -> None:
        self.graph = graph
        self.original = op
        self.ops: list[Op] = []
        self.annotations = op.annotations

    def shape(self, id: str) -> tuple[int, ...]:
        """Shape of an operand of the op that is replaced."""
        return self.graph.tensor(id).shape

    def constant(self, value: Any) -> str:
        """The id of a new constant."""
        array = np.array(value)
        id = self.graph.unused(f"{self.original.outputs[0]}/constant")
        self.graph.add(Tensor(id, dtype_of(array), array.shape, Role.CONSTANT), array)
        return id

    def op(
        self, type: str, *inputs: str, into: str = "", outputs: int = 1, domain: str = "", **attributes: Any
    ) -> str:
        """Add an op and return the id of its first output; ``into`` names it."""
        first = into or f"{self.original.outputs[0]}/{len(self.ops)}/{type}"
        ids = (first, *(f"{first}/{index}" for index in range(1, outputs)))
        op = replace(self.original, type=type, inputs=inputs, outputs=ids, domain=domain, version=10)
        self.ops.append(replace(op, attributes={**self.annotations, **attributes}))
        return first
