"""Instructions of collectives between replicas: one op, ops of sharded tensors, or a bucket of gradients."""

from __future__ import annotations

from dataclasses import dataclass

from ipu_emu.graph import Op
from ipu_emu.program.instructions.instruction import Leaf
from ipu_emu.program.instructions.op_instructions import OpInstruction

__all__ = ["AllReduce", "ReplicaCollective", "ShardCollectives"]


class ReplicaCollective(OpInstruction):
    """Run a collective op: each replica contributes its input and receives its output."""


@dataclass(frozen=True)
class ShardCollectives(Leaf):
    """Run collectives of sharded tensors as one: each replica contributes all inputs and receives all outputs."""

    members: tuple[Op, ...]

    @property
    def ops(self) -> tuple[Op, ...]:
        return self.members

    def __str__(self) -> str:
        return f"ShardCollectives {'; '.join(map(str, self.members))}"


@dataclass(frozen=True)
class AllReduce(Leaf):
    """Combine a bucket over the replicas of its group, in all instances, in place.

    ``rounded`` are the tensors in a FLOAT16 bucket whose results are rounded stochastically, each with the name that
    selects its random numbers.
    """

    bucket: str
    operator: str
    rounded: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        return f"AllReduce {self.operator} {self.bucket}{', rounded stochastically' if self.rounded else ''}"
