"""quad_directional_ring: a quarter of every fragment goes in each direction round each of the two serpent rings.

                   exchanges   sent per replica                       time
reduce-scatter       n - 1     (n - 1)/n x S, a quarter each way     (n - 1)/(4n) x S/B
all-gather           n - 1     (n - 1)/n x S, a quarter each way     (n - 1)/(4n) x S/B

Barley twist only: there the four streams use different links (a rung is shared by two, but has twice the links).
"""

from __future__ import annotations

from collections.abc import Iterator

from gcl.scheduling.methods.ring_stream import (
    ANTICLOCKWISE,
    CLOCKWISE,
    RingStream,
    RingTrack,
    cut,
    merge_streams,
    round_all_gather,
    round_reduce_scatter,
)
from gcl.scheduling.program.step_program import Step

#: (direction, index of the ring order) of each quarter.
_WAYS = ((CLOCKWISE, 0), (CLOCKWISE, 1), (ANTICLOCKWISE, 0), (ANTICLOCKWISE, 1))


def reduce_scatter(track: RingTrack) -> Iterator[Step]:
    """Reduce each quarter of the fragments round its own ring.

    Fragment sent by each replica, in the order of the ways (n = 4, Serpent 0 1 3 2 and its mirror 1 0 2 3):

        replica                          0        1        3        2
        clockwise to                     1        3        2        0
        clockwise mirrored to            2        0        1        3
        anticlockwise to                 2        0        1        3
        anticlockwise mirrored to        1        3        2        0
        exchange 1                 2/1/1/2  0/3/3/0  1/2/2/1  3/0/0/3
        exchange 2                 3/3/3/3  2/2/2/2  0/0/0/0  1/1/1/1
        exchange 3                 1/2/2/1  3/0/0/3  2/1/1/2  0/3/3/0
    """
    return merge_streams(_quarters(track), round_reduce_scatter)


def all_gather(track: RingTrack) -> Iterator[Step]:
    """Gather each quarter of the shards round its own ring.

    Fragment sent by each replica, in the order of the ways (n = 4, Serpent 0 1 3 2 and its mirror 1 0 2 3):

        replica                          0        1        3        2
        clockwise to                     1        3        2        0
        clockwise mirrored to            2        0        1        3
        anticlockwise to                 2        0        1        3
        anticlockwise mirrored to        1        3        2        0
        exchange 1                 0/0/0/0  1/1/1/1  3/3/3/3  2/2/2/2
        exchange 2                 2/1/1/2  0/3/3/0  1/2/2/1  3/0/0/3
        exchange 3                 3/3/3/3  2/2/2/2  0/0/0/0  1/1/1/1
    """
    return merge_streams(_quarters(track), round_all_gather)


def _quarters(track: RingTrack) -> list[RingStream]:
    streams = []
    for block in track.blocks:
        pieces = cut(block, quarter_sizes(block.high - block.low))
        streams += [track.stream(way, piece, order) for piece, (way, order) in zip(pieces, _WAYS, strict=True)]
    return streams


def quarter_sizes(width: int) -> list[int]:
    """Cut ``width`` into four sizes: each is the ceiling of the rest over the number of pieces left."""
    sizes = []
    for left in (4, 3, 2, 1):
        size = -(-width // left)
        sizes.append(size)
        width -= size
    return sizes
