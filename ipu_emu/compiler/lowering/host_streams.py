"""Streams: how a program takes each input from the host; or does without, where data are on the device already."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from ipu_emu.graph import Tensor
from ipu_emu.program.instructions import Instruction, Pipeline, Preload, Repeat
from ipu_emu.program.io_overlap import Overlap
from ipu_emu.program.leaf_instructions import HostLoad, HostStore

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
        if isinstance(part, Repeat):
            yield replace(part, body=tuple(without_streams(part.body)))
        elif isinstance(part, Preload):
            yield replace(part, body=tuple(leaf for leaf in part.body if not _is_stream(leaf)))
        elif isinstance(part, Pipeline):
            bodies = [tuple(leaf for leaf in stage.body if not _is_stream(leaf)) for stage in part.stages]
            yield replace(
                part, stages=tuple(replace(s, body=body) for s, body in zip(part.stages, bodies, strict=True))
            )
        elif not _is_stream(part):
            yield part


def _is_stream(part: Instruction) -> bool:
    return isinstance(part, HostLoad | HostStore)
