"""Rendezvous: the control block in which ranks that share memory announce a call, wait for each other, and leave.

Each rank owns one line of the control block and is its only writer (but for the waiters count):

    bytes  0   arrivals   int32, grows by one at each meeting point; what the others wait for
           4   waiters    int32, how many ranks sleep on this line
           8   post       6 x int64: signature of the call, offsets of its input and output,
                            their addresses in their own process, and its id
          56   core      int32, where it was when it arrived
          64   left       int32, LEFT when this rank closed its communicator, CROSSED when it found that ranks wait
                          for each other in several (gcl.transport.memory.deadlock_detector)
          68   refused    2 x int32: arrivals when a call of this rank was refused last, and how many were just then
          80   heartbeats int32, grows while this rank waits and nothing else in its process can go on
                          (gcl.transport.memory.deadlock_detector)

A wait spins briefly where every rank can have a core, then yields, then sleeps on a futex, so that ranks which
outnumber the cores do not steal time from the one they wait for. Ranks that could have a core each, but find
themselves on the same one, sleep at once: the system wakes a sleeper on an idle core, but leaves two that spin or
yield together for long (64 KiB on 2 cores: 4 us instead of 120). A wait returns after a fraction of a second at the
latest, so that the caller can look for dead peers, signals and its deadline.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gcl.kernels.atomics import (
    exchange,
    fetch_add,
    futex_wait,
    futex_wake,
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
    "arrive",
    "left",
    "line_of",
    "mark_left",
    "mark_refused",
    "post_of",
    "reached",
    "refusals",
    "wait_for_all",
]

LINE = 128  # bytes: two cache lines, because processors fetch them in pairs
POST_WORDS = 6
LEFT, CROSSED = 1, 2
_WAITERS, _POST, _CORE, _LEFT, _REFUSED_AT, _REFUSALS = 4, 8, 56, 64, 68, 72
_YIELDS, _SLEEPS = 200, 5


def line_of(control: np.ndarray, rank: int) -> np.ndarray:
    """The line of ``rank`` as 32-bit words."""
    return control[rank * LINE : (rank + 1) * LINE].view(np.int32)


@bare_part
def post_of(control: int, rank: int) -> Any:
    """The POST_WORDS words that ``rank`` announces."""
    return words_at(control + rank * LINE + _POST)


@bare_part
def arrive(control: int, rank: int, arrivals: int) -> None:
    """Publish all that this rank wrote so far, and that it reached meeting point ``arrivals``."""
    line = control + rank * LINE
    store_release(line + _CORE, sched_getcpu())
    exchange(line, np.int32(arrivals))
    if load_acquire(line + _WAITERS) > 0:
        futex_wake(line)


@bare_part
def _reached(line: int, arrivals: int) -> Any:
    return np.int32(load_acquire(line) - np.int32(arrivals)) >= 0


@bare_part
def _wait_for(line: int, arrivals: int, spins: int, timespec: int) -> Any:
    if _reached(line, arrivals):
        return True
    together = spins > 0 and load_acquire(line + _CORE) == sched_getcpu()
    for _ in range(0 if together else spins):
        if _reached(line, arrivals):
            return True
        pause()
    for _ in range(0 if together else _YIELDS):
        if _reached(line, arrivals):
            return True
        sched_yield()
    fetch_add(line + _WAITERS, np.int32(1))
    for _ in range(_SLEEPS):
        seen = load_acquire(line)
        if np.int32(seen - np.int32(arrivals)) >= 0:
            break
        futex_wait(line, seen, timespec)
    fetch_add(line + _WAITERS, np.int32(-1))
    return _reached(line, arrivals)


@bare_part
def wait_for_all(control: int, rank: int, ranks: int, arrivals: int, spins: int, timespec: int) -> int:
    """Wait until every rank reached meeting point ``arrivals``; -1, or a rank that did not come in time."""
    for step in range(1, ranks):
        peer = (rank + step) % ranks
        if not _wait_for(control + peer * LINE, arrivals, spins, timespec):
            return peer
    return -1


@bare
def mark_left(control: int, rank: int, why: int) -> None:
    """Tell the others that this rank takes part no more: LEFT or CROSSED."""
    exchange(control + rank * LINE + _LEFT, np.int32(why))


@bare
def left(control: int, rank: int) -> Any:
    """Why ``rank`` takes part no more, 0 if it does."""
    return load_acquire(control + rank * LINE + _LEFT)


@bare
def refusals(control: int, rank: int, arrivals: int) -> Any:
    """How many calls of ``rank`` were refused between meeting point ``arrivals`` and the next."""
    line = control + rank * LINE
    return load_acquire(line + _REFUSALS) if load_acquire(line + _REFUSED_AT) == np.int32(arrivals) else np.int32(0)


@bare
def mark_refused(control: int, rank: int, arrivals: int) -> None:
    """Tell the others that this rank, now at meeting point ``arrivals``, refused a call that they may have made."""
    line, before = control + rank * LINE, refusals(control, rank, arrivals)
    store_release(line + _REFUSALS, np.int32(before + 1))
    store_release(line + _REFUSED_AT, np.int32(arrivals))


@bare
def reached(control: int, rank: int, arrivals: int) -> Any:
    """Say whether ``rank`` arrived at meeting point ``arrivals``."""
    return _reached(control + rank * LINE, arrivals)
