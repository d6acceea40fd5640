"""clockwise_ring: every replica sends to the next replica of the ring, n - 1 times.

                   exchanges   sent per replica     time
reduce-scatter       n - 1     (n - 1)/n x S       (n - 1)/n x S/B
all-gather           n - 1     (n - 1)/n x S       (n - 1)/n x S/B
"""

from __future__ import annotations

from collections.abc import Iterator

from gcl.scheduling.methods.ring_stream import (
    CLOCKWISE,
    RingTrack,
    merge_streams,
    round_all_gather,
    round_reduce_scatter,
)
from gcl.scheduling.program.step_program import Step


def reduce_scatter(track: RingTrack) -> Iterator[Step]:
    """Send partial sums to the next position; a fragment starts one position after its owner and ends at its owner.

    Shard p adds up in the order p+1, p+2, ..., p-1, p of positions, each step being own (operator) received.
    Fragment sent by each replica (n = 4, Interleaved ring 0 2 3 1):

        replica       0  2  3  1
        clockwise to  2  3  1  0
        exchange 1    1  0  2  3
        exchange 2    3  1  0  2
        exchange 3    2  3  1  0
    """
    return merge_streams([track.stream(CLOCKWISE, block) for block in track.blocks], round_reduce_scatter)


def all_gather(track: RingTrack) -> Iterator[Step]:
    """Send the own shard to the next position, then forward each shard that arrives.

    Fragment sent by each replica (n = 4, Interleaved ring 0 2 3 1):

        replica       0  2  3  1
        clockwise to  2  3  1  0
        exchange 1    0  2  3  1
        exchange 2    1  0  2  3
        exchange 3    3  1  0  2
    """
    return merge_streams([track.stream(CLOCKWISE, block) for block in track.blocks], round_all_gather)
