"""shared: collectives over memory that all ranks can address, without a copy.

    meet     every rank has announced its call, and its tensors are complete
    work     each rank combines its own slice, straight out of everyone's tensors, into everyone's results
    meet     every result is complete

Everything one call needs is in two arrays of int64, so that a call costs one crossing into compiled code:
``plan`` describes the ranks (written once), ``call`` the tensors (written once per tensor).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gcl.jit import jit
from gcl.ready import DONE, MISMATCH, WAITING
from gcl.reduction import WORK_WORDS, copy_bytes, reduce_range, zero_range
from gcl.rendezvous import arrive, post_of, reached, wait_for_all

__all__ = [
    "CONTROL",
    "copying",
    "meet_again",
    "met",
    "missing",
    "new_plan",
    "reducing",
]

_ALL_REDUCE, _ALL_GATHER, _BROADCAST, _ALL_TO_ALL = 1, 3, 4, 5  # gcl.calls.Kind

# plan: fixed words, then the tables
_RANK, _RANKS, CONTROL, _ARRIVALS, _STAGE, _SPINS, _SECONDS, _NANOSECONDS, _REPLICAS, _GROUP_SIZE = range(10)
_TABLES = 16
_OUTSIDE, _ENTERING, _INSIDE, _LEAVING = range(4)  # stages of a call
# call
_KIND, _CODE, _COUNT, _IN, _OUT, _ITEM, _ROOT, _SIGNATURE = range(8)
_PAGE, _CACHE_LINE = 4096, 64
_NAP_NANOSECONDS = 20_000_000


def new_plan(
    *, rank: int, control: int, arenas: list[int], owners: list[int], groups: list[list[int]], spins: int
) -> np.ndarray:
    """The ranks as words: addresses of the control block and arenas, owner of each replica, members of groups.

    Tables after the fixed words: arena address per rank, owner and local index per replica, members of group 0,
    of group 1, ..., room for one group's addresses, ones, and working space.
    """
    locals_ = [owners[:replica].count(owner) for replica, owner in enumerate(owners)]
    members = [replica for group in groups for replica in group]
    size = len(groups[0])
    tables = [*arenas, *owners, *locals_, *members, *([0] * 2 * size), *([1] * size), *([0] * WORK_WORDS)]
    plan = np.zeros(_TABLES + len(tables), np.int64)
    plan[[_RANK, _RANKS, CONTROL, _SPINS]] = rank, len(arenas), control, spins
    plan[[_NANOSECONDS, _REPLICAS, _GROUP_SIZE]] = _NAP_NANOSECONDS, len(owners), size
    plan[_TABLES:] = tables
    return plan


@jit
def _meet(plan: Any) -> Any:
    timespec = plan.ctypes.data + 8 * _SECONDS
    return wait_for_all(plan[CONTROL], plan[_RANK], plan[_RANKS], plan[_ARRIVALS], plan[_SPINS], timespec) < 0


@jit
def _announce(plan: Any, call: Any) -> None:
    post = post_of(plan[CONTROL], plan[_RANK])
    post[0], post[1], post[2] = call[_SIGNATURE], call[_IN], call[_OUT]


@jit
def _agreed(plan: Any) -> bool:
    mine = post_of(plan[CONTROL], plan[_RANK])[0]
    same = True
    for rank in range(plan[_RANKS]):
        same = same and post_of(plan[CONTROL], rank)[0] == mine
    return same


@jit
def _address(plan: Any, replica: int, which: int, nbytes: int) -> Any:
    """Where ``replica``'s input (which = 1) or output (which = 2) of ``nbytes`` starts."""
    arenas = plan[_TABLES:]
    owners = arenas[plan[_RANKS] :]
    locals_ = owners[plan[_REPLICAS] :]
    owner = owners[replica]
    return arenas[owner] + post_of(plan[CONTROL], owner)[which] + locals_[replica] * nbytes


@jit
def _first_of_slice(count: int, rank: int, ranks: int, item: int) -> int:
    """Where rank's slice of ``count`` elements begins: on a page, or on a cache line if there are few."""
    unit = (_PAGE if count * item >= 4 * _PAGE * ranks else _CACHE_LINE) // item
    units = (count + unit - 1) // unit
    return min(count, units * rank // ranks * unit)


@jit
def _reduce(plan: Any, call: Any, source: Any, scratch: Any) -> None:
    replicas, size, rank, ranks = plan[_REPLICAS], plan[_GROUP_SIZE], plan[_RANK], plan[_RANKS]
    tables = plan[_TABLES + ranks :]
    owners, members = tables[:replicas], tables[2 * replicas :]
    nodes = members[replicas:]
    outs, ones, work = nodes[size:], nodes[2 * size :], nodes[3 * size :]
    count, item = call[_COUNT], call[_ITEM]
    for first in range(0, replicas, size):
        for i in range(size):
            nodes[i] = _address(plan, members[first + i], 1, count * item)
        if call[_KIND] == _ALL_REDUCE:
            for i in range(size):
                outs[i] = _address(plan, members[first + i], 2, count * item)
            start = _first_of_slice(count, rank, ranks, item)
            stop = _first_of_slice(count, rank + 1, ranks, item)
            reduce_range(nodes, ones, size, outs, size, start, stop, call[_CODE], size, source, source, scratch, work)
        else:
            fragment = (count + size - 1) // size
            for i in range(size):
                if owners[members[first + i]] == rank:
                    start, stop = min(count, i * fragment), min(count, (i + 1) * fragment)
                    outs[0] = _address(plan, members[first + i], 2, fragment * item) - i * fragment * item
                    reduce_range(
                        nodes,
                        ones,
                        size,
                        outs,
                        1,
                        start,
                        stop,
                        call[_CODE],
                        size,
                        source,
                        source,
                        scratch,
                        work,
                    )
                    zero_range(outs[0], max(stop, i * fragment), (i + 1) * fragment, source)


@jit
def _copy(plan: Any, call: Any, byte: Any) -> None:
    replicas, size = plan[_REPLICAS], plan[_GROUP_SIZE]
    tables = plan[_TABLES + plan[_RANKS] :]
    owners, members = tables[:replicas], tables[2 * replicas :]
    nbytes = call[_COUNT] * call[_ITEM]
    for m in range(replicas):
        replica, first = members[m], m // size * size
        if owners[replica] != plan[_RANK]:
            continue
        if call[_KIND] == _BROADCAST:
            copy_bytes(
                _address(plan, replica, 2, nbytes),
                _address(plan, members[first + call[_ROOT]], 1, nbytes),
                nbytes,
                byte,
            )
        elif call[_KIND] == _ALL_GATHER:
            out = _address(plan, replica, 2, nbytes * size)
            for i in range(size):
                copy_bytes(out + i * nbytes, _address(plan, members[first + i], 1, nbytes), nbytes, byte)
        elif call[_KIND] == _ALL_TO_ALL:
            out, part = _address(plan, replica, 2, nbytes), nbytes // size
            for i in range(size):
                source = _address(plan, members[first + i], 1, nbytes) + (m - first) * part
                copy_bytes(out + i * part, source, part, byte)


@jit
def _enter(plan: Any, call: Any) -> Any:
    """Announce ``call`` and meet; False if somebody is still missing."""
    if plan[_STAGE] == _OUTSIDE:
        _announce(plan, call)
        meet_again(plan)
        plan[_STAGE] = _ENTERING
    if plan[_STAGE] == _ENTERING and _meet(plan):
        plan[_STAGE] = _INSIDE
    return plan[_STAGE] > _ENTERING


@jit
def meet_again(plan: Any) -> None:
    """Arrive at the next meeting point."""
    plan[_ARRIVALS] += 1
    arrive(plan[CONTROL], plan[_RANK], plan[_ARRIVALS])


@jit
def met(plan: Any) -> Any:
    """Wait a while for everyone to arrive where this rank is; ``missing(plan)`` names those who did not."""
    done = _meet(plan)
    if done:
        plan[_STAGE] = _OUTSIDE
    return done


@jit
def reducing(plan: Any, call: Any, source: Any, scratch: Any) -> int:
    """Run one all-reduce or reduce-scatter; call again with the same arguments while it returns WAITING."""
    if not _enter(plan, call):
        return WAITING
    if plan[_STAGE] == _INSIDE:
        if not _agreed(plan):
            return MISMATCH
        _reduce(plan, call, source, scratch)
        meet_again(plan)
        plan[_STAGE] = _LEAVING
    return DONE if met(plan) else WAITING


@jit
def copying(plan: Any, call: Any, byte: Any) -> int:
    """Run one all-gather, broadcast, all-to-all or barrier; call again while it returns WAITING."""
    if not _enter(plan, call):
        return WAITING
    if plan[_STAGE] == _INSIDE:
        if not _agreed(plan):
            return MISMATCH
        _copy(plan, call, byte)
        meet_again(plan)
        plan[_STAGE] = _LEAVING
    return DONE if met(plan) else WAITING


def missing(plan: np.ndarray) -> list[int]:
    """Every rank that has not arrived where this rank is."""
    control, arrivals = int(plan[CONTROL]), int(plan[_ARRIVALS])
    return [rank for rank in range(int(plan[_RANKS])) if not reached(control, rank, arrivals)]
