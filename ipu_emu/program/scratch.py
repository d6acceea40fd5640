"""Scratch: memory that an op needs only while it runs.

Two kinds, in this order: the workspace of the op's entry, and a float32 copy of every FLOAT16 operand for kernels
that take only float32; each result is rounded once, when it is stored.
"""

from __future__ import annotations

from dataclasses import dataclass

from ipu_emu.graph import Tensor
from ipu_emu.graph.dtype import FLOAT16
from ipu_emu.ops import TABLE, Node


@dataclass(frozen=True)
class Scratch:
    """Sizes in float32 elements; ``images`` by tensor id, shared by an operand and the output that replaces it."""

    workspace: tuple[int, ...]
    images: dict[str, int]

    @property
    def sizes(self) -> tuple[int, ...]:
        return (*self.workspace, *self.images.values())


def scratch_of(node: Node) -> Scratch:
    """The scratch of one op."""
    operands: list[Tensor] = [tensor for tensor in (*node.inputs, *node.outputs) if tensor is not None]
    entry = TABLE[node.op]
    halves = {} if entry.takes_half(node) else {t.id: t.nelms for t in operands if t.dtype is FLOAT16}
    return Scratch(tuple(entry.workspace(node)), halves)
