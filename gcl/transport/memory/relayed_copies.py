"""Relayed copies: large tensors that other ranks cannot address, copied through chunks of shared memory.

Every rank has an area of several sets of slots, used in turn; a slot holds a chunk of a sent tensor:

    step         0      1      2      3      4
    copy in      0      1      2                    each rank fills a set of its own area,
    copy out                   0      1      2      and takes, or combines, what it wants from sets of others

Chunks stay in the caches: memory is read once and written once, past the caches where it exceeds them. A rank waits
only for those that it takes from, and for all when it refills a set: with a lag of two steps a rank may be late, and
with two more sets it can fill while others still take. If ranks share cores, they do not overlap: then the lag is one
step, and two sets, which stay in a cache, take less time (8 ranks on 2 cores exchange 16 MiB in 19 ms of processor
time, with a lag of two and four sets of 1 MiB in 24 ms).
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


class _Word(IntEnum):
    """Index of each word of a relay; the rows of what is sent and received follow."""

    AREA = 0  # address of this rank's area
    LAG = 1  # steps from filling a set to taking from it
    SETS = 2
    SLOTS = 3
    CHUNK = 4
    NBYTES = 5  # of each tensor
    SENT = 6  # number of tensors
    RECEIVED = 7
    ITEMSIZE = 8  # of elements that are combined; 0: received chunks are copied
    FIRST = 9  # the first word of the rows


class _SentWord(IntEnum):
    """Index of each word of a row of what is sent (``Sent``)."""

    SLOT = 0
    ADDRESS = 1


class _ReceivedWord(IntEnum):
    """Index of each word of a row of what is received (``Received``)."""

    RANK = 0
    AREA = 1
    SLOT = 2
    ADDRESS = 3


_SENT, _RECEIVED = len(_SentWord), len(_ReceivedWord)


def relay_layout(slots: int, *, in_turns: bool) -> RelayLayout:
    """The layout of areas with ``slots``; ``in_turns``: there are fewer cores than ranks."""
    lag, sets = (_LAG_IN_TURNS, _SETS_IN_TURNS) if in_turns else (_LAG, _SETS)
    return RelayLayout(lag, sets, slots, max(_LEAST_CHUNK, _SET_BYTES // slots // _PAGE * _PAGE))


def relay_words(
    area: int, layout: RelayLayout, nbytes: int, sent: Sequence[Sent], received: Sequence[Received], itemsize: int = 0
) -> np.ndarray:
    """What ``relay`` does on this rank, whose area is at ``area``; all tensors have ``nbytes``.

    ``itemsize``: received tensors are combined, in the order of ``received``, at the ``address`` of the first one.
    """
    head = [area, *layout, nbytes, len(sent), len(received), itemsize]
    rows = [word for row in (*sent, *received) for word in row]
    return np.array([*head, *rows], np.int64)


@bare_part
def _copy_in(words: Any, step: int) -> None:
    nbytes, chunk = words[_Word.NBYTES], words[_Word.CHUNK]
    first, low = words[_Word.AREA] + _set(words, step), step * chunk
    for number in range(words[_Word.SENT]):
        row = _Word.FIRST + _SENT * number
        slot, address = words[row + _SentWord.SLOT], words[row + _SentWord.ADDRESS]
        n = min(chunk, nbytes - low)
        copy_part(first + slot * chunk, address + low, n, n)


@bare_part
def _set(words: Any, step: int) -> Any:
    """Where the set of ``step`` starts in an area."""
    return step % words[_Word.SETS] * words[_Word.SLOTS] * words[_Word.CHUNK]


@bare_part
def _received(words: Any) -> Any:
    """The first word of the rows of received tensors."""
    return _Word.FIRST + _SENT * words[_Word.SENT]


@bare_part
def _copy_out(words: Any, step: int) -> None:
    nbytes, chunk, count = words[_Word.NBYTES], words[_Word.CHUNK], words[_Word.RECEIVED]
    rows, low = _received(words), step * chunk
    for row in range(rows, rows + _RECEIVED * count, _RECEIVED):
        area, slot = words[row + _ReceivedWord.AREA], words[row + _ReceivedWord.SLOT]
        address = words[row + _ReceivedWord.ADDRESS]
        frm = area + low if slot < 0 else area + _set(words, step) + slot * chunk
        copy_part(address + low, frm, min(chunk, nbytes - low), count * nbytes)


@bare_part
def _combine_out(words: Any, step: int, recipe: Any, scratch: Any, nodes: Any) -> None:
    chunk, count, item = words[_Word.CHUNK], words[_Word.RECEIVED], words[_Word.ITEMSIZE]
    first, low = _received(words), step * chunk
    for i in range(count):
        row = first + _RECEIVED * i
        area, slot = words[row + _ReceivedWord.AREA], words[row + _ReceivedWord.SLOT]
        nodes[i] = area + low if slot < 0 else area + _set(words, step) + slot * chunk
    outs = nodes[count:]
    outs[0] = words[first + _ReceivedWord.ADDRESS] + low
    reduce_range(recipe, nodes, outs, 1, 0, min(chunk, words[_Word.NBYTES] - low) // item, scratch)


@bare_part
def _is_filled(table: Any, words: Any) -> bool:
    """Wait a limited time until the sets that this rank takes from next are filled; return whether they are."""
    rows = _received(words)
    for row in range(rows, rows + _RECEIVED * words[_Word.RECEIVED], _RECEIVED):
        peer = words[row + _ReceivedWord.RANK]
        if peer != table[Table.RANK] and not has_met(table, peer, words[_Word.LAG] - 1):
            return False
    return True


@bare_part
def _is_taken(table: Any, words: Any) -> bool:
    """Wait a limited time until all have taken what is in the set that is filled next; return whether they have."""
    for step in range(1, table[Table.RANKS]):
        peer = (table[Table.RANK] + step) % table[Table.RANKS]
        if not has_met(table, peer, words[_Word.SETS] - words[_Word.LAG] - 1):
            return False
    return True


@bare
def relay(table: Any, words: Any, recipe: Any, scratch: Any, nodes: Any) -> int:
    """Continue copies that all ranks have entered; call again while it returns WAITING.

    ``recipe``, ``scratch`` and ``nodes`` (a word per rank, and one more) are used to combine chunks.
    """
    steps, lag = (words[_Word.NBYTES] + words[_Word.CHUNK] - 1) // words[_Word.CHUNK], words[_Word.LAG]
    while table[Table.STAGE] != CallStage.LEAVING:
        step, part = table[Table.STEP] // 2, table[Table.STEP] % 2
        if part == 0 and step < steps and words[_Word.SENT] > 0:
            if not _is_taken(table, words):
                return WAITING
            _copy_in(words, step)
        table[Table.STEP] = 2 * step + 1
        if step >= lag:
            if not _is_filled(table, words):
                return WAITING
            if words[_Word.ITEMSIZE] > 0:
                _combine_out(words, step - lag, recipe, scratch, nodes)
            else:
                _copy_out(words, step - lag)
        meet_again(table)
        table[Table.STEP] = 2 * (step + 1)
        if step + 1 == steps + lag:
            table[Table.STEP], table[Table.STAGE] = 0, CallStage.LEAVING
    return DONE if met(table) else WAITING
