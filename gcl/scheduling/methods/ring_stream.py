"""Ring stream: one piece of every fragment that travels round one ring in one direction.

A method is some streams at once: their transfers of the same number are merged into one exchange.

    RingTrack (groups, ring orders, fragment widths)
       |- block of IPU 0 --- stream clockwise, elements low to middle
       |                 \\-- stream anticlockwise, elements middle to high
       |- block of IPU 1 --- ...
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate

from gcl.core.groups import Group
from gcl.scheduling.program.step_program import INPUT, OUTPUT, Copy, CrossReplicaCopy, Exchange, Reduce, Slice, Step

__all__ = ["Generator", "RingStream", "RingTrack", "cut", "merge", "merged"]

CLOCKWISE, ANTICLOCKWISE = 1, -1


@dataclass(frozen=True)
class FragmentPart:
    """Elements ``low`` to ``high`` of every fragment: those on IPU ``ipu``."""

    ipu: int
    low: int
    high: int


@dataclass(frozen=True)
class RingTrack:
    """Where a method runs: a ring through each of ``group``'s groups, and what a fragment has on each IPU.

    ``orders``: the index in the group at each ring position; a second one for the quad-directional method.
    """

    group: Group
    orders: tuple[tuple[int, ...], ...]
    widths: tuple[int, ...]

    @property
    def blocks(self) -> list[FragmentPart]:
        """The elements of a fragment per IPU, without the IPUs that have none."""
        ends = list(accumulate(self.widths))
        blocks = [
            FragmentPart(ipu, end - width, end)
            for ipu, (width, end) in enumerate(zip(self.widths, ends, strict=True))
        ]
        return [block for block in blocks if block.high > block.low]

    def stream(self, direction: int, block: FragmentPart, order: int = 0) -> RingStream:
        """``block`` on its way round ring ``order``."""
        return RingStream(self.group, self.orders[order], direction, block, mirrored=order > 0)


@dataclass(frozen=True)
class RingStream:
    """``block`` of every fragment, sent to the next position in ``direction`` (+1 clockwise, -1 anticlockwise).

    Offsets count positions in that direction: ``input(-1)`` is the fragment of the position behind.
    """

    group: Group
    order: tuple[int, ...]
    direction: int
    block: FragmentPart
    mirrored: bool = False

    @property
    def length(self) -> int:
        return len(self.order)

    @property
    def name(self) -> str:
        turn = "clockwise" if self.direction == CLOCKWISE else "anticlockwise"
        return f"{turn} mirrored" if self.mirrored else turn

    def input(self, offset: int) -> Slice:
        """The own contribution to the fragment of the position ``offset`` further on."""
        return self._slice(INPUT, self.owners(offset))

    def gathered(self, offset: int) -> Slice:
        """The place in the output of the fragment of the position ``offset`` further on."""
        return self._slice(OUTPUT, self.owners(offset))

    @property
    def shard_in(self) -> Slice:
        """The own shard as input of an all-gather."""
        return self._slice(INPUT, self._zeros)

    @property
    def shard_out(self) -> Slice:
        """The own shard as output of a reduce-scatter."""
        return self._slice(OUTPUT, self._zeros)

    @property
    def travelling(self) -> Slice:
        """The partial result that is sent next."""
        return self._slice(self.name, self._zeros)

    @property
    def received(self) -> Slice:
        """What has just arrived."""
        return self._slice(f"{self.name} received", self._zeros)

    def send(self, source: Slice, target: Slice, *, offset: int, redundant: bool = False) -> CrossReplicaCopy:
        """Send the fragment of the position ``offset`` further on to the next position."""
        return CrossReplicaCopy(source, target, self._to, self.owners(offset), self.name, self.block.ipu, redundant)

    def owners(self, offset: int) -> tuple[int, ...]:
        """Per replica, the group index at the position ``offset`` further on."""
        step = self.direction * offset
        return tuple(self.order[(place + step) % self.length] for place in self._positions)

    @cached_property
    def _to(self) -> tuple[int, ...]:
        """Per replica, the one at the next position."""
        members = self.group.all_members()
        return tuple(members[self.group.of(replica)][index] for replica, index in enumerate(self.owners(1)))

    @cached_property
    def _positions(self) -> list[int]:
        places = {index: place for place, index in enumerate(self.order)}
        return [places[self.group.index(replica)] for replica in range(self.group.replicas)]

    @cached_property
    def _zeros(self) -> tuple[int, ...]:
        return (0,) * self.group.replicas

    def _slice(self, buffer: str, fragment: tuple[int, ...]) -> Slice:
        return Slice(buffer, fragment, self.block.low, self.block.high)


#: What a method is: the steps of a reduce-scatter, or of an all-gather, on a track.
Generator = Callable[[RingTrack], Iterator[Step]]


def round_reduce_scatter(stream: RingStream) -> Iterator[Step]:
    """Send partial sums n - 1 times; each replica adds its own part to what arrives, the last one its shard's."""
    if stream.length == 1:
        yield Copy(stream.input(0), stream.shard_out)
        return
    sent = stream.input(-1)
    for t in range(1, stream.length):
        yield Exchange((stream.send(sent, stream.received, offset=-t),))
        target = stream.shard_out if t == stream.length - 1 else stream.travelling
        yield Reduce(stream.input(-1 - t), stream.received, target)
        sent = target


def round_all_gather(stream: RingStream) -> Iterator[Step]:
    """Send the own shard, then n - 2 times what has just arrived."""
    yield Copy(stream.shard_in, stream.gathered(0))
    for t in range(stream.length - 1):
        yield Exchange((stream.send(stream.gathered(-t), stream.gathered(-t - 1), offset=-t),))


def cut(block: FragmentPart, sizes: Iterable[int]) -> list[FragmentPart]:
    """``block`` in consecutive pieces of ``sizes``."""
    pieces, low = [], block.low
    for size in sizes:
        pieces.append(FragmentPart(block.ipu, low, low + size))
        low += size
    return pieces


def merged(streams: Iterable[RingStream], one: Callable[[RingStream], Iterator[Step]]) -> Iterator[Step]:
    """``one`` for all ``streams`` that carry anything, in the same exchanges."""
    return merge([one(stream) for stream in streams if stream.block.high > stream.block.low])


def merge(programs: list[Iterator[Step]]) -> Iterator[Step]:
    """Run programs side by side: exchange t of all of them becomes one exchange."""
    while programs:
        copies: list[CrossReplicaCopy] = []
        running = []
        for program in programs:
            for step in program:
                if isinstance(step, Exchange):
                    copies += step.copies
                    running.append(program)
                    break
                yield step
        if copies:
            yield Exchange(tuple(copies))
        programs = running
