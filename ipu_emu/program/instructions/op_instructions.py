"""Instructions that run one op: compute, weight updates, and copies between memories."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ipu_emu.graph import Op
from ipu_emu.program.instructions.instruction import Leaf

__all__ = ["Compute", "IpuCopy", "OpInstruction", "RemoteLoad", "RemoteStore", "WeightUpdate"]


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
