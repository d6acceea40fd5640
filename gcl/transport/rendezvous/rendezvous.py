"""Rendezvous: the control block in shared memory through which ranks announce calls and wait for each other.

Each rank owns one line of the control block (``Line``) and is its only writer, but for the count of waiters.

A wait spins briefly if there is a core per rank, then yields, then sleeps on a futex, so that with more ranks than
cores the waiting ranks do not take time from the rank they wait for. If there is a core per rank, but two ranks run
on the same core, the waiting rank sleeps at once: Linux wakes a sleeping thread on an idle core, but is slow to
separate two threads that spin or yield on one core (64 KiB on 2 cores: 4 us instead of 120). It also sleeps at once
if ranks of other hosts share the cores, because yielding does not let them run.

As long as only ranks of the job use the cores, yielding is the fastest way to wait (all-reduces of 1 KiB of 4 ranks
on 2 cores: 0.11 ms; asleep 0.20). Any other program keeps the core for its whole time slice, which a woken rank does
not have to wait for (64 KiB, 8 ranks, 3 busy programs: asleep 1.5 ms; with yields 8). Therefore, after a yield that
took long, the next waits sleep without yielding: few after the first such yield, twice as many after each further
one, and fewer again when a rank has arrived while this one yielded.

A wait returns after a fraction of a second at the latest, so that the caller can check for dead peers, signals and
its deadline.
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
from gcl.kernels.system_calls import clock_gettime, sched_getcpu, sched_yield

LINE = 128  # bytes: two cache lines, because processors prefetch lines in pairs
_SPINS, _SLEEP_AT_ONCE, _YIELDS, _SLEEPS = 2000, -1, 200, 5
_NAP_NANOSECONDS = 20_000_000
#: Nanoseconds; ranks that work on chunks of a call give the core back within it, other programs after 3 ms or more.
_LONGEST_YIELD = 500_000
#: Waits without yields after a yield that took long: twice as many after each further one. 4096 take about a second.
_LEAST_ASLEEP, _MOST_ASLEEP = 16, 4096
_CLOCK_MONOTONIC = 1


def new_waits(ranks: int, cores: int, *, across_hosts: bool) -> list[int]:
    """The words (``Waits``) of a rank of ``ranks`` on a machine where they may use ``cores`` cores.

    ``across_hosts``: the machine has several hosts, with more ranks than cores.
    """
    words = dict.fromkeys(Waits, 0)
    words[Waits.SPINS] = _SLEEP_AT_ONCE if across_hosts else 0 if ranks > cores else _SPINS
    words[Waits.NAP_NANOSECONDS], words[Waits.NEXT_ASLEEP] = _NAP_NANOSECONDS, _LEAST_ASLEEP
    return list(words.values())


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


class Waits(IntEnum):
    """Index of each word that says how a rank waits; compiled code indexes these by ``.value``."""

    SPINS = 0  # looks before it yields; negative: it sleeps at once
    NAP_SECONDS = 1  # with the next word a struct timespec: the longest sleep
    NAP_NANOSECONDS = 2
    NOW_SECONDS = 3  # with the next word a struct timespec: the time
    NOW_NANOSECONDS = 4
    ASLEEP = 5  # number of waits that do not yield, because a yield took long
    NEXT_ASLEEP = 6  # what that becomes at the next yield that takes long


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
def _nanoseconds(waits: int) -> Any:
    """The time of a monotonic clock."""
    clock_gettime(np.int32(_CLOCK_MONOTONIC), waits + 8 * Waits.NOW_SECONDS)
    words = words_at(waits)
    return words[Waits.NOW_SECONDS.value] * 1_000_000_000 + words[Waits.NOW_NANOSECONDS.value]


@bare_part
def _yield_core(line: int, arrivals: int, waits: int) -> None:
    """Let other threads have the core for a while, unless one of them kept it for long a short time ago."""
    words = words_at(waits)
    if words[Waits.ASLEEP.value] > 0:
        words[Waits.ASLEEP.value] -= 1
        return
    for _ in range(_YIELDS):
        if has_reached(line, arrivals):
            words[Waits.NEXT_ASLEEP.value] = max(_LEAST_ASLEEP, words[Waits.NEXT_ASLEEP.value] // 2)
            return
        before = _nanoseconds(waits)
        sched_yield()
        if _nanoseconds(waits) - before > _LONGEST_YIELD:
            words[Waits.ASLEEP.value] = words[Waits.NEXT_ASLEEP.value]
            words[Waits.NEXT_ASLEEP.value] = min(_MOST_ASLEEP, 2 * words[Waits.NEXT_ASLEEP.value])
            return


@bare_part
def _sleep(line: int, arrivals: int, timespec: int) -> None:
    """Sleep until the rank of ``line`` arrives, or for a limited time."""
    fetch_add(line + Line.WAITERS, np.int32(1))
    for _ in range(_SLEEPS):
        seen = load_acquire(line)
        if np.int32(seen - np.int32(arrivals)) >= 0:
            break
        futex_wait(line, seen, timespec)
    fetch_add(line + Line.WAITERS, np.int32(-1))


@bare_part
def wait_for(control: int, peer: int, arrivals: int, waits: int) -> Any:
    """Wait a limited time until ``peer`` reached meeting point ``arrivals``; return whether it did.

    ``waits``: address of how this rank waits (``Waits``).
    """
    line, spins = control + peer * LINE, words_at(waits)[Waits.SPINS.value]
    if has_reached(line, arrivals):
        return True
    if spins > 0 and load_acquire(line + Line.CORE) == sched_getcpu():
        spins = _SLEEP_AT_ONCE
    for _ in range(spins):
        if has_reached(line, arrivals):
            return True
        pause()
    if spins >= 0:
        _yield_core(line, arrivals, waits)
    if not has_reached(line, arrivals):
        _sleep(line, arrivals, waits + 8 * Waits.NAP_SECONDS)
    return has_reached(line, arrivals)


@bare_part
def wait_for_all(control: int, rank: int, ranks: int, arrivals: int, waits: int) -> int:
    """Wait until every rank reached meeting point ``arrivals``; return -1, or a rank that did not in time."""
    for step in range(1, ranks):
        peer = (rank + step) % ranks
        if not wait_for(control, peer, arrivals, waits):
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
    """Whether ``rank`` arrived at meeting point ``arrivals``."""
    return has_reached(control + rank * LINE, arrivals)


@bare
def mark_mismatch(control: int, rank: int, arrivals: int) -> None:
    """Tell the other ranks that another host made a different call than this one, which began at ``arrivals``."""
    store_release(control + rank * LINE + Line.MISMATCH_AT, np.int32(arrivals))


@bare
def mismatched(control: int, rank: int, arrivals: int) -> Any:
    """Whether ``rank`` found that another host made a different call than the one that began at ``arrivals``."""
    return load_acquire(control + rank * LINE + Line.MISMATCH_AT) == np.int32(arrivals)
