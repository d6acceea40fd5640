"""The table of all instructions, and look-ups in the tables of the readers of programs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from ipu_emu.errors import InternalError
from ipu_emu.program.instructions.host_io import HostLoad, HostStore
from ipu_emu.program.instructions.instruction import Instruction
from ipu_emu.program.instructions.loops import Pipeline, Preload, Repeat
from ipu_emu.program.instructions.micro_batches import AccumulateAnchor, AccumulateGradient, CountMicroBatch, DrawKey
from ipu_emu.program.instructions.op_instructions import (
    AllReduce,
    Compute,
    IpuCopy,
    RemoteLoad,
    RemoteStore,
    ReplicaCollective,
    ShardCollectives,
    WeightUpdate,
)

_T = TypeVar("_T")


#: Every instruction that a program may have.
INSTRUCTIONS: tuple[type[Instruction], ...] = (
    HostLoad, HostStore, Compute, WeightUpdate, IpuCopy, RemoteLoad, RemoteStore, ReplicaCollective,
    ShardCollectives, AllReduce, AccumulateGradient, AccumulateAnchor, CountMicroBatch, DrawKey, Repeat, Preload,
    Pipeline,
)  # fmt: skip


def row(table: Mapping[type[Instruction], _T], kind: type[Instruction]) -> _T:
    """The row of a reader's table for a class of instructions: its own, or that of the nearest base class."""
    for cls in kind.__mro__:
        if cls in table:
            return table[cls]
    raise InternalError(f"a reader of programs has no row for {kind.__name__}")
