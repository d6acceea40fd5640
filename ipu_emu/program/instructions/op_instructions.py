"""Instructions that run one op: compute, weight updates, and copies between memories."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ipu_emu.graph import Op
from ipu_emu.program.instructions.instruction import Leaf


@dataclass(frozen=True)
class OpInstruction(Leaf):
    """Base of the instructions that run one op."""

    op: Op

    @property
    def ops(self) -> tuple[Op, ...]:
        return (self.op,)

    def __str__(self) -> str:
        return f"{type(self).__name__} {self.op}"


class Compute(OpInstruction):
    """Run an op."""


class WeightUpdate(OpInstruction):
    """Run an op that changes a weight and its optimiser states in place."""


class IpuCopy(OpInstruction):
    """Copy a tensor to the IPU of ``op``."""

    is_copy: ClassVar[bool] = True


class RemoteLoad(OpInstruction):
    """Copy a tensor from Streaming Memory to its IPU."""

    is_copy: ClassVar[bool] = True


class RemoteStore(OpInstruction):
    """Copy a tensor from an IPU to its Streaming Memory."""

    is_copy: ClassVar[bool] = True


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
