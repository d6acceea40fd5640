"""local: a reduce-scatter with the operator LOCAL: keep the own fragment, send nothing.

                   exchanges   sent per replica     time
reduce-scatter         0              0              0
"""

from __future__ import annotations

from collections.abc import Iterator

from gcl.scheduling.methods.ring_stream import CLOCKWISE, RingTrack
from gcl.scheduling.program.step_program import Copy, Step


def reduce_scatter(track: RingTrack) -> Iterator[Step]:
    """Keep fragment i of the own tensor, i being the index in the group."""
    for block in track.blocks:
        stream = track.stream(CLOCKWISE, block)
        yield Copy(stream.input(0), stream.shard_out)
