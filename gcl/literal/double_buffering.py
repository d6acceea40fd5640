"""versions: where the buffers of a step program lie in shared memory, so that one meeting per exchange is enough.

Every buffer that travels exists twice. A write goes to the version that was not read last, unless part of what was
written before still waits to be read: then to the same one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from gcl.scheduling.program.step_program import INPUT, OUTPUT, Exchange, Reduce, Slice, Step, StepProgram

__all__ = ["Key", "Layout", "Versions", "fused", "key_of", "sent_from_io", "versions_of"]

_LINE = 64  # bytes; buffers begin on one
#: What is written and read as one: a buffer between its low and high element.
Key = tuple[str, int, int]


class Layout:
    """Where the buffers of ``program`` lie in an arena: each twice, and twice what is sent from input or output."""

    def __init__(self, program: StepProgram, dtype: np.dtype[Any]) -> None:
        self._places: dict[tuple[str, int], int] = {}
        self.sizes = {
            name: program.fragments(name) * program.width for name in program.buffers if name not in (INPUT, OUTPUT)
        }
        self.sizes[INPUT] = max((sum(s.elements for s in sent_from_io(e)) for e in program.exchanges), default=0)
        self.nbytes = 0
        for name, size in self.sizes.items():
            for version in (0, 1):
                self._places[name, version] = self.nbytes
                self.nbytes += -(-size * dtype.itemsize // _LINE) * _LINE

    def offset(self, name: str, version: int) -> int:
        """First byte of a version of buffer ``name`` (INPUT: of what is put there to be sent)."""
        return self._places[name, version]


def sent_from_io(exchange: Exchange) -> list[Slice]:
    """What has to be put into the arena so that peers can read it: slices of input and output that are sent."""
    found = dict.fromkeys(copy.source for copy in exchange.copies if copy.source.buffer in (INPUT, OUTPUT))
    return list(found)


def key_of(part: Slice) -> Key:
    return part.buffer, part.low, part.high


def _reads(step: Step) -> list[Slice]:
    if isinstance(step, Exchange):
        parts = [copy.source for copy in step.copies]
    else:
        parts = [step.own, step.received] if isinstance(step, Reduce) else [step.source]
    return [part for part in parts if part.buffer not in (INPUT, OUTPUT)]


def _writes(step: Step) -> list[Slice]:
    parts = [copy.target for copy in step.copies] if isinstance(step, Exchange) else [step.target]
    return [part for part in parts if part.buffer not in (INPUT, OUTPUT)]


@dataclass(frozen=True)
class Versions:
    """Per step, the version of every buffer that it reads, and of every one that it writes."""

    read: list[dict[Key, int]]
    written: list[dict[Key, int]]


def versions_of(program: StepProgram) -> Versions | None:
    """The versions, or None where two are not enough."""
    keys = {key_of(part) for step in program.steps for part in (*_reads(step), *_writes(step))}
    if any(a != b and a[0] == b[0] and a[1] < b[2] and b[1] < a[2] for a in keys for b in keys):
        return None
    now = dict.fromkeys(keys, 1)
    unread: set[Key] = set()  # written for some replicas, perhaps, and for others to come: the same version
    seen: dict[tuple[Key, int], int] = {}
    found, epoch = Versions([], []), 0
    for step in program.steps:
        epoch += isinstance(step, Exchange)
        found.read.append({key_of(part): now[key_of(part)] for part in _reads(step)})
        if isinstance(step, Exchange):
            seen |= dict.fromkeys(found.read[-1].items(), epoch)
        unread -= set(found.read[-1])
        for key in set(map(key_of, _writes(step))) - unread:
            now[key] = 1 - now[key]
            if seen.get((key, now[key]), -1) >= epoch:
                return None
        unread |= set(map(key_of, _writes(step)))
        found.written.append({key_of(part): now[key_of(part)] for part in _writes(step)})
    return found


def fused(program: StepProgram) -> set[Key]:
    """Targets of exchanges that are only read between that exchange and the next: they need not be stored.

    One that is written again before it was read (packets that arrive at different hops) must be.
    """
    fresh: set[Key] = set()
    waiting: set[Key] = set()
    read: set[Key] = set()
    stored: set[Key] = set()
    for step in program.steps:
        parts = set(map(key_of, _reads(step)))
        if isinstance(step, Exchange):
            fresh = {key_of(copy.target) for copy in step.copies if not copy.redundant}
            stored |= parts | (fresh & waiting)
            waiting |= fresh
        else:
            stored |= (parts - fresh) | set(map(key_of, _writes(step)))
            read |= parts
            waiting -= parts
    return read - stored
