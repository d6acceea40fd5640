"""Rendezvous: the control block in shared memory through which ranks announce calls and wait for each other.

Each rank owns one line of the control block (``Line``) and is its only writer, but for the count of waiters.

A wait spins briefly if there is a core per rank, then yields, then sleeps on a futex, so that with more ranks than
cores the waiting ranks do not take time from the rank they wait for. If there is a core per rank, but two ranks run
on the same core, the waiting rank sleeps at once: Linux wakes a sleeping thread on an idle core, but is slow to
separate two threads that spin or yield on one core (64 KiB on 2 cores: 4 us instead of 120). It also sleeps at once
(``spins`` < 0) where others share the cores: to yield does not let ranks of other hosts run, and gives a turn away to
whatever else runs, which a rank that is woken need not wait for (all-reduces of 64 KiB of 8 ranks on 2 busy cores:
0.9 ms instead of 10). A wait returns after a fraction of a second at the latest, so that the caller can check for
dead peers, signals and its deadline.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any

import numpy as np

from gcl.kernels.atomics import (
    exchange,
    fetch_add,
    futex_wait,
    futex_wake,
    has_reached,
    load_acquire,
    pause,
    store_release,
    words_at,
)
from gcl.kernels.jit import bare, bare_part
from gcl.kernels.system_calls import sched_getcpu, sched_yield

__all__ = [
    "CROSSED",
    "LEFT",
    "LINE",
    "Line",
    "Post",
    "arrive",
    "left",
    "line_of",
    "mark_left",
    "mark_mismatch",
    "mark_refused",
    "mismatched",
    "post_of",
    "reached",
    "refusals",
    "spins_of_waits",
    "wait_for",
    "wait_for_all",
]

LINE = 128  # bytes: two cache lines, because processors prefetch lines in pairs
_SPINS, _SLEEP_AT_ONCE, _YIELDS, _SLEEPS = 2000, -1, 200, 5


def spins_of_waits(ranks: int, cores: int, *, shares_cores: bool) -> int:
    """How often ``ranks`` on this machine look before they yield; -1: they sleep at once.

    ``shares_cores``: the machine has more ranks than cores, and others than these may run on them.
    """
    if shares_cores:
        return _SLEEP_AT_ONCE
    return 0 if ranks > cores else _SPINS


class Line(IntEnum):
    """Where each part of a rank's line begins, in bytes; all but the post are int32."""

    ARRIVALS = 0  # grows by one at each meeting point; what the others wait for
    WAITERS = 4  # number of ranks that sleep on this line
    POST = 8  # 3 x int64 (``Post``)
    CORE = 56  # core on which this rank ran when it arrived
    LEFT = 64  # why it makes no further calls, LEFT or CROSSED; 0 if it does
    REFUSED_AT = 68  # arrivals at the last time a call of this rank was refused
    REFUSALS = 72  # number of calls refused at that meeting point
    HEARTBEATS = 80  # grows while this rank waits and no other thread of its process can make progress
    MISMATCH_AT = 84  # arrivals in the last call that this rank found to differ from that of another host


class Post(IntEnum):
    """Index of each word in which a rank announces its call; compiled code indexes these by ``.value``."""

    SIGNATURE = 0
    INPUT_OFFSET = 1  # in its segment
    OUTPUT_OFFSET = 2


# Why a rank makes no further calls: plain numbers, because compiled functions return them.
LEFT = 1  #: it closed its communicator
CROSSED = (
    2  #: it found ranks that wait for each other in several communicators (gcl.transport.memory.deadlock_detector)
)


def line_of(control: np.ndarray, rank: int) -> np.ndarray:
    """The line of ``rank`` as 32-bit words."""
    return control[rank * LINE : (rank + 1) * LINE].view(np.int32)


@bare_part
def post_of(control: int, rank: int) -> Any:
    """The words (``Post``) in which ``rank`` announces its call."""
    return words_at(control + rank * LINE + Line.POST)


@bare_part
def arrive(control: int, rank: int, arrivals: int) -> None:
    """Publish that this rank reached meeting point ``arrivals``, after everything that it wrote before."""
    line = control + rank * LINE
    store_release(line + Line.CORE, sched_getcpu())
    exchange(line, np.int32(arrivals))
    if load_acquire(line + Line.WAITERS) > 0:
        futex_wake(line)


@bare_part
def _wait_for(line: int, arrivals: int, spins: int, timespec: int) -> Any:
    if has_reached(line, arrivals):
        return True
    sleeps = spins < 0 or (spins > 0 and load_acquire(line + Line.CORE) == sched_getcpu())
    for _ in range(0 if sleeps else spins):
        if has_reached(line, arrivals):
            return True
        pause()
    for _ in range(0 if sleeps else _YIELDS):
        if has_reached(line, arrivals):
            return True
        sched_yield()
    fetch_add(line + Line.WAITERS, np.int32(1))
    for _ in range(_SLEEPS):
        seen = load_acquire(line)
        if np.int32(seen - np.int32(arrivals)) >= 0:
            break
        futex_wait(line, seen, timespec)
    fetch_add(line + Line.WAITERS, np.int32(-1))
    return has_reached(line, arrivals)


@bare_part
def wait_for(control: int, peer: int, arrivals: int, spins: int, timespec: int) -> Any:
    """Wait a limited time until ``peer`` reached meeting point ``arrivals``; say whether it did."""
    return _wait_for(control + peer * LINE, arrivals, spins, timespec)


@bare_part
def wait_for_all(control: int, rank: int, ranks: int, arrivals: int, spins: int, timespec: int) -> int:
    """Wait until every rank reached meeting point ``arrivals``; return -1, or a rank that did not in time."""
    for step in range(1, ranks):
        peer = (rank + step) % ranks
        if not _wait_for(control + peer * LINE, arrivals, spins, timespec):
            return peer
    return -1


@bare
def mark_left(control: int, rank: int, why: int) -> None:
    """Publish that this rank makes no further calls, for the reason LEFT or CROSSED."""
    exchange(control + rank * LINE + Line.LEFT, np.int32(why))


@bare
def left(control: int, rank: int) -> Any:
    """Why ``rank`` makes no further calls (LEFT or CROSSED); 0 if it still does."""
    return load_acquire(control + rank * LINE + Line.LEFT)


@bare
def refusals(control: int, rank: int, arrivals: int) -> Any:
    """Number of calls of ``rank`` that were refused between meeting point ``arrivals`` and the next."""
    line = control + rank * LINE
    return (
        load_acquire(line + Line.REFUSALS)
        if load_acquire(line + Line.REFUSED_AT) == np.int32(arrivals)
        else np.int32(0)
    )


@bare
def mark_refused(control: int, rank: int, arrivals: int) -> None:
    """Publish that this rank, at meeting point ``arrivals``, refused a call that they may have made."""
    line, before = control + rank * LINE, refusals(control, rank, arrivals)
    store_release(line + Line.REFUSALS, np.int32(before + 1))
    store_release(line + Line.REFUSED_AT, np.int32(arrivals))


@bare
def reached(control: int, rank: int, arrivals: int) -> Any:
    """Say whether ``rank`` arrived at meeting point ``arrivals``."""
    return has_reached(control + rank * LINE, arrivals)


@bare
def mark_mismatch(control: int, rank: int, arrivals: int) -> None:
    """Tell the other ranks that another host made a different call than this one, which began at ``arrivals``."""
    store_release(control + rank * LINE + Line.MISMATCH_AT, np.int32(arrivals))


@bare
def mismatched(control: int, rank: int, arrivals: int) -> Any:
    """Say whether ``rank`` found that another host made a different call than the one that began at ``arrivals``."""
    return load_acquire(control + rank * LINE + Line.MISMATCH_AT) == np.int32(arrivals)
