"""Rank table: the layout of replicas over ranks as int64 words, and the compiled steps in which ranks enter a call.

All arguments of a call are in two int64 arrays, so that a call enters compiled code once: ``table`` describes the
ranks (written once per communicator), ``call`` describes the tensors (``Request.words``, written once per pair of
tensors).
"""

from __future__ import annotations

import os
import secrets
from functools import partial
from typing import Any

import numpy as np

from gcl.core.prepared_call import DONE, WAITING
from gcl.kernels.jit import bare, bare_part, bound
from gcl.transport.rendezvous.rendezvous import arrive, mark_refused, post_of, reached, refusals, wait_for_all

__all__ = [
    "CHUNK",
    "CONTROL",
    "COUNT",
    "GROUP_SIZE",
    "IN",
    "INSIDE",
    "ITEM",
    "KIND",
    "LEAVING",
    "OUT",
    "RANK",
    "RANKS",
    "REPLICAS",
    "RESULT",
    "ROOT",
    "SETS",
    "SIGNATURE",
    "STAGE",
    "STEP",
    "TABLES",
    "TURN",
    "Meeting",
    "X",
    "address",
    "agreed",
    "any_private",
    "arrivals",
    "enter",
    "had_refused",
    "has_refused",
    "is_outside",
    "leave",
    "look",
    "meet",
    "meet_again",
    "met",
    "missing",
    "new_rank_table",
    "own_tensor_of",
    "process_of",
    "refuse",
    "refused",
    "signature_of_all",
    "slice_of",
    "tables",
]

# table: fixed words, then the tables
RANK, RANKS, REPLICAS, GROUP_SIZE, PROCESS, CONTROL = range(6)
STAGE, STEP, _ARRIVALS, _SPINS, _SECONDS, _NANOSECONDS, TURN, SETS, CHUNK = range(6, 15)
TABLES = 16
OUTSIDE, ENTERING, INSIDE, LEAVING = range(4)  # stages of a call
# call
KIND, _CODE, COUNT, IN, OUT, ITEM, ROOT, SIGNATURE, X, RESULT = range(10)
_NAP_NANOSECONDS = 20_000_000
_PAGE, _CACHE_LINE = 4096, 64


def new_rank_table(
    *,
    rank: int,
    control: int,
    arenas: list[int],
    owners: list[int],
    groups: list[list[int]],
    spins: int,
    chunk: int,
    sets: int,
) -> np.ndarray:
    """The rank table of ``rank``: addresses of the control block and the arenas, owners of replicas, group members.

    The fixed words are followed by the address of each rank's arena and the arrays that ``tables`` returns.
    """
    locals_ = [owners[:replica].count(owner) for replica, owner in enumerate(owners)]
    members = [replica for group in groups for replica in group]
    size = len(groups[0])
    tables = [*arenas, *owners, *locals_, *members, *([0] * 2 * size)]
    table = np.zeros(TABLES + len(tables), np.int64)
    table[[RANK, RANKS, CONTROL, _SPINS]] = rank, len(arenas), control, spins
    table[[_NANOSECONDS, REPLICAS, GROUP_SIZE]] = _NAP_NANOSECONDS, len(owners), size
    table[[PROCESS, SETS, CHUNK]] = os.getpid(), sets, chunk
    table[TABLES:] = tables
    return table


@bare_part
def tables(table: Any) -> Any:
    """Owner of each replica, local index of each replica, members of all groups in order of groups, and two scratch
    arrays for the reduction of one group: addresses of its inputs, addresses of its results."""
    replicas, size = table[REPLICAS], table[GROUP_SIZE]
    owners = table[TABLES + table[RANKS] :]
    members = owners[2 * replicas :]
    nodes = members[replicas:]
    return owners, owners[replicas:], members, nodes, nodes[size:]


@bare_part
def meet(table: Any) -> Any:
    """Wait a limited time until all ranks arrived at the meeting point of this rank; say whether they did."""
    timespec = table.ctypes.data + 8 * _SECONDS
    return wait_for_all(table[CONTROL], table[RANK], table[RANKS], table[_ARRIVALS], table[_SPINS], timespec) < 0


@bare_part
def _announce(table: Any, call: Any) -> None:
    post = post_of(table[CONTROL], table[RANK])
    refused = refusals(table[CONTROL], table[RANK], table[_ARRIVALS])  # since they last met
    post[0], post[1], post[2] = call[SIGNATURE] ^ refused, call[IN], call[OUT]
    post[3], post[4], post[5] = call[X], call[RESULT], table[PROCESS]


@bare
def _signature_of(table: Any, rank: int) -> Any:
    """The signature of the call that ``rank`` announced."""
    return post_of(table[CONTROL], rank)[0]


@bare_part
def own_tensor_of(table: Any, rank: int, which: int) -> Any:
    """Address of ``rank``'s input (which = 0) or output (which = 1) in its own process."""
    return post_of(table[CONTROL], rank)[3 + which]


@bare_part
def process_of(table: Any, rank: int) -> Any:
    """Process id of ``rank``."""
    return post_of(table[CONTROL], rank)[5]


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
    """Say whether any rank announced a tensor outside the segments (offset -1)."""
    private = False
    for rank in range(table[RANKS]):
        private = private or post_of(table[CONTROL], rank)[1] < 0
    return private


@bare
def agreed(table: Any) -> bool:
    """Say whether every rank announced the same call."""
    mine = _signature_of(table, table[RANK])
    same = True
    for rank in range(table[RANKS]):
        same = same and _signature_of(table, rank) == mine
    return same


@bare_part
def address(table: Any, replica: int, which: int, nbytes: int) -> Any:
    """Address of ``replica``'s input (which = 1) or output (which = 2), of ``nbytes`` bytes."""
    owners = table[TABLES + table[RANKS] :]
    locals_ = owners[table[REPLICAS] :]
    owner = owners[replica]
    return table[TABLES + owner] + post_of(table[CONTROL], owner)[which] + locals_[replica] * nbytes


@bare
def look(table: Any, nbytes: Any, places: Any) -> Any:
    """Write the addresses of all inputs and outputs to ``places`` [2, replicas]; say whether any has changed.

    ``nbytes``: bytes of one replica's input, and of its output.
    """
    new = False
    for replica in range(table[REPLICAS]):
        for which in range(2):
            place = address(table, replica, 1 + which, nbytes[which])
            new = new or places[which, replica] != place
            places[which, replica] = place
    return new


@bare
def enter(table: Any, call: Any) -> Any:
    """Announce ``call`` and wait for all ranks; False while one is missing."""
    if table[STAGE] == OUTSIDE:
        _announce(table, call)
        meet_again(table)
        table[STAGE] = ENTERING
    if table[STAGE] == ENTERING and meet(table):
        table[STAGE] = INSIDE
    return table[STAGE] > ENTERING


@bare
def leave(table: Any) -> Any:
    """After ``enter``: wait for all ranks again; False while one is missing."""
    if table[STAGE] == INSIDE:
        meet_again(table)
        table[STAGE] = LEAVING
    return met(table)


@bare
def meet_again(table: Any) -> None:
    """Arrive at the next meeting point, without waiting."""
    table[_ARRIVALS] += 1
    arrive(table[CONTROL], table[RANK], table[_ARRIVALS])


@bare
def met(table: Any) -> Any:
    """``meet`` at the end of a call, which is over if all ranks arrived; else ``missing(table)`` lists the others."""
    done = meet(table)
    if done:
        table[STAGE] = OUTSIDE
    return done


def refuse(table: np.ndarray) -> None:
    """Tell the others that a call of this rank was refused."""
    mark_refused(int(table[CONTROL]), int(table[RANK]), int(table[_ARRIVALS]))


def has_refused(table: np.ndarray) -> bool:
    """Say whether this rank refused a call since its last meeting point."""
    return bool(refusals(int(table[CONTROL]), int(table[RANK]), int(table[_ARRIVALS])) > 0)


def had_refused(table: np.ndarray) -> bool:
    """Say whether this rank refused a call just before the call that is under way."""
    return bool(refusals(int(table[CONTROL]), int(table[RANK]), int(table[_ARRIVALS]) - 1) > 0)


def arrivals(table: np.ndarray) -> int:
    """Number of meeting points at which this rank has arrived."""
    return int(table[_ARRIVALS])


def is_outside(table: np.ndarray) -> bool:
    """Say whether no call is under way."""
    return int(table[STAGE]) == OUTSIDE


def refused(table: np.ndarray, rank: int) -> bool:
    """Say whether ``rank`` refused the call that this rank has begun: it refused more just before it."""
    before = int(table[_ARRIVALS]) - 1
    theirs, mine = (refusals(int(table[CONTROL]), one, before) for one in (rank, int(table[RANK])))
    return bool(theirs > mine)


def missing(table: np.ndarray) -> list[int]:
    """Ranks that have not arrived at the meeting point of this rank."""
    control, arrivals = int(table[CONTROL]), int(table[_ARRIVALS])
    return [rank for rank in range(int(table[RANKS])) if not reached(control, rank, arrivals)]


def signature_of_all(table: np.ndarray) -> int | None:
    """The signature of the call that all ranks made, None if they made different calls."""
    return int(_signature_of(table, 0)) if agreed(table) else None


class Meeting:
    """The two meetings of a call whose work is not done by a compiled kernel, one before and one after that work.

    ``enter`` announces ``call`` (``Request.words``) and waits for all ranks; ``leave`` waits for them again. Each is
    called until it returns DONE. Between them ``places`` [2, replicas] holds the addresses of all inputs and outputs,
    which have ``nbytes`` = [input, output] per replica.
    """

    def __init__(self, table: np.ndarray, call: np.ndarray, nbytes: list[int]) -> None:
        self.places = np.zeros((2, int(table[REPLICAS])), np.int64)
        self._enter, self._leave = bound(enter, table, call), bound(leave, table)
        self._look = bound(look, table, np.array(nbytes, np.int64), self.places)
        self._signature = partial(signature_of_all, table)

    def enter(self) -> int:
        """Announce the call and wait for all ranks: DONE, or WAITING while one is missing."""
        return DONE if self._enter() else WAITING

    def signature(self) -> int:
        """The signature of the call that all ranks made; a random number if they made different calls.

        Hosts compare these numbers, so the ranks of a host that disagree must not match any other host.
        """
        found = self._signature()
        return secrets.randbits(62) if found is None else found

    def look(self) -> bool:
        """Update ``places``; say whether any address has changed."""
        return bool(self._look())

    def leave(self) -> int:
        """Wait for all ranks again: after DONE, everything that they wrote can be read."""
        return DONE if self._leave() else WAITING
