"""Zero-copy collectives: every rank reads and writes the tensors of all ranks in place.

    meet     every rank has announced its call, and its tensors are complete
    work     each rank combines its own slice of all ranks' tensors directly into all ranks' results
    meet     every result is complete

Where a tensor of any rank lies outside its segment, so that the others cannot address it, ``chunked`` completes the
all-reduce.
"""

from __future__ import annotations

from typing import Any

from gcl.core.prepared_call import DONE, MISMATCH, STAGED, WAITING
from gcl.core.request import Call, CollectiveCode
from gcl.kernels.copies import copy_part, zero_bytes
from gcl.kernels.jit import bare, bare_part
from gcl.reduce.reduction import reduce_range
from gcl.transport.rendezvous.rank_table import (
    CallStage,
    Table,
    agreed,
    any_private,
    enter,
    input_address,
    meet_again,
    met,
    output_address,
    slice_of,
    tables,
)


@bare_part
def _reduce(table: Any, call: Any, recipe: Any, scratch: Any) -> None:
    replicas, size, rank = table[Table.REPLICAS], table[Table.GROUP_SIZE], table[Table.RANK]
    owners, locals_, members, nodes, outs = tables(table)
    count, item, full = (call[Call.COUNT], call[Call.ITEMSIZE], call[Call.COLLECTIVE] == CollectiveCode.ALL_REDUCE)
    fragment = (count + size - 1) // size
    for first in range(0, replicas, size):
        for i in range(size):
            nodes[i] = input_address(table, members[first + i], count * item)
        for i in range(1 if full else size):
            replica, before = members[first + i], i * fragment
            if full:
                start, stop = slice_of(count, rank, table[Table.RANKS], item)
                for j in range(size):
                    outs[j] = output_address(table, members[first + j], count * item)
            elif owners[replica] == rank:
                start, stop = min(count, before), min(count, before + fragment)
                outs[0] = call[Call.OUTPUT] + (locals_[replica] * fragment - before) * item
                zero_bytes(outs[0] + max(stop, before) * item, (before + fragment - max(stop, before)) * item)
            else:
                continue
            reduce_range(recipe, nodes, outs, size if full else 1, start, stop, scratch)


@bare_part
def _copy(table: Any, call: Any) -> None:
    replicas, size = table[Table.REPLICAS], table[Table.GROUP_SIZE]
    owners, locals_, members, _, _ = tables(table)
    nbytes = call[Call.COUNT] * call[Call.ITEMSIZE]
    for m in range(replicas):
        replica, first = members[m], m // size * size
        if owners[replica] != table[Table.RANK]:
            continue
        out = call[Call.OUTPUT] + locals_[replica] * nbytes
        if call[Call.COLLECTIVE] == CollectiveCode.BROADCAST:
            copy_part(out, input_address(table, members[first + call[Call.ROOT]], nbytes), nbytes, nbytes)
        elif call[Call.COLLECTIVE] == CollectiveCode.ALL_GATHER:
            out += locals_[replica] * nbytes * (size - 1)
            for i in range(size):
                copy_part(out + i * nbytes, input_address(table, members[first + i], nbytes), nbytes, size * nbytes)
        elif call[Call.COLLECTIVE] == CollectiveCode.SHARED_ALL_GATHER:
            copy_part(call[Call.OUTPUT] + m * nbytes, input_address(table, replica, nbytes), nbytes, size * nbytes)
        elif call[Call.COLLECTIVE] == CollectiveCode.ALL_TO_ALL:
            part = nbytes // size
            for i in range(size):
                source = input_address(table, members[first + i], nbytes) + (m - first) * part
                copy_part(out + i * part, source, part, nbytes)


@bare
def zero_copy_reduce(table: Any, call: Any, recipe: Any, scratch: Any) -> int:
    """Run one all-reduce or reduce-scatter; call again with the same arguments while it returns WAITING."""
    if not enter(table, call):
        return WAITING
    if table[Table.STAGE] == CallStage.INSIDE:
        if not agreed(table):
            return MISMATCH
        if any_private(table):
            return STAGED
        _reduce(table, call, recipe, scratch)
        meet_again(table)
        table[Table.STAGE] = CallStage.LEAVING
    return DONE if met(table) else WAITING


@bare
def zero_copy_copy(table: Any, call: Any) -> int:
    """Run one all-gather, broadcast, all-to-all or barrier; call again while it returns WAITING."""
    if not enter(table, call):
        return WAITING
    if table[Table.STAGE] == CallStage.INSIDE:
        if not agreed(table):
            return MISMATCH
        _copy(table, call)
        meet_again(table)
        table[Table.STAGE] = CallStage.LEAVING
    return DONE if met(table) else WAITING
