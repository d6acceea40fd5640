"""Relayed copies: large tensors that other ranks cannot address, copied through chunks of shared memory.

Every rank has an area of several sets of slots, used in turn; a slot holds a chunk of what it sends:

    step         0      1      2      3      4
    copy in      0      1      2                    each rank fills a set of its own area,
    copy out                   0      1      2      and takes, or combines, what it wants from sets of others

Chunks stay in the caches: memory is read once and written once, past the caches where it exceeds them. A rank waits
only for those that it takes from, and for all when it fills a set again: the lag of two steps lets one be late, and
two more sets let it fill while others still take. Where ranks take turns on the cores nobody fills meanwhile: there
the lag is one step, and two sets, which stay in a cache, take less time (8 ranks on 2 cores exchange 16 MiB in 19 ms
of processor time; with a lag of two and four sets of 1 MiB in 24).
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np

from gcl.core.prepared_call import DONE, WAITING
from gcl.kernels.copies import copy_part
from gcl.kernels.jit import bare, bare_part
from gcl.reduce.reduction import reduce_range
from gcl.transport.rendezvous.rank_table import CallStage, Table, has_met, meet_again, met

__all__ = ["Received", "RelayLayout", "Sent", "relay", "relay_layout", "relay_plan"]

_LAG, _SETS = 2, 4
_LAG_IN_TURNS, _SETS_IN_TURNS = 1, 2
_SET_BYTES = 1 << 19
_LEAST_CHUNK, _PAGE = 1 << 15, 4096


class Sent(NamedTuple):
    """A tensor at ``address`` of this process, from which ``slot`` is filled."""

    slot: int
    address: int


class Received(NamedTuple):
    """A tensor at ``address``, filled from a slot of the area of ``rank`` at ``area``; at ``area`` itself if < 0."""

    rank: int
    area: int
    slot: int
    address: int


class RelayLayout(NamedTuple):
    """An area: ``sets`` of ``slots`` of ``chunk`` bytes, taken ``lag`` steps later; equal on all ranks."""

    lag: int
    sets: int
    slots: int
    chunk: int

    @property
    def nbytes(self) -> int:
        return self.sets * self.slots * self.chunk


class _Plan(IntEnum):
    """Index of each word of a plan; the rows of what is sent and received follow."""

    AREA = 0  # address of this rank's area
    LAG = 1  # steps from filling a set to taking from it
    SETS = 2
    SLOTS = 3
    CHUNK = 4
    NBYTES = 5  # of each tensor
    SENT = 6  # number of tensors
    RECEIVED = 7
    ITEMSIZE = 8  # of elements that are combined; 0: what is received is copied
    FIRST = 9  # the first word of the rows


def relay_layout(slots: int, *, in_turns: bool) -> RelayLayout:
    """The layout of areas with ``slots``; ``in_turns``: there are fewer cores than ranks."""
    lag, sets = (_LAG_IN_TURNS, _SETS_IN_TURNS) if in_turns else (_LAG, _SETS)
    return RelayLayout(lag, sets, slots, max(_LEAST_CHUNK, _SET_BYTES // slots // _PAGE * _PAGE))


def relay_plan(
    area: int, layout: RelayLayout, nbytes: int, sent: Sequence[Sent], received: Sequence[Received], itemsize: int = 0
) -> np.ndarray:
    """What ``relay`` does on this rank, whose area is at ``area``; all tensors have ``nbytes``.

    ``itemsize``: what is received is combined, in the order of ``received``, in the first one's ``address``.
    """
    words = [area, *layout, nbytes, len(sent), len(received), itemsize]
    rows = [word for row in (*sent, *received) for word in row]
    return np.array([*words, *rows], np.int64)


@bare_part
def _copy_in(plan: Any, step: int) -> None:
    nbytes, chunk = plan[_Plan.NBYTES], plan[_Plan.CHUNK]
    first, low = plan[_Plan.AREA] + _set(plan, step), step * chunk
    for row in range(plan[_Plan.SENT]):
        slot, address = plan[_Plan.FIRST + 2 * row], plan[_Plan.FIRST + 2 * row + 1]
        n = min(chunk, nbytes - low)
        copy_part(first + slot * chunk, address + low, n, n)


@bare_part
def _set(plan: Any, step: int) -> Any:
    """Where the set of ``step`` starts in an area."""
    return step % plan[_Plan.SETS] * plan[_Plan.SLOTS] * plan[_Plan.CHUNK]


@bare_part
def _copy_out(plan: Any, step: int) -> None:
    nbytes, chunk, count = plan[_Plan.NBYTES], plan[_Plan.CHUNK], plan[_Plan.RECEIVED]
    rows, low = _Plan.FIRST + 2 * plan[_Plan.SENT], step * chunk
    for row in range(rows, rows + 4 * count, 4):
        area, slot, address = plan[row + 1], plan[row + 2], plan[row + 3]
        frm = area + low if slot < 0 else area + _set(plan, step) + slot * chunk
        copy_part(address + low, frm, min(chunk, nbytes - low), count * nbytes)


@bare_part
def _combine_out(plan: Any, step: int, recipe: Any, scratch: Any, nodes: Any) -> None:
    chunk, count, item = plan[_Plan.CHUNK], plan[_Plan.RECEIVED], plan[_Plan.ITEMSIZE]
    first, low = _Plan.FIRST + 2 * plan[_Plan.SENT], step * chunk
    for i in range(count):
        row = first + 4 * i
        area, slot = plan[row + 1], plan[row + 2]
        nodes[i] = area + low if slot < 0 else area + _set(plan, step) + slot * chunk
    outs = nodes[count:]
    outs[0] = plan[first + 3] + low
    reduce_range(recipe, nodes, outs, 1, 0, min(chunk, plan[_Plan.NBYTES] - low) // item, scratch)


@bare_part
def _is_filled(table: Any, plan: Any) -> bool:
    """Wait a limited time until the sets that this rank takes from next are filled; say whether they are."""
    rows = _Plan.FIRST + 2 * plan[_Plan.SENT]
    for row in range(rows, rows + 4 * plan[_Plan.RECEIVED], 4):
        if plan[row] != table[Table.RANK] and not has_met(table, plan[row], plan[_Plan.LAG] - 1):
            return False
    return True


@bare_part
def _is_taken(table: Any, plan: Any) -> bool:
    """Wait a limited time until all have taken what is in the set that is filled next; say whether they have."""
    for step in range(1, table[Table.RANKS]):
        peer = (table[Table.RANK] + step) % table[Table.RANKS]
        if not has_met(table, peer, plan[_Plan.SETS] - plan[_Plan.LAG] - 1):
            return False
    return True


@bare
def relay(table: Any, plan: Any, recipe: Any, scratch: Any, nodes: Any) -> int:
    """Continue copies that all ranks have entered; call again while it returns WAITING.

    ``recipe``, ``scratch`` and ``nodes``, a word for each rank and one more, are for what is combined.
    """
    steps, lag = (plan[_Plan.NBYTES] + plan[_Plan.CHUNK] - 1) // plan[_Plan.CHUNK], plan[_Plan.LAG]
    while table[Table.STAGE] != CallStage.LEAVING:
        step, part = table[Table.STEP] // 2, table[Table.STEP] % 2
        if part == 0 and step < steps and plan[_Plan.SENT] > 0:
            if not _is_taken(table, plan):
                return WAITING
            _copy_in(plan, step)
        table[Table.STEP] = 2 * step + 1
        if step >= lag:
            if not _is_filled(table, plan):
                return WAITING
            if plan[_Plan.ITEMSIZE] > 0:
                _combine_out(plan, step - lag, recipe, scratch, nodes)
            else:
                _copy_out(plan, step - lag)
        meet_again(table)
        table[Table.STEP] = 2 * (step + 1)
        if step + 1 == steps + lag:
            table[Table.STEP], table[Table.STAGE] = 0, CallStage.LEAVING
    return DONE if met(table) else WAITING
