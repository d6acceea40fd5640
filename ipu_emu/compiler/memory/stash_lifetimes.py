"""Stash lifetimes: for how many micro-batches at a time a pipeline keeps a tensor.

A tensor that only one stage uses lives while that stage runs. One that another stage or the host reads is kept until
the last reader is done, while the stage that makes it works on later micro-batches: it has several buffers, used in
turn.

    F = 2   stage 0 makes y, stage 2 reads it        slot     0   1   2   3   4
                                            place of y[0]    y0--------y0  y3 ...
                                            place of y[1]        y1--------y1
                                            place of y[2]            y2--------y2        3 places

Stages of one IPU run one after the other, in the order of the schedule. Work of another IPU or of the host may happen
at any time within its slot; the host loads in the slot before and stores in the slot after.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from ipu_emu.program.instructions import Pipeline

#: Half-open, in (slot, position in the slot).
_Span = tuple[tuple[int, int], tuple[int, int]]


class StashUser(Enum):
    """The kind of user of a tensor."""

    STAGE = "a stage on the IPU of the tensor"
    OTHER = "a copy to another IPU"
    LOAD = "the host, which writes it"
    STORE = "the host, which reads it"


@dataclass(frozen=True)
class Access:
    """A use of a tensor by ``stage``, or by the host for that stage."""

    stage: int
    user: StashUser = StashUser.STAGE


class Timetable:
    """When each stage works on each micro-batch."""

    def __init__(self, pipeline: Pipeline) -> None:
        self.when: list[list[tuple[int, int]]] = [[] for _ in pipeline.stages]
        for number, slot in enumerate(pipeline.slots()):
            for position, task in enumerate(slot):
                self.when[task.stage].append((number, position))
        self._known: dict[frozenset[Access], int] = {}

    def places(self, accesses: frozenset[Access]) -> int:
        """Return the number of buffers for a tensor that is made for each micro-batch and used by ``accesses``."""
        if accesses not in self._known:
            self._known[accesses] = self._places(accesses)
        return self._known[accesses]

    def _places(self, accesses: frozenset[Access]) -> int:
        spans = [self._span(accesses, micro_batch) for micro_batch in range(len(self.when[0]))]
        places = 1
        while any(spans[later][0] < spans[later - places][1] for later in range(places, len(spans))):
            places += 1
        return places

    def _span(self, accesses: frozenset[Access], micro_batch: int) -> _Span:
        spans = [_span(access.user, *self.when[access.stage][micro_batch]) for access in accesses]
        return min(start for start, _ in spans), max(end for _, end in spans)


def _span(user: StashUser, slot: int, position: int) -> _Span:
    return {
        StashUser.STAGE: ((slot, position), (slot, position + 1)),
        StashUser.OTHER: ((slot, 0), (slot + 1, 0)),
        StashUser.LOAD: ((slot - 1, 0), (slot, 0)),
        StashUser.STORE: ((slot + 1, 0), (slot + 2, 0)),
    }[user]
