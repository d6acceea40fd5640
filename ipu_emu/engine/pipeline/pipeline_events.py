"""Event: one action of an IPU or of the host in a pipeline, and the earlier events on which it depends.

Events are listed in an order in which a single thread can run them all, slot by slot. An event depends on these
earlier events:

    for memory that it reads    the event that wrote it last
    for memory that it writes   that event too, and all that have read it since
    if it is the host's         the last event of each IPU that waits while the host is served (the sync pattern);
                                the next event of each of these IPUs needs it in turn
    if it is a collective       the same, of its IPUs
    if its stage is sharded     the same, of all IPUs that the stage has ops on

and on no others: an IPU continues as soon as its dependencies are met, whatever slot the other IPUs are in. Actors
that run their own events in the order of the list never deadlock, and read the same values as the single thread
would.

    IPU 0   F0 F1 F2 |  B0 F3 | B1 F4         IPU 0 waits for a gradient, or for a buffer of its output
    IPU 1      F0 B0 F1  B1 F2 B2             that IPU 1 has copied
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from ipu_emu.engine.pipeline.host_sync import HostSync, Tasks
from ipu_emu.program.instructions import Leaf, PipelineStage
from ipu_emu.program.memory_plan import MemoryPlan

#: Actors other than IPUs: the host, and the collectives between replicas. Both act for all replicas at once.
HOST, FABRIC = -1, -2

#: A buffer of a tensor: its region, its offset, and the index of the buffer.
_Spot = tuple[str, int, int]


class EventKind(Enum):
    """The kind of an event: the host writes, an IPU or a collective works, or the host reads."""

    GIVE = "give"
    WORK = "work"
    TAKE = "take"


@dataclass(frozen=True)
class Event:
    """For one micro-batch, the host transfers the data of a stage, or an IPU runs ``piece`` of it.

    The actor of a piece that is a collective is FABRIC.
    """

    actor: int
    kind: EventKind
    stage: int
    micro_batch: int
    piece: int = 0


@dataclass(frozen=True)
class MemoryAccess:
    """The memory that an event uses: (region, offset, number of buffers, whether it is written)."""

    spans: tuple[tuple[str, int, int, bool], ...]

    @classmethod
    def of(cls, leaves: Sequence[Leaf], plan: MemoryPlan) -> MemoryAccess:
        """The memory that instructions use."""
        accesses: dict[tuple[str, int, int], bool] = {}
        used = [(id, False) for leaf in leaves for id in leaf.reads] + [
            (id, True) for leaf in leaves for id in leaf.writes
        ]
        for id, writes in used:
            if id in plan.placements:
                at = plan.placements[id]
                key = at.region, at.offset, at.places
                accesses[key] = accesses.get(key, False) or writes
        return cls(tuple((*key, writes) for key, writes in accesses.items()))

    def spots(self, micro_batch: int) -> Iterator[tuple[_Spot, bool]]:
        """The memory that an event uses in a micro-batch, and whether it is written."""
        for region, offset, places, writes in self.spans:
            yield (region, offset, micro_batch % places), writes


def events(
    host_syncs: Sequence[HostSync],
    ipus: Sequence[int],
    shared: Sequence[Sequence[bool]],
    *,
    loaded: set[int],
    taken: set[int],
) -> Iterator[Event]:
    """List the events in the order of a single thread; ``ipus`` has the IPU of each stage.

    ``shared``: for each piece of each stage, whether it is a collective; ``loaded`` and ``taken``: the stages to
    which the host writes and from which it reads.
    """

    def served(kind: EventKind, tasks: Tasks, stages: set[int]) -> Iterator[Event]:
        return (Event(HOST, kind, stage, micro_batch) for stage, micro_batch in tasks if stage in stages)

    for sync in host_syncs:
        yield from served(EventKind.GIVE, sync.given_before, loaded)
        yield from served(EventKind.GIVE, sync.given_beside, loaded)
        yield from served(EventKind.TAKE, sync.taken_beside, taken)
        for stage, micro_batch in sync.tasks:
            for piece, collective in enumerate(shared[stage]):
                yield Event(FABRIC if collective else ipus[stage], EventKind.WORK, stage, micro_batch, piece)
        yield from served(EventKind.TAKE, sync.taken_after, taken)


@dataclass
class _LastAccess:
    """The event that last wrote a buffer, and those that have read it since."""

    writer: int | None = None
    readers: set[int] = field(default_factory=set)

    def use(self, number: int, *, writes: bool) -> set[int]:
        """The events on which event ``number`` depends."""
        needed = set() if self.writer is None else {self.writer}
        if writes:
            needed |= self.readers
            self.writer, self.readers = number, set()
        else:
            self.readers.add(number)
        return needed - {number}


def dependencies_of(
    order: Sequence[Event],
    access: Callable[[Event], MemoryAccess],
    sync_partners: Mapping[int, set[int]],
    stages: Sequence[PipelineStage],
) -> Iterator[set[int]]:
    """For each event of ``order``, the indices of the earlier events of other actors on which it depends.

    ``sync_partners`` are the IPUs that wait while the host serves one.
    """
    working = [stage.ipus for stage in stages]
    last: dict[_Spot, _LastAccess] = {}
    worked: dict[int, int] = {}
    synced: dict[int, int] = {}
    for number, event in enumerate(order):
        needed: set[int] = set()
        for spot, writes in access(event).spots(event.micro_batch):
            needed |= last.setdefault(spot, _LastAccess()).use(number, writes=writes)
        if event.actor == HOST:
            waiting = sync_partners[stages[event.stage].ipu]
        else:
            waiting = working[event.stage] - {event.actor}
            needed |= {synced[ipu] for ipu in working[event.stage] if ipu in synced}
        needed |= {worked[ipu] for ipu in waiting if ipu in worked}
        synced |= dict.fromkeys(waiting, number)
        worked[event.actor] = number
        yield {earlier for earlier in needed if order[earlier].actor != event.actor}
