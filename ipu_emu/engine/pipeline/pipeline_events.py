"""Event: one thing that an IPU or the host does in a pipeline, and the earlier ones that have to be over before it.

Events come in an order in which a single thread can do them all, slot by slot. An event needs of those before it

    what it reads     the one that wrote it last
    what it writes    that one too, and all that have read it since
    of the host       every event of the IPUs that wait while it is served (the sync pattern); they need it in turn
    collectives       every event of their IPUs, which need them in turn
    a sharded stage   the same, of all IPUs that it has ops on

Nothing else: an IPU that has what it needs goes on, in whatever slot the others are. Whoever does its own events in
the order of the list never waits in a circle, and finds in memory what the single thread would have found.

    IPU 0   F0 F1 F2 |  B0 F3 | B1 F4         IPU 0 waits for a gradient, or for a place of its output
    IPU 1      F0 B0 F1  B1 F2 B2             that IPU 1 has copied
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from ipu_emu.engine.pipeline.host_sync import Meeting, Tasks
from ipu_emu.graph import Op
from ipu_emu.ops import TABLE
from ipu_emu.program.instructions import PipelineStage
from ipu_emu.program.leaf_instructions import HostLoad, HostStore, Leaf, ops_of
from ipu_emu.program.memory_plan import MemoryPlan

__all__ = ["FABRIC", "HOST", "Doing", "Event", "Uses", "events", "needs"]

#: Actors that are no IPU: the host, and what joins the replicas; they act for all replicas at once.
HOST, FABRIC = -1, -2

#: Region and offset of a tensor, and which of its places.
_Spot = tuple[str, int, int]


class Doing(Enum):
    """The kinds of events."""

    GIVE = "give"
    WORK = "work"
    TAKE = "take"


@dataclass(frozen=True)
class Event:
    """The host gives or takes the data of a stage, or an IPU does ``piece`` of it; for one micro-batch.

    A piece that is a collective is done by what joins the replicas.
    """

    actor: int
    doing: Doing
    stage: int
    micro_batch: int
    piece: int = 0


@dataclass(frozen=True)
class Uses:
    """What an event does with memory: (region, offset), number of places, and whether it is written."""

    of: tuple[tuple[str, int, int, bool], ...]

    @classmethod
    def by(cls, leaves: Sequence[Leaf], plan: MemoryPlan) -> Uses:
        """Of instructions."""
        found: dict[tuple[str, int, int], bool] = {}
        for id, writes in ((id, writes) for leaf in leaves for id, writes in _used(leaf)):
            if id in plan.placements:
                at = plan.placements[id]
                key = at.region, at.offset, at.places
                found[key] = found.get(key, False) or writes
        return cls(tuple((*key, writes) for key, writes in found.items()))

    def spots(self, micro_batch: int) -> Iterator[tuple[_Spot, bool]]:
        """What is used in a micro-batch, and whether it is written."""
        for region, offset, places, writes in self.of:
            yield (region, offset, micro_batch % places), writes


def _used(leaf: Leaf) -> Iterator[tuple[str, bool]]:
    """The tensors of an instruction, and whether it writes them."""
    if isinstance(leaf, HostLoad | HostStore):
        yield leaf.tensor, isinstance(leaf, HostLoad)
    for op in ops_of(leaf):
        yield from ((id, False) for id in op.reads if id)
        yield from ((id, True) for id in _written(op))


def _written(op: Op) -> Iterator[str]:
    yield from (id for id in op.outputs if id)
    yield from (op.inputs[index] for _, index in TABLE.in_place(op))


def events(
    meetings: Sequence[Meeting],
    ipus: Sequence[int],
    shared: Sequence[Sequence[bool]],
    *,
    given: set[int],
    taken: set[int],
) -> Iterator[Event]:
    """In the order of a single thread; ``ipus`` has the IPU of each stage.

    ``shared`` says of each piece of each stage whether it is a collective; ``given`` and ``taken`` are the stages for
    which the host has something to do.
    """

    def served(doing: Doing, tasks: Tasks, stages: set[int]) -> Iterator[Event]:
        return (Event(HOST, doing, stage, micro_batch) for stage, micro_batch in tasks if stage in stages)

    for meeting in meetings:
        yield from served(Doing.GIVE, meeting.given_before, given)
        yield from served(Doing.GIVE, meeting.given_beside, given)
        yield from served(Doing.TAKE, meeting.taken_beside, taken)
        for stage, micro_batch in meeting.tasks:
            for piece, collective in enumerate(shared[stage]):
                yield Event(FABRIC if collective else ipus[stage], Doing.WORK, stage, micro_batch, piece)
        yield from served(Doing.TAKE, meeting.taken_after, taken)


@dataclass
class _Spotted:
    """Who has written a place of memory last, and who has read it since."""

    writer: int | None = None
    readers: set[int] = field(default_factory=set)

    def use(self, number: int, *, writes: bool) -> set[int]:
        """What event ``number`` needs."""
        needed = set() if self.writer is None else {self.writer}
        if writes:
            needed |= self.readers
            self.writer, self.readers = number, set()
        else:
            self.readers.add(number)
        return needed - {number}


def needs(
    order: Sequence[Event],
    uses: Callable[[Event], Uses],
    partners: Mapping[int, set[int]],
    stages: Sequence[PipelineStage],
) -> Iterator[set[int]]:
    """For each event of ``order`` the numbers of those before it, of other actors, that it needs.

    ``partners`` are the IPUs that wait while the host serves one.
    """
    working = [stage.ipus for stage in stages]
    spots: dict[_Spot, _Spotted] = {}
    worked: dict[int, int] = {}
    met: dict[int, int] = {}
    for number, event in enumerate(order):
        needed: set[int] = set()
        for spot, writes in uses(event).spots(event.micro_batch):
            needed |= spots.setdefault(spot, _Spotted()).use(number, writes=writes)
        if event.actor == HOST:
            waiting = partners[stages[event.stage].ipu]
        else:
            waiting = working[event.stage] - {event.actor}
            needed |= {met[ipu] for ipu in working[event.stage] if ipu in met}
        needed |= {worked[ipu] for ipu in waiting if ipu in worked}
        met |= dict.fromkeys(waiting, number)
        worked[event.actor] = number
        yield {one for one in needed if order[one].actor != event.actor}
