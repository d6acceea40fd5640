"""ProgramReport: the operations and the memory of a program."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ipu_emu.program.executable import Executable
from ipu_emu.program.instructions import listing

__all__ = ["ProgramReport"]


@dataclass(frozen=True)
class ProgramReport:
    """``memory`` in bytes by region of one replica; ``flops`` and ``bytes`` of one micro-batch on one replica."""

    program: str
    memory: Mapping[str, int]
    flops: int
    bytes: int
    replicas: int

    @classmethod
    def of(cls, executable: Executable, replicas: int) -> ProgramReport:
        cost = executable.cost()
        return cls(listing(executable.program), dict(executable.plan.sizes), cost.flops, cost.bytes, replicas)
