"""plan: what one rank knows of the others, and one call, as words for compiled code; and how ranks meet.

Everything a call needs is in two arrays of int64, so that it costs one crossing into compiled code: ``plan`` says
who the ranks are (written once), ``call`` what the tensors are (written once per tensor; Request.words).
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from gcl.kernels.jit import bare, bare_part
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
    "new_plan",
    "own_tensor_of",
    "process_of",
    "refuse",
    "refused",
    "signature_of_all",
    "slice_of",
    "tables",
]

# plan: fixed words, then the tables
RANK, RANKS, REPLICAS, GROUP_SIZE, PROCESS, CONTROL = range(6)
STAGE, STEP, _ARRIVALS, _SPINS, _SECONDS, _NANOSECONDS, TURN, SETS, CHUNK = range(6, 15)
TABLES = 16
OUTSIDE, ENTERING, INSIDE, LEAVING = range(4)  # stages of a call
# call
KIND, _CODE, COUNT, IN, OUT, ITEM, ROOT, SIGNATURE, X, RESULT = range(10)
_NAP_NANOSECONDS = 20_000_000
_PAGE, _CACHE_LINE = 4096, 64


def new_plan(
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
    """The ranks as words: addresses of the control block and arenas, owner of each replica, members of groups.

    Tables after the fixed words: arena address per rank, and what ``tables`` returns.
    """
    locals_ = [owners[:replica].count(owner) for replica, owner in enumerate(owners)]
    members = [replica for group in groups for replica in group]
    size = len(groups[0])
    tables = [*arenas, *owners, *locals_, *members, *([0] * 2 * size)]
    plan = np.zeros(TABLES + len(tables), np.int64)
    plan[[RANK, RANKS, CONTROL, _SPINS]] = rank, len(arenas), control, spins
    plan[[_NANOSECONDS, REPLICAS, GROUP_SIZE]] = _NAP_NANOSECONDS, len(owners), size
    plan[[PROCESS, SETS, CHUNK]] = os.getpid(), sets, chunk
    plan[TABLES:] = tables
    return plan


@bare_part
def tables(plan: Any) -> Any:
    """Owner, and local index, of each replica; members of group 0, of group 1, ...; and room to reduce one group: for
    the addresses of its members, and of the results."""
    replicas, size = plan[REPLICAS], plan[GROUP_SIZE]
    owners = plan[TABLES + plan[RANKS] :]
    members = owners[2 * replicas :]
    nodes = members[replicas:]
    return owners, owners[replicas:], members, nodes, nodes[size:]


@bare_part
def meet(plan: Any) -> Any:
    """Wait a while for everyone to arrive where this rank is."""
    timespec = plan.ctypes.data + 8 * _SECONDS
    return wait_for_all(plan[CONTROL], plan[RANK], plan[RANKS], plan[_ARRIVALS], plan[_SPINS], timespec) < 0


@bare_part
def _announce(plan: Any, call: Any) -> None:
    post = post_of(plan[CONTROL], plan[RANK])
    refused = refusals(plan[CONTROL], plan[RANK], plan[_ARRIVALS])  # since they last met
    post[0], post[1], post[2] = call[SIGNATURE] ^ refused, call[IN], call[OUT]
    post[3], post[4], post[5] = call[X], call[RESULT], plan[PROCESS]


@bare
def _signature_of(plan: Any, rank: int) -> Any:
    """What ``rank`` calls."""
    return post_of(plan[CONTROL], rank)[0]


@bare_part
def own_tensor_of(plan: Any, rank: int, which: int) -> Any:
    """Where ``rank``'s input (which = 0) or output (which = 1) starts in its own process."""
    return post_of(plan[CONTROL], rank)[3 + which]


@bare_part
def process_of(plan: Any, rank: int) -> Any:
    """The process that is ``rank``."""
    return post_of(plan[CONTROL], rank)[5]


@bare_part
def _first_of_slice(count: int, rank: int, ranks: int, item: int) -> int:
    unit = (_PAGE if count * item >= 4 * _PAGE * ranks else _CACHE_LINE) // item
    units = (count + unit - 1) // unit
    return min(count, units * rank // ranks * unit)


@bare_part
def slice_of(count: int, rank: int, ranks: int, item: int) -> Any:
    """First element of rank's slice of ``count``, and the one after its last: on pages, or cache lines if few."""
    return _first_of_slice(count, rank, ranks, item), _first_of_slice(count, rank + 1, ranks, item)


@bare_part
def any_private(plan: Any) -> bool:
    """Say whether some rank announced a tensor that lies in none of the segments (offset -1)."""
    private = False
    for rank in range(plan[RANKS]):
        private = private or post_of(plan[CONTROL], rank)[1] < 0
    return private


@bare
def agreed(plan: Any) -> bool:
    """Say whether every rank announced the same call."""
    mine = _signature_of(plan, plan[RANK])
    same = True
    for rank in range(plan[RANKS]):
        same = same and _signature_of(plan, rank) == mine
    return same


@bare_part
def address(plan: Any, replica: int, which: int, nbytes: int) -> Any:
    """Where ``replica``'s input (which = 1) or output (which = 2) of ``nbytes`` starts."""
    owners = plan[TABLES + plan[RANKS] :]
    locals_ = owners[plan[REPLICAS] :]
    owner = owners[replica]
    return plan[TABLES + owner] + post_of(plan[CONTROL], owner)[which] + locals_[replica] * nbytes


@bare
def look(plan: Any, nbytes: Any, places: Any) -> Any:
    """Write where inputs and outputs, of ``nbytes`` each, start: [2, replicas]; say whether any is new."""
    new = False
    for replica in range(plan[REPLICAS]):
        for which in range(2):
            place = address(plan, replica, 1 + which, nbytes[which])
            new = new or places[which, replica] != place
            places[which, replica] = place
    return new


@bare
def enter(plan: Any, call: Any) -> Any:
    """Announce ``call`` and meet; False if somebody is still missing."""
    if plan[STAGE] == OUTSIDE:
        _announce(plan, call)
        meet_again(plan)
        plan[STAGE] = ENTERING
    if plan[STAGE] == ENTERING and meet(plan):
        plan[STAGE] = INSIDE
    return plan[STAGE] > ENTERING


@bare
def leave(plan: Any) -> Any:
    """Meet after ``enter``; False if somebody is still missing."""
    if plan[STAGE] == INSIDE:
        meet_again(plan)
        plan[STAGE] = LEAVING
    return met(plan)


@bare
def meet_again(plan: Any) -> None:
    """Arrive at the next meeting point."""
    plan[_ARRIVALS] += 1
    arrive(plan[CONTROL], plan[RANK], plan[_ARRIVALS])


@bare
def met(plan: Any) -> Any:
    """Wait a while for everyone to arrive where this rank is; ``missing(plan)`` names those who did not."""
    done = meet(plan)
    if done:
        plan[STAGE] = OUTSIDE
    return done


def refuse(plan: np.ndarray) -> None:
    """Tell the others that a call of this rank was refused."""
    mark_refused(int(plan[CONTROL]), int(plan[RANK]), int(plan[_ARRIVALS]))


def has_refused(plan: np.ndarray) -> bool:
    """Say whether this rank refused a call, and has made none since."""
    return bool(refusals(int(plan[CONTROL]), int(plan[RANK]), int(plan[_ARRIVALS])) > 0)


def had_refused(plan: np.ndarray) -> bool:
    """Say whether this rank refused a call before the one that it has begun."""
    return bool(refusals(int(plan[CONTROL]), int(plan[RANK]), int(plan[_ARRIVALS]) - 1) > 0)


def arrivals(plan: np.ndarray) -> int:
    """At how many meeting points this rank has been."""
    return int(plan[_ARRIVALS])


def is_outside(plan: np.ndarray) -> bool:
    """Say whether no call is under way."""
    return int(plan[STAGE]) == OUTSIDE


def refused(plan: np.ndarray, rank: int) -> bool:
    """Say whether ``rank`` refused the call that this rank has begun; not if both refused as many before it."""
    before = int(plan[_ARRIVALS]) - 1
    theirs, mine = (refusals(int(plan[CONTROL]), one, before) for one in (rank, int(plan[RANK])))
    return bool(theirs > mine)


def missing(plan: np.ndarray) -> list[int]:
    """Every rank that has not arrived where this rank is."""
    control, arrivals = int(plan[CONTROL]), int(plan[_ARRIVALS])
    return [rank for rank in range(int(plan[RANKS])) if not reached(control, rank, arrivals)]


def signature_of_all(plan: np.ndarray) -> int | None:
    """The signature of what all ranks called, None if they called different collectives."""
    return int(_signature_of(plan, 0)) if agreed(plan) else None
