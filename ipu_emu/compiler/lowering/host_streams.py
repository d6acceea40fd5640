"""Host streams: the instructions that take inputs from the host, and a program without host I/O."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ipu_emu.compiler.options import HostStreams
from ipu_emu.graph import Tensor
from ipu_emu.program.instructions import HostLoad, Instruction, Overlap

__all__ = ["load", "without_streams"]


def load(tensor: Tensor, streams: HostStreams) -> HostLoad:
    """Return the instruction that takes an input from the host."""
    shared = tensor.id in streams.broadcast
    if tensor.off_chip:
        return HostLoad(tensor.id, shared, Overlap.STAGED, streams.staged[tensor.id] - 1)
    return HostLoad(tensor.id, shared, streams.ahead.get(tensor.id, Overlap.NONE))


def without_streams(program: Sequence[Instruction]) -> Iterator[Instruction]:
    """Return all instructions but those of host I/O."""
    for part in program:
        if not part.is_host_io:
            yield part.with_bodies([tuple(without_streams(body)) for body in part.bodies])
