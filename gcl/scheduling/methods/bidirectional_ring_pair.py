"""bidirectional_ring_pair: half of every fragment goes clockwise, the rest anticlockwise, in the same exchanges.

                   exchanges   sent per replica                            time
reduce-scatter       n - 1     (n - 1)/n x S, half of it each way         (n - 1)/(2n) x S/B
all-gather           n - 1     (n - 1)/n x S, half of it each way         (n - 1)/(2n) x S/B
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


def reduce_scatter(track: RingTrack) -> Iterator[Step]:
    """Reduce the first floor(w/2) elements of each fragment by clockwise_ring, the others by anticlockwise_ring.

    Fragment sent by each replica, clockwise/anticlockwise (n = 4, Interleaved ring 0 2 3 1):

        replica             0    2    3    1
        clockwise to        2    3    1    0
        anticlockwise to    1    0    2    3
        exchange 1        1/2  0/3  2/1  3/0
        exchange 2        3/3  1/1  0/0  2/2
        exchange 3        2/1  3/0  1/2  0/3
    """
    return merge_streams(_halves(track), round_reduce_scatter)


def all_gather(track: RingTrack) -> Iterator[Step]:
    """Gather the first floor(w/2) elements of each shard by clockwise_ring, the others by anticlockwise_ring.

    Fragment sent by each replica, clockwise/anticlockwise (n = 4, Interleaved ring 0 2 3 1):

        replica             0    2    3    1
        clockwise to        2    3    1    0
        anticlockwise to    1    0    2    3
        exchange 1        0/0  2/2  3/3  1/1
        exchange 2        1/2  0/3  2/1  3/0
        exchange 3        3/3  1/1  0/0  2/2
    """
    return merge_streams(_halves(track), round_all_gather)


def _halves(track: RingTrack) -> list[RingStream]:
    streams = []
    for block in track.blocks:
        width = block.high - block.low
        first, rest = cut(block, (width // 2, width - width // 2))
        streams += [track.stream(CLOCKWISE, first), track.stream(ANTICLOCKWISE, rest)]
    return streams
