"""OpCost: the cost of an op on any machine: floating-point operations and bytes moved."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ipu_emu.ops.core.node import Node

__all__ = ["CostRule", "OpCost", "copy_cost", "flops", "per_element"]


@dataclass(frozen=True)
class OpCost:
    """The cost of one call on one micro-batch; bytes are operands read plus results written."""

    flops: int
    bytes: int


CostRule = Callable[[Node], OpCost]


def flops(count: Callable[[Node], int]) -> CostRule:
    """An op of ``count(node)`` operations that reads and writes each operand once."""
    return lambda node: OpCost(count(node), _operand_bytes(node))


def per_element(operations: int) -> CostRule:
    """An op of ``operations`` for each element of its first output."""
    return flops(lambda node: operations * node.outputs[0].nelms)


def copy_cost(node: Node) -> OpCost:
    """The cost of an op that only copies its operands."""
    return OpCost(0, _operand_bytes(node))


def _operand_bytes(node: Node) -> int:
    return sum(t.nbytes for t in (*node.inputs, *node.outputs) if t is not None)
