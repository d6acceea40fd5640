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
enough that a peer's private caches have evicted a set before it is written again: on some processors, writing to
lines that another core holds runs at 7 GB/s instead of 30. There must not be more, because all sets must fit the
shared cache (4 ranks on 2 cores, 1 MiB: 330 us of each core's time; with 16 MiB of sets, and two meetings a round,
510). Where the fewest sets fit half of the second-level cache of each core, there are no more: chunks then need not
come from the shared cache (2 ranks with 2 MiB each, 1 MiB: 82 us instead of 94; 16 MiB: 1.5 ms instead of 1.8).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from gcl.core.prepared_call import DONE, WAITING
from gcl.core.request import Call
from gcl.kernels.copies import copy_bytes
from gcl.kernels.jit import bare, bare_part
from gcl.reduce.reduction import reduce_range
from gcl.transport.rendezvous.rank_table import CallStage, Table, meet, meet_again, met, tables

_MOST, _LEAST = 131072, 32768  # bytes of one rank's part of a round
_FOOTPRINT = 3 << 20  # bytes of all sets of all ranks
_SETS = 3  # at least one per overlapping round


class StagingLayout(NamedTuple):
    """Staging area at the start of every rank's segment: ``sets`` sets of slots of ``chunk`` bytes each."""

    chunk: int
    sets: int

    def nbytes(self, local: int, ranks: int) -> int:
        """Bytes of the staging area of a rank with ``local`` replicas: one slot per set, replica and other rank."""
        return self.sets * local * (ranks - 1) * self.chunk


def staging_layout(counts: Sequence[int], segment_bytes: int, core_cache: int) -> StagingLayout:
    """The layout for ranks that own ``counts`` replicas, equal on all.

    ``segment_bytes``: of the smallest segment; ``core_cache``: bytes of the second-level cache of a core.
    """
    slots, most = sum(counts) * (len(counts) - 1), max(counts) * (len(counts) - 1)
    if slots == 0:
        return StagingLayout(_MOST, _SETS)
    chunk = _MOST
    while chunk > _LEAST and (_SETS * slots * chunk > _FOOTPRINT or 4 * _SETS * most * chunk > segment_bytes):
        chunk //= 2
    if 2 * _SETS * slots * chunk <= core_cache:
        return StagingLayout(chunk, _SETS)
    return StagingLayout(chunk, max(_SETS, min(_FOOTPRINT // (slots * chunk), segment_bytes // (4 * most * chunk))))


@bare_part
def _locals_of(table: Any, rank: int) -> int:
    owners = table[Table.TABLES + table[Table.RANKS] :][: table[Table.REPLICAS]]
    count = 0
    for replica in range(table[Table.REPLICAS]):
        count += owners[replica] == rank
    return count


@bare_part
def _slot(table: Any, rank: int, turn: int, local: int, chunk: int) -> Any:
    """Address of the slot where ``rank`` stages ``chunk`` of round ``turn`` of its local replica ``local``."""
    others = table[Table.RANKS] - 1
    slot = (table[Table.TURN] + turn) % table[Table.SETS] * _locals_of(table, rank) * others
    slot += local * others + (chunk - rank - 1) % table[Table.RANKS]
    return table[Table.TABLES + rank] + slot * table[Table.CHUNK]


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
    ranks, nbytes, most = table[Table.RANKS], call[Call.COUNT] * call[Call.ITEMSIZE], table[Table.CHUNK]
    first = turn * ranks * most
    left = min(ranks * most, nbytes - first)
    length = min(most, (left // ranks + 64) // 64 * 64)
    start = min(left, chunk * length)
    return first + start, min(length, left - start)


@bare_part
def _copy_in(table: Any, call: Any, turn: int) -> None:
    rank, nbytes = table[Table.RANK], call[Call.COUNT] * call[Call.ITEMSIZE]
    for step in range(1, table[Table.RANKS]):
        chunk = (rank + step) % table[Table.RANKS]
        start, length = _part(table, call, turn, chunk)
        for local in range(_locals_of(table, rank)):
            copy_bytes(_slot(table, rank, turn, local, chunk), call[Call.INPUT] + local * nbytes + start, length)


@bare_part
def _copy_out(table: Any, call: Any, turn: int) -> None:
    replicas, size, nbytes = table[Table.REPLICAS], table[Table.GROUP_SIZE], call[Call.COUNT] * call[Call.ITEMSIZE]
    owners, locals_, members, _, _ = tables(table)
    for step in range(1, table[Table.RANKS]):
        chunk = (table[Table.RANK] + step) % table[Table.RANKS]
        start, length = _part(table, call, turn, chunk)
        for m in range(replicas):
            if owners[members[m]] == table[Table.RANK]:
                to = call[Call.OUTPUT] + locals_[members[m]] * nbytes + start
                copy_bytes(to, _result(table, turn, m // size * size, chunk), length)


@bare_part
def _combine(table: Any, call: Any, turn: int, recipe: Any, scratch: Any) -> None:
    replicas, size = table[Table.REPLICAS], table[Table.GROUP_SIZE]
    rank, item = table[Table.RANK], call[Call.ITEMSIZE]
    owners, locals_, members, nodes, outs = tables(table)
    start, length = _part(table, call, turn, rank)
    nbytes = call[Call.COUNT] * item
    for first in range(0, replicas, size):
        copies, staged = 0, False
        for i in range(size):
            replica = members[first + i]
            if owners[replica] == rank:
                nodes[i] = call[Call.INPUT] + locals_[replica] * nbytes + start
                outs[copies] = call[Call.OUTPUT] + locals_[replica] * nbytes + start
            else:
                nodes[i] = _slot(table, owners[replica], turn, locals_[replica], rank)
                outs[copies] = nodes[i]
            if owners[replica] == rank or not staged:
                copies += 1
            staged = staged or owners[replica] != rank
        at_once = 2 if copies == size == 2 else 1  # one loop adds two tensors in place
        reduce_range(recipe, nodes, outs, at_once, 0, length // item, scratch)
        for copy in range(at_once, copies):
            copy_bytes(outs[copy], outs[0], length)


@bare
def chunked_all_reduce(table: Any, call: Any, recipe: Any, scratch: Any) -> int:
    """Continue an all-reduce that all ranks have entered; call again while it returns WAITING."""
    nbytes = call[Call.COUNT] * call[Call.ITEMSIZE]
    rounds = (nbytes + table[Table.RANKS] * table[Table.CHUNK] - 1) // (table[Table.RANKS] * table[Table.CHUNK])
    while table[Table.STAGE] != CallStage.LEAVING:
        step = table[Table.STEP]
        if step > 0 and not meet(table):
            return WAITING
        if step >= 2:
            _copy_out(table, call, step - 2)
        if step < rounds:
            _copy_in(table, call, step)
        if 0 < step <= rounds:
            _combine(table, call, step - 1, recipe, scratch)
        meet_again(table)
        table[Table.STEP] = step + 1
        if step == rounds + 1:
            table[Table.STEP], table[Table.STAGE] = 0, CallStage.LEAVING
            table[Table.TURN] += rounds
    return DONE if met(table) else WAITING
