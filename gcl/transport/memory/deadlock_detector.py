"""Deadlock detector: finds ranks that wait for each other in different communicators of the same processes.

    rank 0   A.all_reduce (waits for rank 1)    B.all_reduce
    rank 1   B.all_reduce (waits for rank 0)    A.all_reduce

A rank that has waited for a second, in a process whose other threads are all idle, counts a heartbeat in its line of
the control block each time it checks, and reads the heartbeats and arrivals of the other ranks in the other
communicators. Two ranks that both have heartbeats, and neither of which has arrived where the other waits, can never
continue. Rank 0 reports it, because a rank that waits for rank 0 and is waited for by it is found as soon as rank 0
waits too: all ranks then get the same error. Where a process has another thread at work, that thread may still make
the missing call: nothing is reported, and the time-out decides.
"""

from __future__ import annotations

import sys
import threading
import weakref
from collections.abc import Callable
from time import monotonic
from types import FrameType
from typing import NamedTuple

from gcl.core import handle
from gcl.core.handle import Handle, Runner
from gcl.core.request import Request
from gcl.errors import CollectiveMismatch
from gcl.transport.memory.memory_domain import MemoryDomain
from gcl.transport.rendezvous.rendezvous import CROSSED, Line, left, line_of, mark_left

#: Seconds of waiting before a rank looks for a deadlock.
_PATIENCE = 1.0
#: Heartbeats of another rank since this one began to look, so that both were seen waiting at the same time.
_LEAST_HEARTBEATS = 2
_ARRIVALS, _HEARTBEATS = Line.ARRIVALS // 4, Line.HEARTBEATS // 4  # of the 32-bit words of a line
_HALF = 1 << 31
#: Number of frames between the innermost frame of a thread that waits for a handle and ours.
_DEPTH = 4


class WaitStatus:
    """What the ranks of ``domain``, which ``describe`` names, have published in the control block while they wait.

    ``fail(error)`` ends the communicator for this rank.
    """

    def __init__(
        self, domain: MemoryDomain, describe: Callable[[int], str], fail: Callable[[BaseException], None]
    ) -> None:
        self.domain, self.describe, self._fail = domain, describe, weakref.WeakMethod(fail)
        self.me = domain.rank
        if domain.communicators is not None:
            domain.communicators.add(self)

    def siblings(self) -> list[WaitStatus]:
        """The statuses of all communicators of the same processes, including this one; none for threads."""
        others = self.domain.communicators or ()
        return [status for status in others if status.domain.processes == self.domain.processes]

    def arrivals(self, rank: int) -> int:
        """Number of meeting points at which ``rank`` has arrived."""
        return int(line_of(self.domain.control, rank)[_ARRIVALS])

    def ahead(self, rank: int) -> int:
        """How many meeting points ``rank`` is ahead of this one; the counts wrap."""
        return (self.arrivals(rank) - self.arrivals(self.me) + _HALF) % (2 * _HALF) - _HALF

    def is_awaited(self) -> bool:
        """Whether some rank waits for this one."""
        return self.waiting() > 0

    def waiting(self) -> int:
        """Number of ranks that wait for this one."""
        return sum(self.ahead(rank) > 0 for rank in range(self.domain.ranks))

    def heartbeats(self, rank: int) -> int:
        """Number of times ``rank`` published that it waits while no other thread of its process can make progress."""
        return int(line_of(self.domain.control, rank)[_HEARTBEATS])

    def heartbeat(self) -> None:
        """Publish that this rank waits while no other thread of its process can make progress."""
        line_of(self.domain.control, self.me)[_HEARTBEATS] += 1

    def report(self, error: CollectiveMismatch) -> None:
        """Publish ``error`` to every rank that waits here, and end the communicator for this one."""
        self.domain.write_text(str(error))
        mark_left(self.domain.control.ctypes.data, self.me, CROSSED)
        fail = self._fail()
        if fail is not None:
            fail(error)

    def raise_reported(self) -> None:
        """Raise what some rank has reported."""
        for rank in range(self.domain.ranks):
            if left(self.domain.control.ctypes.data, rank) == CROSSED:
                raise CollectiveMismatch(self.domain.read_text(rank))


class _Waiter(NamedTuple):
    """``rank`` waits in the communicator of ``status``."""

    rank: int
    status: WaitStatus

    @property
    def call(self) -> tuple[str, str]:
        """The waiting rank, and its call, in words."""
        return self.status.describe(self.rank), self.status.domain.read_text(self.rank)


class DeadlockDetector:
    """Watches one wait of this rank, in ``request``, in the communicator of ``status``."""

    def __init__(self, status: WaitStatus, request: Request) -> None:
        self._status, self._request = status, request
        self._since = monotonic()
        self._first_seen: dict[tuple[WaitStatus, int], tuple[int, int]] = {}

    def look(self) -> None:
        """Raise CollectiveMismatch if this wait can never end; all ranks concerned raise the same."""
        if monotonic() < self._since + _PATIENCE:
            return
        status = self._status
        status.raise_reported()
        siblings = status.siblings() if all_other_threads_idle() else []  # nobody else makes communicators then
        if len(siblings) < 2:
            self._first_seen.clear()
            return
        if not self._first_seen:
            status.domain.write_text(self._request.with_call_site())
        status.heartbeat()
        waiters = [waiter for sibling in siblings for waiter in self._waiters(sibling)]
        crossing = [waiter for waiter in waiters if waiter.status is not status and status.ahead(waiter.rank) < 0]
        if crossing and status.me == 0:  # one rank reports, so that all get the same text
            self._report(min(crossing, key=lambda waiter: waiter.rank), list(filter(WaitStatus.is_awaited, siblings)))

    def _waiters(self, status: WaitStatus) -> list[_Waiter]:
        """Ranks that have waited in ``status``, for this rank or beside it, since this one began to look."""
        waiters = []
        for rank in range(status.domain.ranks):
            arrivals, heartbeats = status.arrivals(rank), status.heartbeats(rank)
            first = self._first_seen.setdefault((status, rank), (arrivals, heartbeats))
            waits = status.ahead(rank) > 0 or (status is self._status and status.ahead(rank) == 0)
            if rank != status.me and waits and arrivals == first[0] and heartbeats - first[1] >= _LEAST_HEARTBEATS:
                waiters.append(_Waiter(rank, status))
        return waiters

    def _report(self, other: _Waiter, awaited: list[WaitStatus]) -> None:
        error = CollectiveMismatch.crossed(_Waiter(self._status.me, self._status).call, other.call)
        for status in (self._status, *awaited):
            status.report(error)
        raise error


def all_other_threads_idle() -> bool:
    """Whether all threads of this process but the calling one are idle, or wait for the collective of this one."""
    me = threading.current_thread()
    others = [frame for ident, frame in sys._current_frames().items() if ident != me.ident]
    return all(_is_idle(frame) or _waits_for(me, frame) for frame in others)


def _is_idle(frame: FrameType) -> bool:
    """Whether a thread waits until another one gives it work: a Runner, or one of concurrent.futures."""
    name = frame.f_globals.get("__name__"), frame.f_code.co_name
    return frame.f_code is handle.work.__code__ or name == ("concurrent.futures.thread", "_worker")


def _waits_for(thread: threading.Thread, frame: FrameType | None) -> bool:
    for _ in range(_DEPTH):
        if frame is None:
            return False
        mine = frame.f_locals.get("self")
        if frame.f_code is Handle.wait.__code__ and isinstance(mine, Handle):
            return mine.thread is thread and frame.f_locals.get("timeout") is None and not mine.done
        if frame.f_code is Runner.drain.__code__ and isinstance(mine, Runner):
            return mine.thread is thread
        frame = frame.f_back
    return False
