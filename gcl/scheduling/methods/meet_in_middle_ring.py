"""meet_in_middle_ring: every fragment reaches its owner from both directions at once, in half the exchanges.

                   exchanges        sent per replica             time
reduce-scatter     floor(n/2)       2 floor(n/2)/n x S          1/2 x S/B for even n
all-gather         floor(n/2)       2 floor(n/2)/n x S          1/2 x S/B for even n

With even n, one of the two directions needs one hop less; its spare transfer is sent but not used, so that every
exchange has one transfer in each direction. With odd n, which the GCL reference does not describe, every transfer is
used. Rings of 1 and 2 run as clockwise_ring.
"""

from __future__ import annotations

from collections.abc import Iterator

from gcl.scheduling.methods.ring_stream import (
    ANTICLOCKWISE,
    CLOCKWISE,
    FragmentPart,
    RingTrack,
    merge,
    round_all_gather,
    round_reduce_scatter,
)
from gcl.scheduling.program.step_program import Copy, Exchange, Reduce, Step


def reduce_scatter(track: RingTrack) -> Iterator[Step]:
    """Reduce each fragment along both halves of the ring; its owner combines the two results.

    h = floor(n/2). Shard p is op(op(p, ... p-h+1, p-h), p+1 ... p+n-1-h): the clockwise half, which ends with the
    own contribution, then the anticlockwise half. Fragment sent by each replica, clockwise/anticlockwise, unused
    transfers in brackets (n = 4, Interleaved ring 0 2 3 1):

        replica               0      2      3      1
        clockwise to          2      3      1      0
        anticlockwise to      1      0      2      3
        exchange 1        3/(1)  1/(0)  0/(2)  2/(3)
        exchange 2          2/1    3/0    1/2    0/3
    """
    return merge([_reduce_block(track, block) for block in track.blocks])


def all_gather(track: RingTrack) -> Iterator[Step]:
    """Send every shard along both halves of the ring.

    Fragment sent by each replica, clockwise/anticlockwise, unused transfers in brackets (n = 4, Interleaved ring
    0 2 3 1):

        replica               0      2      3      1
        clockwise to          2      3      1      0
        anticlockwise to      1      0      2      3
        exchange 1          0/0    2/2    3/3    1/1
        exchange 2        1/(2)  0/(3)  2/(1)  3/(0)
    """
    return merge([_gather_block(track, block) for block in track.blocks])


def _reduce_block(track: RingTrack, block: FragmentPart) -> Iterator[Step]:
    """The steps of the reference: c moves clockwise, a anticlockwise; offsets follow each stream."""
    clockwise, anticlockwise = track.stream(CLOCKWISE, block), track.stream(ANTICLOCKWISE, block)
    n = clockwise.length
    if n <= 2:
        yield from round_reduce_scatter(clockwise)
        return
    half = n // 2
    useful = n - 1 - half
    c, a, behind = clockwise.input(half), anticlockwise.input(useful), useful
    for t in range(1, half + 1):
        redundant = t <= half - useful
        yield Exchange(
            (
                clockwise.send(c, clockwise.received, offset=half - t + 1),
                anticlockwise.send(a, anticlockwise.received, offset=behind, redundant=redundant),
            )
        )
        c = clockwise.travelling
        yield Reduce(clockwise.input(half - t), clockwise.received, c)
        if redundant:
            continue
        behind -= 1
        if t == half:
            yield Reduce(c, anticlockwise.received, clockwise.shard_out)
        else:
            a = anticlockwise.travelling
            yield Reduce(anticlockwise.input(behind), anticlockwise.received, a)


def _gather_block(track: RingTrack, block: FragmentPart) -> Iterator[Step]:
    clockwise, anticlockwise = track.stream(CLOCKWISE, block), track.stream(ANTICLOCKWISE, block)
    n = clockwise.length
    if n <= 2:
        yield from round_all_gather(clockwise)
        return
    half = n // 2
    useful = n - 1 - half
    yield Copy(clockwise.shard_in, clockwise.gathered(0))
    for t in range(half):
        redundant = t >= useful
        target = anticlockwise.received if redundant else anticlockwise.gathered(-t - 1)
        yield Exchange(
            (
                clockwise.send(clockwise.gathered(-t), clockwise.gathered(-t - 1), offset=-t),
                anticlockwise.send(anticlockwise.gathered(-t), target, offset=-t, redundant=redundant),
            )
        )
