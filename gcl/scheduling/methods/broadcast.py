"""broadcast: every replica sends directly to every other replica, all in one exchange; there is no ring.

                   exchanges   sent per replica     time
reduce-scatter         1       (n - 1)/n x S       limited by the busiest link of the fabric
all-gather             1       (n - 1)/n x S       limited by the busiest link of the fabric
broadcast              1       (n - 1) x S (root)  limited by the links of the root

With one sync instead of n - 1 it is fast for small tensors. It is slow for large ones, because its copies, unlike
those of all other methods, are not between neighbours: most of them pass several links.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from gcl.core.groups import Group
from gcl.scheduling.methods.ring_stream import FragmentPart, RingTrack, indices_ahead, merge, replicas_at
from gcl.scheduling.program.step_program import INPUT, OUTPUT, Copy, CrossReplicaCopy, Exchange, Reduce, Slice, Step

_RECEIVED, _SUM = "received", "sum"


def reduce_scatter(track: RingTrack) -> Iterator[Step]:
    """Send every fragment to its owner i, which adds them in the order of clockwise_ring: i+1, i+2, ..., i-1, i.

    Fragment sent by each replica (n = 4):

        replica           0  1  2  3
        exchange 1 to +1  1  2  3  0
        exchange 1 to +2  2  3  0  1
        exchange 1 to +3  3  0  1  2
    """
    return merge([_reduce_block(track.group, block) for block in track.blocks])


def all_gather(track: RingTrack) -> Iterator[Step]:
    """Send the own shard to every other member.

    Fragment sent by each replica (n = 4):

        replica           0  1  2  3
        exchange 1 to +1  0  1  2  3
        exchange 1 to +2  0  1  2  3
        exchange 1 to +3  0  1  2  3
    """
    return merge([_gather_block(track.group, block) for block in track.blocks])


def broadcast(track: RingTrack, root: int) -> Iterator[Step]:
    """Send the tensor of the member with index ``root`` of each group to its other members.

    Fragment sent by each replica (n = 4, root 1; - sends nothing):

        replica           0  1  2  3
        exchange 1 to +1  -  1  -  -
        exchange 1 to +2  -  1  -  -
        exchange 1 to +3  -  1  -  -
    """
    return merge([_send_block(track.group, block, root) for block in track.blocks])


def _reduce_block(group: Group, block: FragmentPart) -> Iterator[Step]:
    part = partial(_part, group, block)
    own = part(INPUT, 0)
    if group.size == 1:
        yield Copy(own, part(OUTPUT, None))
        return
    yield _to_others(group, block, lambda s: (part(INPUT, s), part(_RECEIVED, -s), part(INPUT, s).fragment))
    total = part(_RECEIVED, 1)
    for s in range(2, group.size):
        yield Reduce(part(_RECEIVED, s), total, part(_SUM, None))
        total = part(_SUM, None)
    yield Reduce(own, total, part(OUTPUT, None))


def _gather_block(group: Group, block: FragmentPart) -> Iterator[Step]:
    part = partial(_part, group, block)
    shard = part(INPUT, None)
    yield Copy(shard, part(OUTPUT, 0))
    yield _to_others(group, block, lambda s: (shard, part(OUTPUT, -s), part(OUTPUT, 0).fragment))


def _send_block(group: Group, block: FragmentPart, root: int) -> Iterator[Step]:
    part = partial(_part, group, block)
    tensor, result = part(INPUT, None), part(OUTPUT, None)
    yield Copy(tensor, result)
    yield _to_others(group, block, lambda _: (tensor, result, part(OUTPUT, 0).fragment), only=root)


def _part(group: Group, block: FragmentPart, buffer: str, offset: int | None) -> Slice:
    """The block in the fragment of the member ``offset`` ahead (None: in a buffer with one fragment)."""
    fragments = (0,) * group.replicas if offset is None else indices_ahead(group, offset)
    return Slice(buffer, fragments, block.low, block.high)


def _to_others(
    group: Group,
    block: FragmentPart,
    sent: Callable[[int], tuple[Slice, Slice, tuple[int, ...]]],
    only: int | None = None,
) -> Exchange:
    """Send to the members s = 1, 2, ... ahead; ``sent(s)``: source, target, and the fragments that the copy carries.

    With ``only`` set, only the member with that index sends.
    """
    copies = []
    for s in range(1, group.size):
        ahead = replicas_at(group, indices_ahead(group, s))
        to = (there if only in (None, group.index(here)) else here for here, there in enumerate(ahead))
        source, target, carries = sent(s)
        copies.append(CrossReplicaCopy(source, target, tuple(to), carries, f"+{s}", block.ipu))
    return Exchange(tuple(copies))
