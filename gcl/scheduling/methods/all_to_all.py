"""all_to_all: member i's slice j becomes member j's slice i.

               exchanges   sent per replica     time
all-to-all       n - 1     (n - 1)/n x S       limited by the busiest link of each exchange

The partners of exchange s are s + 1 apart in the group, so most copies are not between neighbours.
"""

from __future__ import annotations

from collections.abc import Iterator

from gcl.core.groups import Group
from gcl.scheduling.methods.ring_stream import FragmentPart, RingTrack, indices_ahead, merge, replicas_at
from gcl.scheduling.program.step_program import INPUT, OUTPUT, Copy, CrossReplicaCopy, Exchange, Slice, Step


def all_to_all(track: RingTrack) -> Iterator[Step]:
    """In exchange s (from 0) member r sends slice r+s+1 to member r+s+1, and receives its slice r-s-1. Slice r stays.

    Slice sent by each replica, which is also the member it goes to (n = 4):

        replica     0  1  2  3
        exchange 1  1  2  3  0
        exchange 2  2  3  0  1
        exchange 3  3  0  1  2
    """
    return merge([_block(track.group, block) for block in track.blocks])


def _block(group: Group, block: FragmentPart) -> Iterator[Step]:
    own = indices_ahead(group, 0)
    yield Copy(Slice(INPUT, own, block.low, block.high), Slice(OUTPUT, own, block.low, block.high))
    for s in range(1, group.size):
        ahead = indices_ahead(group, s)
        source = Slice(INPUT, ahead, block.low, block.high)
        target = Slice(OUTPUT, indices_ahead(group, -s), block.low, block.high)
        yield Exchange((CrossReplicaCopy(source, target, replicas_at(group, ahead), ahead, "slice", block.ipu),))
