"""Streams: how a program takes each input from the host; or does without, where data are on the device already."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from ipu_emu.graph import Tensor
from ipu_emu.program.instructions import HostLoad, Instruction, Overlap

__all__ = ["Streams", "without_streams"]


@dataclass(frozen=True)
class Streams:
    """Inputs of which one chunk serves all replicas, and those that are not loaded just in time."""

    broadcast: frozenset[str]
    ahead: Mapping[str, Overlap]
    staged: Mapping[str, int]
    synthetic: bool

    def load(self, tensor: Tensor) -> HostLoad:
        shared = tensor.id in self.broadcast
        if tensor.off_chip:
            return HostLoad(tensor.id, shared, Overlap.STAGED, self.staged[tensor.id] - 1)
        return HostLoad(tensor.id, shared, self.ahead.get(tensor.id, Overlap.NONE))


def without_streams(program: Sequence[Instruction]) -> Iterator[Instruction]:
    """All instructions but those of host I/O."""
    for part in program:
        if not part.is_host_io:
            yield part.with_bodies([tuple(without_streams(body)) for body in part.bodies])
