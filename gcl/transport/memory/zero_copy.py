"""shared: collectives over memory that all ranks can address, without a copy.

    meet     every rank has announced its call, and its tensors are complete
    work     each rank combines its own slice, straight out of everyone's tensors, into everyone's results
    meet     every result is complete

Where any rank's tensor is an array of its own, which the others cannot address, ``chunked`` does the work.
"""

from __future__ import annotations

from typing import Any

from gcl.core.prepared_call import DONE, MISMATCH, STAGED, WAITING
from gcl.core.request import COLLECTIVE_CODES, SHARED_ALL_GATHER
from gcl.kernels.copies import copy_part, zero_bytes
from gcl.kernels.jit import bare, bare_part
from gcl.reduce.reduction import reduce_range
from gcl.transport.rendezvous.rank_table import (
    COUNT,
    GROUP_SIZE,
    INSIDE,
    ITEM,
    KIND,
    LEAVING,
    RANK,
    RANKS,
    REPLICAS,
    RESULT,
    ROOT,
    STAGE,
    address,
    agreed,
    any_private,
    enter,
    meet_again,
    met,
    slice_of,
    tables,
)

__all__ = ["copying", "reducing"]

_, _ALL_REDUCE, _, _ALL_GATHER, _BROADCAST, _ALL_TO_ALL = COLLECTIVE_CODES.values()


@bare_part
def _reduce(plan: Any, call: Any, recipe: Any, scratch: Any) -> None:
    replicas, size, rank = plan[REPLICAS], plan[GROUP_SIZE], plan[RANK]
    owners, locals_, members, nodes, outs = tables(plan)
    count, item, whole = call[COUNT], call[ITEM], call[KIND] == _ALL_REDUCE
    fragment = (count + size - 1) // size
    for first in range(0, replicas, size):
        for i in range(size):
            nodes[i] = address(plan, members[first + i], 1, count * item)
        for i in range(1 if whole else size):
            replica, before = members[first + i], i * fragment
            if whole:
                start, stop = slice_of(count, rank, plan[RANKS], item)
                for j in range(size):
                    outs[j] = address(plan, members[first + j], 2, count * item)
            elif owners[replica] == rank:
                start, stop = min(count, before), min(count, before + fragment)
                outs[0] = call[RESULT] + (locals_[replica] * fragment - before) * item
                zero_bytes(outs[0] + max(stop, before) * item, (before + fragment - max(stop, before)) * item)
            else:
                continue
            reduce_range(recipe, nodes, outs, size if whole else 1, start, stop, scratch)


@bare_part
def _copy(plan: Any, call: Any) -> None:
    replicas, size = plan[REPLICAS], plan[GROUP_SIZE]
    owners, locals_, members, _, _ = tables(plan)
    nbytes = call[COUNT] * call[ITEM]
    for m in range(replicas):
        replica, first = members[m], m // size * size
        if owners[replica] != plan[RANK]:
            continue
        out = call[RESULT] + locals_[replica] * nbytes
        if call[KIND] == _BROADCAST:
            copy_part(out, address(plan, members[first + call[ROOT]], 1, nbytes), nbytes, nbytes)
        elif call[KIND] == _ALL_GATHER:
            out += locals_[replica] * nbytes * (size - 1)
            for i in range(size):
                copy_part(out + i * nbytes, address(plan, members[first + i], 1, nbytes), nbytes, size * nbytes)
        elif call[KIND] == SHARED_ALL_GATHER:
            copy_part(call[RESULT] + m * nbytes, address(plan, replica, 1, nbytes), nbytes, size * nbytes)
        elif call[KIND] == _ALL_TO_ALL:
            part = nbytes // size
            for i in range(size):
                source = address(plan, members[first + i], 1, nbytes) + (m - first) * part
                copy_part(out + i * part, source, part, nbytes)


@bare
def reducing(plan: Any, call: Any, recipe: Any, scratch: Any) -> int:
    """Run one all-reduce or reduce-scatter; call again with the same arguments while it returns WAITING."""
    if not enter(plan, call):
        return WAITING
    if plan[STAGE] == INSIDE:
        if not agreed(plan):
            return MISMATCH
        if any_private(plan):
            return STAGED
        _reduce(plan, call, recipe, scratch)
        meet_again(plan)
        plan[STAGE] = LEAVING
    return DONE if met(plan) else WAITING


@bare
def copying(plan: Any, call: Any) -> int:
    """Run one all-gather, broadcast, all-to-all or barrier; call again while it returns WAITING."""
    if not enter(plan, call):
        return WAITING
    if plan[STAGE] == INSIDE:
        if not agreed(plan):
            return MISMATCH
        _copy(plan, call)
        meet_again(plan)
        plan[STAGE] = LEAVING
    return DONE if met(plan) else WAITING
