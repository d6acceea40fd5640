"""MPI requests in compiled code: start persistent requests, and wait for requests without the GIL.

Functions and sizes are those of ``MpiLibrary.addresses``; requests are given by the address of an array of handles.
A wait polls as often as it can for 5 ms, letting other processes run, then every 50 us. It returns WAITING after
100 ms, so that the caller can look for signals, dead ranks and its deadline.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from gcl.core.prepared_call import BROKEN, DONE, WAITING
from gcl.kernels.jit import bare, bare_part
from gcl.kernels.system_calls import call_with_2, call_with_4, clock_gettime, nanosleep, sched_yield

__all__ = ["REQUEST_BYTES", "Message", "new_work", "start", "start_and_wait", "wait", "wait_for"]

_START_ALL, _TEST_ALL, REQUEST_BYTES, _STATUS_BYTES = range(4)

#: Polls before other processes may run: as many as MPICH's own where every rank can have a core, else few.
_POLLS, _POLLS_OF_MANY = 1000, 20
_BUSY_SECONDS, _LONGEST_SECONDS = 5e-3, 0.1
_NAP_NANOSECONDS = 50_000
_CLOCK_MONOTONIC = 1
_FLAG, _TIME, _NAP, _PATIENCE, _STATUSES = 0, 1, 3, 5, 6  # words of ``work``


class Message(NamedTuple):
    """A message to or from ``rank`` that was begun, or prepared: its requests, and its ``data``, kept alive."""

    rank: int
    requests: tuple[int, ...]
    data: np.ndarray | None = None


def new_work(addresses: np.ndarray, requests: int, *, crowded: bool = False) -> np.ndarray:
    """Memory that waiting for so many requests takes: a flag, the time, the length of a nap, polls, statuses.

    ``crowded``: the ranks of this machine are more than its cores.
    """
    work = np.zeros(_STATUSES + requests * int(addresses[_STATUS_BYTES]) // 8 + 1, np.int64)
    work[_NAP + 1], work[_PATIENCE] = _NAP_NANOSECONDS, _POLLS_OF_MANY if crowded else _POLLS
    return work


@bare_part
def start(addresses: Any, requests: int, count: int) -> Any:
    """Start ``count`` persistent requests; say whether MPI did."""
    return call_with_2(addresses[_START_ALL], count, requests) == 0


@bare_part
def _now(work: Any) -> Any:
    """Seconds of a clock that only grows."""
    clock_gettime(np.int32(_CLOCK_MONOTONIC), work.ctypes.data + 8 * _TIME)
    return work[_TIME] + 1e-9 * work[_TIME + 1]


@bare_part
def wait_for(addresses: Any, requests: int, count: int, work: Any) -> Any:
    """Complete ``count`` requests: DONE, WAITING, or BROKEN where MPI found an error."""
    flag = work.ctypes.data
    polls, begun = 0, 0.0
    while call_with_4(addresses[_TEST_ALL], count, requests, flag, flag + 8 * _STATUSES) == 0:
        if work[_FLAG] & 0xFFFFFFFF:
            return DONE
        polls += 1
        if polls < work[_PATIENCE]:
            continue
        now = _now(work)
        if polls == work[_PATIENCE]:
            begun = now
        if now - begun < _BUSY_SECONDS:
            sched_yield()
        elif now - begun < _LONGEST_SECONDS:
            nanosleep(flag + 8 * _NAP, 0)
        else:
            return WAITING
    return BROKEN


@bare
def wait(addresses: Any, requests: int, count: int, work: Any) -> Any:
    """``wait_for``, called from Python."""
    return wait_for(addresses, requests, count, work)


@bare
def start_and_wait(addresses: Any, requests: int, count: int, work: Any) -> Any:
    """Start persistent requests and complete them: DONE, WAITING or BROKEN."""
    return wait_for(addresses, requests, count, work) if start(addresses, requests, count) else BROKEN
