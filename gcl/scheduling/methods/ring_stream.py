"""Ring stream: one piece of every fragment, sent round one ring in one direction.

A method consists of parallel streams: the t-th transfers of all streams are merged into one exchange.

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

CLOCKWISE, ANTICLOCKWISE = 1, -1


@dataclass(frozen=True)
class FragmentPart:
    """Elements ``low`` to ``high`` of every fragment: those on IPU ``ipu``."""

    ipu: int
    low: int
    high: int


@dataclass(frozen=True)
class RingTrack:
    """The track that a method runs on: a ring through every group of ``group``, and ``widths`` of a fragment per IPU.

    ``orders``: the index in the group at each ring position; the quad-directional method has a second order.
    """

    group: Group
    orders: tuple[tuple[int, ...], ...]
    widths: tuple[int, ...]

    @property
    def blocks(self) -> list[FragmentPart]:
        """The part of a fragment on each IPU, without IPUs that have none."""
        ends = list(accumulate(self.widths))
        blocks = [
            FragmentPart(ipu, end - width, end)
            for ipu, (width, end) in enumerate(zip(self.widths, ends, strict=True))
        ]
        return [block for block in blocks if block.high > block.low]

    def stream(self, direction: int, block: FragmentPart, order: int = 0) -> RingStream:
        """The stream of ``block`` round the ring with order number ``order``."""
        return RingStream(self.group, self.orders[order], direction, block, mirrored=order > 0)


@dataclass(frozen=True)
class RingStream:
    """Part ``block`` of every fragment, sent to the next position in ``direction`` (+1 clockwise, -1 anticlockwise).

    Offsets count positions in that direction: ``input(-1)`` belongs to the fragment of the previous position.
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
        """The replica's contribution to the fragment of the position ``offset`` ahead."""
        return self._slice(INPUT, self.owners(offset))

    def gathered(self, offset: int) -> Slice:
        """The part of the output that holds the fragment of the position ``offset`` ahead."""
        return self._slice(OUTPUT, self.owners(offset))

    @property
    def shard_in(self) -> Slice:
        """The replica's shard, the input of an all-gather."""
        return self._slice(INPUT, self._zeros)

    @property
    def shard_out(self) -> Slice:
        """The replica's shard, the output of a reduce-scatter."""
        return self._slice(OUTPUT, self._zeros)

    @property
    def travelling(self) -> Slice:
        """The buffer of the partial result that is sent next."""
        return self._slice(self.name, self._zeros)

    @property
    def received(self) -> Slice:
        """The buffer of what arrived last."""
        return self._slice(f"{self.name} received", self._zeros)

    def send(self, source: Slice, target: Slice, *, offset: int, redundant: bool = False) -> CrossReplicaCopy:
        """Send the fragment of the position ``offset`` ahead to the next position."""
        return CrossReplicaCopy(source, target, self._to, self.owners(offset), self.name, self.block.ipu, redundant)

    def owners(self, offset: int) -> tuple[int, ...]:
        """Per replica, the group index at the position ``offset`` ahead of it."""
        step = self.direction * offset
        return tuple(self.order[(position + step) % self.length] for position in self._positions)

    @cached_property
    def _to(self) -> tuple[int, ...]:
        """Per replica, the replica at the next position."""
        return replicas_at(self.group, self.owners(1))

    @cached_property
    def _positions(self) -> list[int]:
        positions = {index: position for position, index in enumerate(self.order)}
        return [positions[self.group.index(replica)] for replica in range(self.group.replicas)]

    @cached_property
    def _zeros(self) -> tuple[int, ...]:
        return (0,) * self.group.replicas

    def _slice(self, buffer: str, fragment: tuple[int, ...]) -> Slice:
        return Slice(buffer, fragment, self.block.low, self.block.high)


def indices_ahead(group: Group, offset: int) -> tuple[int, ...]:
    """Per replica, the index in its group of the member ``offset`` ahead of it."""
    return tuple((group.index(replica) + offset) % group.size for replica in range(group.replicas))


def replicas_at(group: Group, indices: Iterable[int]) -> tuple[int, ...]:
    """Per replica, the member of its group with the index that ``indices`` has for it."""
    members = group.all_members()
    return tuple(members[group.of(replica)][index] for replica, index in enumerate(indices))


#: Makes the steps of a reduce-scatter, or of an all-gather, on a track.
Generator = Callable[[RingTrack], Iterator[Step]]


def round_reduce_scatter(stream: RingStream) -> Iterator[Step]:
    """Send partial sums n - 1 times; each replica adds its contribution, the last one to its own shard."""
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
    """Send the replica's own shard, then n - 2 times the shard that arrived last."""
    yield Copy(stream.shard_in, stream.gathered(0))
    for t in range(stream.length - 1):
        yield Exchange((stream.send(stream.gathered(-t), stream.gathered(-t - 1), offset=-t),))


def cut(block: FragmentPart, sizes: Iterable[int]) -> list[FragmentPart]:
    """Cut ``block`` into consecutive pieces of ``sizes`` elements."""
    pieces, low = [], block.low
    for size in sizes:
        pieces.append(FragmentPart(block.ipu, low, low + size))
        low += size
    return pieces


def merge_streams(streams: Iterable[RingStream], generate: Callable[[RingStream], Iterator[Step]]) -> Iterator[Step]:
    """The steps that ``generate`` makes for each non-empty stream, merged into common exchanges."""
    return merge([generate(stream) for stream in streams if stream.block.high > stream.block.low])


def merge(programs: list[Iterator[Step]]) -> Iterator[Step]:
    """Run ``programs`` in parallel: their t-th exchanges become one exchange."""
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
