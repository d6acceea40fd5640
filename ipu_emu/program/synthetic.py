"""Synthetic: a program whose data are on the device already, and whose results stay there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from ipu_emu.program.instructions import HostLoad, HostStore, Instruction, Pipeline, Repeat

__all__ = ["without_streams"]


def without_streams(program: Sequence[Instruction]) -> Iterator[Instruction]:
    """All instructions but those of host I/O."""
    for part in program:
        if isinstance(part, Repeat):
            yield replace(part, body=tuple(without_streams(part.body)))
        elif isinstance(part, Pipeline):
            bodies = [tuple(leaf for leaf in stage.body if not _is_stream(leaf)) for stage in part.stages]
            yield replace(
                part, stages=tuple(replace(s, body=body) for s, body in zip(part.stages, bodies, strict=True))
            )
        elif not _is_stream(part):
            yield part


def _is_stream(part: Instruction) -> bool:
    return isinstance(part, HostLoad | HostStore)
