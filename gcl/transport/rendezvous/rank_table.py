"""Rank table: the layout of replicas over ranks as int64 words, and the compiled steps in which ranks enter a call.

All arguments of a call are in two int64 arrays, so that a call enters compiled code once: ``table`` (``Table``)
describes the ranks and is written once per communicator; ``call`` (``Call``) describes the tensors and is written
once per pair of tensors.
"""

from __future__ import annotations

import secrets
from enum import IntEnum
from typing import Any

import numpy as np

from gcl.core.prepared_call import DONE, WAITING
from gcl.core.request import Call
from gcl.kernels.jit import bare, bare_part, bound
from gcl.transport.rendezvous.rendezvous import (
    Post,
    Waits,
    arrive,
    mark_mismatch,
    mark_refused,
    mismatched,
    post_of,
    reached,
    refusals,
    wait_for,
    wait_for_all,
)


class Table(IntEnum):
    """Index of each word of a rank table."""

    RANK = 0  # this rank
    RANKS = 1  # number of ranks that share memory
    REPLICAS = 2  # of all ranks
    GROUP_SIZE = 3
    CONTROL = 4  # address of the control block
    STAGE = 5  # CallStage of the call under way
    STEP = 6  # of a chunked all-reduce under way
    ARRIVALS = 7  # meeting points at which this rank has arrived
    TURN = 8  # rounds of all chunked all-reduces so far
    SETS = 9  # of staging slots
    CHUNK = 10  # bytes of a staging slot
    WAITS = 11  # the first word of how this rank waits (``Waits``)
    TABLES = WAITS + len(Waits)  # the first word of the addresses of the arenas and of what ``tables`` returns


class CallStage(IntEnum):
    """How far a call has come on this rank."""

    OUTSIDE = 0  # no call is under way
    ENTERING = 1  # announced; not all ranks have arrived
    INSIDE = 2  # all ranks have arrived
    LEAVING = 3  # the work of this rank is done; not all ranks have arrived at the end


_PAGE, _CACHE_LINE = 4096, 64


def new_rank_table(
    *,
    rank: int,
    control: int,
    arenas: list[int],
    owners: list[int],
    groups: list[list[int]],
    waits: list[int],
    chunk: int,
    sets: int,
) -> np.ndarray:
    """The rank table of ``rank``: addresses of the control block and the arenas, owners of replicas, group members.

    The fixed words are followed by the address of each rank's arena and the arrays that ``tables`` returns.
    ``waits``: how this rank waits (``new_waits``).
    """
    locals_ = [owners[:replica].count(owner) for replica, owner in enumerate(owners)]
    members = [replica for group in groups for replica in group]
    size = len(groups[0])
    tables = [*arenas, *owners, *locals_, *members, *([0] * 2 * size)]
    words = {
        Table.RANK: rank,
        Table.RANKS: len(arenas),
        Table.REPLICAS: len(owners),
        Table.GROUP_SIZE: size,
        Table.CONTROL: control,
        Table.SETS: sets,
        Table.CHUNK: chunk,
    }
    fixed = [words.get(word, 0) for word in Table if word < Table.WAITS]
    return np.array([*fixed, *waits, *tables], np.int64)


@bare_part
def tables(table: Any) -> Any:
    """Owner of each replica, local index of each replica, members of all groups in order of groups, and two scratch
    arrays for the reduction of one group: addresses of its inputs, addresses of its results."""
    replicas, size = table[Table.REPLICAS], table[Table.GROUP_SIZE]
    owners = table[Table.TABLES + table[Table.RANKS] :]
    members = owners[2 * replicas :]
    nodes = members[replicas:]
    return owners, owners[replicas:], members, nodes, nodes[size:]


@bare_part
def meet(table: Any) -> Any:
    """Wait a limited time until all ranks arrived at the meeting point of this rank; return whether they did."""
    rank, ranks, arrivals = table[Table.RANK], table[Table.RANKS], table[Table.ARRIVALS]
    waits = table.ctypes.data + 8 * Table.WAITS
    return wait_for_all(table[Table.CONTROL], rank, ranks, arrivals, waits) < 0


@bare_part
def has_met(table: Any, peer: int, lag: int) -> Any:
    """Wait a limited time until ``peer`` is at most ``lag`` meeting points behind this rank; return whether it is."""
    waits = table.ctypes.data + 8 * Table.WAITS
    return wait_for(table[Table.CONTROL], peer, table[Table.ARRIVALS] - lag, waits)


@bare_part
def _announce(table: Any, call: Any) -> None:
    control, rank = table[Table.CONTROL], table[Table.RANK]
    post, refused = post_of(control, rank), refusals(control, rank, table[Table.ARRIVALS])  # since they last met
    post[Post.SIGNATURE.value] = call[Call.SIGNATURE] ^ refused
    post[Post.INPUT_OFFSET.value], post[Post.OUTPUT_OFFSET.value] = call[Call.INPUT_OFFSET], call[Call.OUTPUT_OFFSET]


@bare
def _signature_of(table: Any, rank: int) -> Any:
    """The signature of the call that ``rank`` announced."""
    return post_of(table[Table.CONTROL], rank)[Post.SIGNATURE.value]


@bare_part
def _first_of_slice(count: int, rank: int, ranks: int, item: int) -> int:
    unit = (_PAGE if count * item >= 4 * _PAGE * ranks else _CACHE_LINE) // item
    units = (count + unit - 1) // unit
    return min(count, units * rank // ranks * unit)


@bare_part
def slice_of(count: int, rank: int, ranks: int, item: int) -> Any:
    """First and end index of ``rank``'s slice of ``count`` elements, aligned to pages, or to cache lines if small."""
    return _first_of_slice(count, rank, ranks, item), _first_of_slice(count, rank + 1, ranks, item)


@bare_part
def any_private(table: Any) -> bool:
    """Whether any rank announced a tensor outside the segments (offset -1)."""
    private = False
    for rank in range(table[Table.RANKS]):
        private = private or post_of(table[Table.CONTROL], rank)[Post.INPUT_OFFSET.value] < 0
    return private


@bare
def agreed(table: Any) -> bool:
    """Whether every rank announced the same call."""
    mine = _signature_of(table, table[Table.RANK])
    same = True
    for rank in range(table[Table.RANKS]):
        same = same and _signature_of(table, rank) == mine
    return same


@bare_part
def _owner_of(table: Any, replica: int) -> Any:
    """The rank that owns ``replica``, and the index of the replica among those of that rank."""
    owners = table[Table.TABLES + table[Table.RANKS] :]
    return owners[replica], owners[table[Table.REPLICAS] + replica]


@bare_part
def input_address(table: Any, replica: int, nbytes: int) -> Any:
    """Address of ``replica``'s input, of ``nbytes`` bytes, in this process."""
    owner, local = _owner_of(table, replica)
    return (
        table[Table.TABLES + owner] + post_of(table[Table.CONTROL], owner)[Post.INPUT_OFFSET.value] + local * nbytes
    )


@bare_part
def output_address(table: Any, replica: int, nbytes: int) -> Any:
    """Address of ``replica``'s output, of ``nbytes`` bytes, in this process."""
    owner, local = _owner_of(table, replica)
    return (
        table[Table.TABLES + owner] + post_of(table[Table.CONTROL], owner)[Post.OUTPUT_OFFSET.value] + local * nbytes
    )


@bare
def look(table: Any, nbytes: Any, addresses: Any) -> Any:
    """Write the addresses of all inputs and outputs to ``addresses`` [2, replicas]; return whether any has changed.

    ``nbytes``: bytes of one replica's input, and of its output.
    """
    new = False
    for replica in range(table[Table.REPLICAS]):
        source = input_address(table, replica, nbytes[0])
        target = output_address(table, replica, nbytes[1])
        new = new or addresses[0, replica] != source or addresses[1, replica] != target
        addresses[0, replica], addresses[1, replica] = source, target
    return new


@bare
def enter(table: Any, call: Any) -> Any:
    """Announce ``call`` and wait for all ranks; False while one is missing."""
    if table[Table.STAGE] == CallStage.OUTSIDE:
        _announce(table, call)
        meet_again(table)
        table[Table.STAGE] = CallStage.ENTERING
    if table[Table.STAGE] == CallStage.ENTERING and meet(table):
        table[Table.STAGE] = CallStage.INSIDE
    return table[Table.STAGE] > CallStage.ENTERING


@bare
def leave(table: Any) -> Any:
    """After ``enter``: wait for all ranks again; False while one is missing."""
    if table[Table.STAGE] == CallStage.INSIDE:
        meet_again(table)
        table[Table.STAGE] = CallStage.LEAVING
    return met(table)


@bare
def meet_again(table: Any) -> None:
    """Arrive at the next meeting point, without waiting."""
    table[Table.ARRIVALS] += 1
    arrive(table[Table.CONTROL], table[Table.RANK], table[Table.ARRIVALS])


@bare
def met(table: Any) -> Any:
    """``meet`` at the end of a call, which is over if all ranks arrived; else ``missing(table)`` lists the others."""
    done = meet(table)
    if done:
        table[Table.STAGE] = CallStage.OUTSIDE
    return done


def refuse(table: np.ndarray) -> None:
    """Publish that a call of this rank was refused."""
    mark_refused(int(table[Table.CONTROL]), int(table[Table.RANK]), int(table[Table.ARRIVALS]))


def has_refused(table: np.ndarray) -> bool:
    """Whether this rank refused a call since its last meeting point."""
    return bool(refusals(int(table[Table.CONTROL]), int(table[Table.RANK]), int(table[Table.ARRIVALS])) > 0)


def had_refused(table: np.ndarray) -> bool:
    """Whether this rank refused a call just before the call that is under way."""
    return bool(refusals(int(table[Table.CONTROL]), int(table[Table.RANK]), int(table[Table.ARRIVALS]) - 1) > 0)


def arrivals(table: np.ndarray) -> int:
    """Number of meeting points at which this rank has arrived."""
    return int(table[Table.ARRIVALS])


def is_outside(table: np.ndarray) -> bool:
    """Whether no call is under way."""
    return int(table[Table.STAGE]) == CallStage.OUTSIDE


def refused(table: np.ndarray, rank: int) -> bool:
    """Whether ``rank`` refused the call that this rank has begun: it refused more just before it."""
    before = int(table[Table.ARRIVALS]) - 1
    theirs, mine = (refusals(int(table[Table.CONTROL]), peer, before) for peer in (rank, int(table[Table.RANK])))
    return bool(theirs > mine)


def missing(table: np.ndarray) -> list[int]:
    """Ranks that have not arrived at the meeting point of this rank."""
    control, arrivals = int(table[Table.CONTROL]), int(table[Table.ARRIVALS])
    return [rank for rank in range(int(table[Table.RANKS])) if not reached(control, rank, arrivals)]


class Meeting:
    """The two meetings of a call whose work is not done by a compiled kernel, one before and one after that work.

    ``enter`` announces ``call`` (``Request.words``) and waits for all ranks; ``leave`` waits for them again. Each is
    called until it returns DONE. Between them ``addresses`` [2, replicas] holds those of all inputs and outputs,
    which have ``nbytes`` = [input, output] per replica.
    """

    def __init__(self, table: np.ndarray, call: np.ndarray, nbytes: list[int]) -> None:
        self.addresses = np.zeros((2, int(table[Table.REPLICAS])), np.int64)
        self._enter, self._leave = bound(enter, table, call), bound(leave, table)
        self._look = bound(look, table, np.array(nbytes, np.int64), self.addresses)
        self._table = table

    def enter(self) -> int:
        """Announce the call and wait for all ranks: DONE, or WAITING while one is missing."""
        return DONE if self._enter() else WAITING

    def signature(self) -> int:
        """The signature of the call that all ranks made; a random number if they made different calls.

        Hosts compare these numbers, so the ranks of a host that disagree must not match any other host.
        """
        return int(_signature_of(self._table, 0)) if agreed(self._table) else secrets.randbits(62)

    def look(self) -> bool:
        """Update ``addresses``; return whether any address has changed."""
        return bool(self._look())

    def leave(self) -> int:
        """Wait for all ranks again: after DONE, everything that they wrote can be read."""
        return DONE if self._leave() else WAITING

    def disagree(self) -> None:
        """Tell the other ranks, within a call, that other hosts made different calls."""
        table = self._table
        mark_mismatch(int(table[Table.CONTROL]), int(table[Table.RANK]), int(table[Table.ARRIVALS]))

    def disagrees(self, rank: int) -> bool:
        """Say, at the end of a call, whether ``rank`` found that other hosts made different calls."""
        return bool(mismatched(int(self._table[Table.CONTROL]), rank, int(self._table[Table.ARRIVALS]) - 1))
