"""Chunked all-reduce: reduces tensors outside the shared segments by staging cache-sized chunks in the segments.

The tensor is processed in rounds of one chunk per rank; chunk q of a round is combined by rank q:

    copy in    each rank copies the chunks that other ranks combine into its slots (one of several sets, used in turn)
    combine    rank q combines chunk q of its own tensor and of its peers' slots, into its own tensor and one slot
    copy out   each rank copies the results of the other ranks

Three rounds overlap, so that each round needs only one meeting:

    step          0      1      2      3      4
    copy out                    0      1      2
    copy in       0      1      2
    combine              0      1      2
    meet          *      *      *      *      *

Chunks stay in the caches: memory is read once and written once. The number of sets is a compromise. There must be
enough that a peer's private caches have evicted a set before it is written again: writing to lines that another core
holds runs at 7 GB/s instead of 30. There must not be more, because all sets together must fit the shared cache (4
ranks on 2 cores, 1 MiB: 330 us of each core's time; with 16 MiB of sets, and two meetings a round, 510).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from gcl.core.prepared_call import DONE, WAITING
from gcl.kernels.copies import copy_bytes
from gcl.kernels.jit import bare, bare_part
from gcl.reduce.reduction import reduce_range
from gcl.transport.rendezvous.rank_table import (
    CHUNK,
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

__all__ = ["StagingLayout", "chunked_all_reduce", "staging_layout"]

_MOST, _LEAST = 65536, 32768  # bytes of one rank's part of a round
_FOOTPRINT = 3 << 20  # bytes of all sets of all ranks
_SETS = 3  # at least one per overlapping round


class StagingLayout(NamedTuple):
    """Staging area at the start of every rank's segment: ``sets`` sets of slots of ``chunk`` bytes each."""

    chunk: int
    sets: int

    def nbytes(self, local: int, ranks: int) -> int:
        """Bytes of the staging area of a rank with ``local`` replicas: one slot per set, replica and other rank."""
        return self.sets * local * (ranks - 1) * self.chunk


def staging_layout(counts: Sequence[int], segment_bytes: int) -> StagingLayout:
    """The layout for ranks that own ``counts`` replicas, equal on all; ``segment_bytes``: of the smallest segment."""
    slots, most = sum(counts) * (len(counts) - 1), max(counts) * (len(counts) - 1)
    if slots == 0:
        return StagingLayout(_MOST, _SETS)
    chunk = _MOST
    while chunk > _LEAST and _SETS * slots * chunk > _FOOTPRINT:
        chunk //= 2
    return StagingLayout(chunk, max(_SETS, min(_FOOTPRINT // (slots * chunk), segment_bytes // (4 * most * chunk))))


@bare_part
def _locals_of(table: Any, rank: int) -> int:
    owners = table[TABLES + table[RANKS] :][: table[REPLICAS]]
    count = 0
    for replica in range(table[REPLICAS]):
        count += owners[replica] == rank
    return count


@bare_part
def _slot(table: Any, rank: int, turn: int, local: int, chunk: int) -> Any:
    """Address of the slot where ``rank`` stages ``chunk`` of round ``turn`` of its local replica ``local``."""
    others = table[RANKS] - 1
    slot = (table[TURN] + turn) % table[SETS] * _locals_of(table, rank) * others
    slot += local * others + (chunk - rank - 1) % table[RANKS]
    return table[TABLES + rank] + slot * table[CHUNK]


@bare_part
def _result(table: Any, turn: int, first: int, chunk: int) -> Any:
    """Address of the combined ``chunk`` of the group from member ``first`` on: its first slot of another rank."""
    owners, locals_, members, _, _ = tables(table)
    m = first
    while owners[members[m]] == chunk:
        m += 1
    return _slot(table, owners[members[m]], turn, locals_[members[m]], chunk)


@bare_part
def _part(table: Any, call: Any, turn: int, chunk: int) -> Any:
    """First byte and length of ``chunk`` of round ``turn``; the last round divides the rest evenly."""
    ranks, nbytes, most = table[RANKS], call[COUNT] * call[ITEM], table[CHUNK]
    first = turn * ranks * most
    left = min(ranks * most, nbytes - first)
    each = min(most, (left // ranks + 64) // 64 * 64)
    start = min(left, chunk * each)
    return first + start, min(each, left - start)


@bare_part
def _copy_in(table: Any, call: Any, turn: int) -> None:
    nbytes = call[COUNT] * call[ITEM]
    for step in range(1, table[RANKS]):
        chunk = (table[RANK] + step) % table[RANKS]
        start, length = _part(table, call, turn, chunk)
        for local in range(_locals_of(table, table[RANK])):
            copy_bytes(_slot(table, table[RANK], turn, local, chunk), call[X] + local * nbytes + start, length)


@bare_part
def _copy_out(table: Any, call: Any, turn: int) -> None:
    replicas, size, nbytes = table[REPLICAS], table[GROUP_SIZE], call[COUNT] * call[ITEM]
    owners, locals_, members, _, _ = tables(table)
    for step in range(1, table[RANKS]):
        chunk = (table[RANK] + step) % table[RANKS]
        start, length = _part(table, call, turn, chunk)
        for m in range(replicas):
            if owners[members[m]] == table[RANK]:
                to = call[RESULT] + locals_[members[m]] * nbytes + start
                copy_bytes(to, _result(table, turn, m // size * size, chunk), length)


@bare_part
def _combine(table: Any, call: Any, turn: int, recipe: Any, scratch: Any) -> None:
    replicas, size, rank, item = table[REPLICAS], table[GROUP_SIZE], table[RANK], call[ITEM]
    owners, locals_, members, nodes, outs = tables(table)
    start, length = _part(table, call, turn, rank)
    nbytes = call[COUNT] * item
    for first in range(0, replicas, size):
        wanted, told = 0, False
        for i in range(size):
            replica = members[first + i]
            if owners[replica] == rank:
                nodes[i] = call[X] + locals_[replica] * nbytes + start
                outs[wanted] = call[RESULT] + locals_[replica] * nbytes + start
            else:
                nodes[i] = _slot(table, owners[replica], turn, locals_[replica], rank)
                outs[wanted] = nodes[i]
            if owners[replica] == rank or not told:
                wanted += 1
            told = told or owners[replica] != rank
        at_once = 2 if wanted == size == 2 else 1  # one loop adds two tensors in place
        reduce_range(recipe, nodes, outs, at_once, 0, length // item, scratch)
        for copy in range(at_once, wanted):
            copy_bytes(outs[copy], outs[0], length)


@bare
def chunked_all_reduce(table: Any, call: Any, recipe: Any, scratch: Any) -> int:
    """Continue an all-reduce that all ranks have entered; call again while it returns WAITING."""
    nbytes = call[COUNT] * call[ITEM]
    rounds = (nbytes + table[RANKS] * table[CHUNK] - 1) // (table[RANKS] * table[CHUNK])
    while table[STAGE] != LEAVING:
        step = table[STEP]
        if step > 0 and not meet(table):
            return WAITING
        if step >= 2:
            _copy_out(table, call, step - 2)
        if step < rounds:
            _copy_in(table, call, step)
        if 0 < step <= rounds:
            _combine(table, call, step - 1, recipe, scratch)
        meet_again(table)
        table[STEP] = step + 1
        if step == rounds + 1:
            table[STEP], table[STAGE], table[TURN] = 0, LEAVING, table[TURN] + rounds
    return DONE if met(table) else WAITING
