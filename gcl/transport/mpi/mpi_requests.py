"""MPI requests in compiled code: start persistent requests, and wait for requests without the GIL.

Functions and sizes are those of ``MpiLibrary.addresses``; requests are given by the address of an array of handles.
A wait polls as often as it can for 5 ms (50 us where ranks share cores) and for as long as its bytes may take, then
every 50 us; while the program computes, every 200 us from the start. It returns WAITING after 100 ms, so that the
caller can look for signals, dead ranks and its deadline.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np

from gcl.core.prepared_call import BROKEN, DONE, WAITING
from gcl.kernels.jit import bare, bare_part
from gcl.kernels.system_calls import call_with_2, call_with_4, clock_gettime, nanosleep, sched_yield


class Library(IntEnum):
    """Index of each word of ``MpiLibrary.addresses``."""

    START_ALL = 0  # address of MPI_Startall
    TEST_ALL = 1  # address of MPI_Testall
    REQUEST_BYTES = 2  # size of a request handle
    STATUS_BYTES = 3  # size of a status


class Work(IntEnum):
    """Index of each word of the memory of a wait (``new_work``)."""

    FLAG = 0  # written by MPI_Testall: whether all requests are complete
    NOW_SECONDS = 1  # with the next word a struct timespec: the time
    NOW_NANOSECONDS = 2
    NAP_SECONDS = 3  # with the next word a struct timespec: a sleep between two polls
    NAP_NANOSECONDS = 4
    BUSY_NANOSECONDS = 5  # of polling without sleep
    STATUSES = 6  # the first word of the statuses that MPI_Testall writes


#: Polls before yielding the core: as many as in MPICH.
_POLLS = 20
#: How long a wait polls without sleeping. Where ranks have to share cores it must sleep, since sched_yield lets no
#: process of another session run (the kernel gives each session its own share of a core).
_BUSY_NANOSECONDS, _BUSY_NANOSECONDS_CROWDED = 5_000_000, 50_000
#: Nanoseconds per byte for which a wait polls beyond that: MPI moves bytes over sockets only while it is polled.
_NANOSECONDS_PER_BYTE = 5
_LONGEST_SECONDS = 0.1
_NAP_NANOSECONDS = 50_000
#: The sleep between polls while the program computes: a poll, with its thread switches, takes 5 us from the program.
_NAP_NANOSECONDS_BACKGROUND = 200_000
_CLOCK_MONOTONIC = 1


class Tag(IntEnum):
    """The tags of messages in the communicator of a transport."""

    DATA = 0
    HEADER = 1  # of ``gcl.transport.messages.announcements``
    FAREWELL = 2  # empty: the sender has left
    CALLS = 3  # the first of those that say which call a message belongs to


class Message(NamedTuple):
    """A message to or from ``rank`` that was started or prepared: its requests, and its ``data``, kept alive."""

    rank: int
    requests: tuple[int, ...]
    data: np.ndarray | None = None


class Pace(NamedTuple):
    """How long a wait polls without sleeping, and how long it sleeps between later polls: nanoseconds."""

    busy: int
    nap: int

    @classmethod
    def of(cls, nbytes: int, *, crowded: bool = False, background: bool = False) -> Pace:
        """That of a wait for messages of ``nbytes``.

        ``crowded``: this machine has more ranks than cores. ``background``: the program computes meanwhile.
        """
        if background:
            return cls(0, _NAP_NANOSECONDS_BACKGROUND)
        at_least = _BUSY_NANOSECONDS_CROWDED if crowded else _BUSY_NANOSECONDS
        return cls(at_least + _NANOSECONDS_PER_BYTE * nbytes, _NAP_NANOSECONDS)


def new_work(addresses: np.ndarray, requests: int, pace: Pace) -> np.ndarray:
    """The memory that a wait for ``requests`` requests needs, one word per ``Work`` and the statuses."""
    words = {Work.BUSY_NANOSECONDS: pace.busy, Work.NAP_NANOSECONDS: pace.nap}
    fixed = [words.get(word, 0) for word in Work if word < Work.STATUSES]
    return np.array([*fixed, *[0] * (requests * int(addresses[Library.STATUS_BYTES]) // 8 + 1)], np.int64)


@bare_part
def start(addresses: Any, requests: int, count: int) -> Any:
    """Start ``count`` persistent requests; return whether MPI accepted them."""
    return call_with_2(addresses[Library.START_ALL], count, requests) == 0


@bare_part
def _now(work: Any) -> Any:
    """Seconds of a monotonic clock."""
    clock_gettime(np.int32(_CLOCK_MONOTONIC), work.ctypes.data + 8 * Work.NOW_SECONDS)
    return work[Work.NOW_SECONDS] + 1e-9 * work[Work.NOW_NANOSECONDS]


@bare_part
def wait_for(addresses: Any, requests: int, count: int, work: Any) -> Any:
    """Complete ``count`` requests: DONE, WAITING, or BROKEN where MPI found an error."""
    flag = work.ctypes.data
    polls, begun = _POLLS, 0.0
    while call_with_4(addresses[Library.TEST_ALL], count, requests, flag, flag + 8 * Work.STATUSES) == 0:
        if work[Work.FLAG] & 0xFFFFFFFF:
            return DONE
        polls -= 1
        if polls > 0:
            continue
        now = _now(work)
        begun = begun or now
        if now - begun >= _LONGEST_SECONDS:
            return WAITING
        if now - begun < 1e-9 * work[Work.BUSY_NANOSECONDS]:
            sched_yield()
            polls = _POLLS
        else:
            nanosleep(flag + 8 * Work.NAP_SECONDS, 0)
            polls = 1
    return BROKEN


@bare
def wait(addresses: Any, requests: int, count: int, work: Any) -> Any:
    """``wait_for``, called from Python."""
    return wait_for(addresses, requests, count, work)


@bare
def start_and_wait(addresses: Any, requests: int, count: int, work: Any) -> Any:
    """Start persistent requests and complete them: DONE, WAITING or BROKEN."""
    return wait_for(addresses, requests, count, work) if start(addresses, requests, count) else BROKEN
