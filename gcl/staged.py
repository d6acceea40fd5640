"""staged: all-reduce of tensors that the other ranks cannot address, through the segments in cache-sized chunks.

The tensor is walked in rounds of one chunk per rank; chunk q of a round is combined by rank q:

    copy in    each rank copies the chunks that others combine into its slots (one of several sets, used in turn)
    meet
    combine    rank q combines chunk q from its own tensor and its peers' slots, into a slot for results and its own
    meet
    copy out   each rank copies the others' results; at once followed by the next round's copy in

Of two ranks with one replica each, the result takes the place of the peer's contribution: one loop writes both.

Chunks stay in the caches: memory is read once and written once. The sets are so many that a peer's first caches have
lost a set when it is written again: writing what another core holds is 4 times as slow (7 GB/s, not 30).
"""

from __future__ import annotations

from typing import Any

from gcl.copies import copy_bytes
from gcl.jit import bare, bare_part
from gcl.plan import (
    COUNT,
    GROUP_SIZE,
    ITEM,
    LEAVING,
    RANK,
    RANKS,
    REPLICAS,
    RESULT,
    SETS,
    STAGE,
    STEP,
    TABLES,
    TURN,
    X,
    meet,
    meet_again,
    met,
    tables,
)
from gcl.ready import DONE, WAITING
from gcl.reduction import reduce_range

__all__ = ["CHUNK", "staging", "staging_bytes"]

CHUNK = 65536  # bytes of one rank's part of a round
_FOOTPRINT = 4 << 20  # bytes of all sets: more than a core's own caches, less than its share of the common one


def staging_bytes(local: int, ranks: int, groups: int) -> int:
    """Room for one set at the start of a rank's segment: slots, and results."""
    return (local * ranks + groups) * CHUNK


def staging_sets(largest: int, segment_bytes: int) -> int:
    """How many sets of at most ``largest`` bytes are used in turn; two at least, even in a small segment."""
    return max(2, min(_FOOTPRINT, segment_bytes // 4) // largest)


@bare_part
def _locals_of(plan: Any, rank: int) -> int:
    owners = plan[TABLES + plan[RANKS] :][: plan[REPLICAS]]
    count = 0
    for replica in range(plan[REPLICAS]):
        count += owners[replica] == rank
    return count


@bare_part
def _set(plan: Any, rank: int, turn: int) -> Any:
    """Where the set that ``rank`` uses in round ``turn`` starts: the results, then the slots."""
    chunks = _locals_of(plan, rank) * plan[RANKS] + plan[REPLICAS] // plan[GROUP_SIZE]
    return plan[TABLES + rank] + (plan[TURN] + turn) % plan[SETS] * chunks * CHUNK


@bare_part
def _result(plan: Any, rank: int, turn: int, group: int) -> Any:
    """Where ``rank`` puts the chunk it combined for ``group``."""
    return _set(plan, rank, turn) + group * CHUNK


@bare_part
def _slot(plan: Any, rank: int, turn: int, local: int, chunk: int) -> Any:
    """Where ``rank`` puts what its replica ``local`` contributes to ``chunk``."""
    return _result(plan, rank, turn, plan[REPLICAS] // plan[GROUP_SIZE] + local * plan[RANKS] + chunk)


@bare_part
def _is_pair(plan: Any) -> Any:
    """Whether there are two replicas that are combined, each with a rank of its own."""
    return plan[RANKS] == 2 and plan[REPLICAS] == 2 and plan[GROUP_SIZE] == 2


@bare_part
def _part(plan: Any, call: Any, turn: int, chunk: int) -> Any:
    """First byte and length of ``chunk`` of round ``turn``: the last round shares what is left evenly."""
    ranks, nbytes = plan[RANKS], call[COUNT] * call[ITEM]
    first = turn * ranks * CHUNK
    left = min(ranks * CHUNK, nbytes - first)
    each = min(CHUNK, (left // ranks + 64) // 64 * 64)
    start = min(left, chunk * each)
    return first + start, min(each, left - start)


@bare_part
def _copy_in(plan: Any, call: Any, turn: int) -> None:
    nbytes = call[COUNT] * call[ITEM]
    for step in range(1, plan[RANKS]):
        chunk = (plan[RANK] + step) % plan[RANKS]
        start, length = _part(plan, call, turn, chunk)
        for local in range(_locals_of(plan, plan[RANK])):
            copy_bytes(_slot(plan, plan[RANK], turn, local, chunk), call[X] + local * nbytes + start, length)


@bare_part
def _copy_out(plan: Any, call: Any, turn: int) -> None:
    replicas, size, nbytes = plan[REPLICAS], plan[GROUP_SIZE], call[COUNT] * call[ITEM]
    owners, locals_, members, _, _ = tables(plan)
    for step in range(1, plan[RANKS]):
        chunk = (plan[RANK] + step) % plan[RANKS]
        start, length = _part(plan, call, turn, chunk)
        for m in range(replicas):
            if owners[members[m]] == plan[RANK]:
                to = call[RESULT] + locals_[members[m]] * nbytes + start
                pair = _is_pair(plan)
                frm = _slot(plan, plan[RANK], turn, 0, chunk) if pair else _result(plan, chunk, turn, m // size)
                copy_bytes(to, frm, length)


@bare_part
def _combine(plan: Any, call: Any, turn: int, recipe: Any, scratch: Any) -> None:
    replicas, size, rank, item = plan[REPLICAS], plan[GROUP_SIZE], plan[RANK], call[ITEM]
    owners, locals_, members, nodes, outs = tables(plan)
    start, length = _part(plan, call, turn, rank)
    nbytes = call[COUNT] * item
    for first in range(0, replicas, size):
        for i in range(size):
            replica = members[first + i]
            if owners[replica] == rank:
                nodes[i] = call[X] + locals_[replica] * nbytes + start
            else:
                nodes[i] = _slot(plan, owners[replica], turn, locals_[replica], rank)
        if _is_pair(plan):
            outs[rank], outs[1 - rank] = call[RESULT] + start, nodes[1 - rank]
            reduce_range(recipe, nodes, outs, 2, 0, length // item, scratch)
            return
        outs[0] = _result(plan, rank, turn, first // size)
        reduce_range(recipe, nodes, outs, 1, 0, length // item, scratch)
        for i in range(size):
            if owners[members[first + i]] == rank:
                copy_bytes(call[RESULT] + locals_[members[first + i]] * nbytes + start, outs[0], length)


@bare
def staging(plan: Any, call: Any, recipe: Any, scratch: Any) -> int:
    """Go on with an all-reduce that the ranks have entered; call again while it returns WAITING."""
    nbytes = call[COUNT] * call[ITEM]
    rounds = (nbytes + plan[RANKS] * CHUNK - 1) // (plan[RANKS] * CHUNK)
    while plan[STAGE] != LEAVING:
        step = plan[STEP]
        if step > 0 and not meet(plan):
            return WAITING
        turn = step // 2
        if step % 2 == 0:
            if turn > 0:
                _copy_out(plan, call, turn - 1)
            if turn < rounds:
                _copy_in(plan, call, turn)
        else:
            _combine(plan, call, turn, recipe, scratch)
        meet_again(plan)
        plan[STEP] = step + 1
        if step == 2 * rounds:
            plan[STEP], plan[STAGE], plan[TURN] = 0, LEAVING, plan[TURN] + rounds
    return DONE if met(plan) else WAITING
