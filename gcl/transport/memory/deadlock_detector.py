"""crossed: ranks that wait for each other for ever, each in another communicator of the same processes.

    rank 0   A.all_reduce (waits for rank 1)    B.all_reduce
    rank 1   B.all_reduce (waits for rank 0)    A.all_reduce

A rank that has waited for a second says so in its line of the control block, again and again while nothing else in
its process could go on (``idle_threads``), and looks at what the others say in other communicators. Two that miss
each other will wait for ever, whatever else happens. Then there is also one that misses rank 0, and is missed by it,
as soon as rank 0 waits too: that rank tells everybody. Where a process has other threads at work, any of them may yet
call what is missed: nothing is said, and the time-out decides.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from time import monotonic
from typing import NamedTuple

from gcl.core.request import Request
from gcl.errors import CollectiveMismatch
from gcl.transport.memory.idle_threads import is_stuck
from gcl.transport.memory.memory_domain import MemoryDomain
from gcl.transport.rendezvous.rendezvous import CROSSED, left, line_of, mark_left

__all__ = ["Board", "Lookout"]

_PATIENCE = 1.0
#: How often a rank must have said that it is stuck since this one is, so that both are at the same time.
_BEATS = 2
_ARRIVALS, _BEAT = 0, 20  # of the 32-bit words of a line
_HALF = 1 << 31


class Board:
    """What the ranks of ``domain``, which ``describe`` names, say of themselves while they wait.

    ``fail(error)`` ends the communicator for this rank.
    """

    def __init__(
        self, domain: MemoryDomain, describe: Callable[[int], str], fail: Callable[[BaseException], None]
    ) -> None:
        self.domain, self.describe, self._fail = domain, describe, weakref.WeakMethod(fail)
        self.me = domain.rank
        _BOARDS.add(self)

    def siblings(self) -> list[Board]:
        """The boards of all communicators of the same processes, this one too; none for threads."""
        processes = self.domain.processes
        return [board for board in list(_BOARDS) if processes and board.domain.processes == processes]

    def arrivals(self, rank: int) -> int:
        """At how many meeting points ``rank`` has been."""
        return int(line_of(self.domain.control, rank)[_ARRIVALS])

    def ahead(self, rank: int) -> int:
        """How many meeting points ``rank`` is before this one; the counts wrap."""
        return (self.arrivals(rank) - self.arrivals(self.me) + _HALF) % (2 * _HALF) - _HALF

    def is_late(self) -> bool:
        """Say whether some rank waits for this one."""
        return any(self.ahead(rank) > 0 for rank in range(self.domain.ranks))

    def beats(self, rank: int) -> int:
        """How often ``rank`` said that it is stuck."""
        return int(line_of(self.domain.control, rank)[_BEAT])

    def beat(self) -> None:
        """Say that this rank is stuck."""
        line_of(self.domain.control, self.me)[_BEAT] += 1

    def declare(self, error: CollectiveMismatch) -> None:
        """Tell everyone who waits here, and take part no more."""
        self.domain.write_text(str(error))
        mark_left(self.domain.control.ctypes.data, self.me, CROSSED)
        fail = self._fail()
        if fail is not None:
            fail(error)

    def look_for_declared(self) -> None:
        """Raise what some rank declared."""
        for rank in range(self.domain.ranks):
            if left(self.domain.control.ctypes.data, rank) == CROSSED:
                raise CollectiveMismatch(self.domain.read_text(rank))


#: All of this process, because it is processes that are stuck.
_BOARDS: weakref.WeakSet[Board] = weakref.WeakSet()


class _Stuck(NamedTuple):
    """``rank`` waits on ``board``."""

    rank: int
    board: Board

    @property
    def said(self) -> tuple[str, str]:
        """Who it is, and what it called."""
        return self.board.describe(self.rank), self.board.domain.read_text(self.rank)


class Lookout:
    """One wait of this rank on ``board``, in ``request``."""

    def __init__(self, board: Board, request: Request) -> None:
        self._board, self._request = board, request
        self._since = monotonic()
        self._seen: dict[tuple[Board, int], tuple[int, int]] = {}

    def look(self) -> None:
        """Raise CollectiveMismatch if this wait can have no end; all that are concerned raise the same."""
        if monotonic() < self._since + _PATIENCE:
            return
        board = self._board
        board.look_for_declared()
        siblings = board.siblings() if is_stuck() else []  # nobody else makes communicators then
        if len(siblings) < 2:
            self._seen.clear()
            return
        if not self._seen:
            board.domain.write_text(self._request.with_call_site())
        board.beat()
        stuck = [one for sibling in siblings for one in self._stuck_on(sibling)]
        crossing = [one for one in stuck if one.board is not board and board.ahead(one.rank) < 0]
        if crossing and board.me == 0:  # one says it, so that all hear the same
            self._declare(min(crossing, key=lambda one: one.rank), [one for one in siblings if one.is_late()])

    def _stuck_on(self, board: Board) -> list[_Stuck]:
        """Those of ``board`` that have been stuck there, without this rank or with it, since it is stuck itself."""
        found = []
        for rank in range(board.domain.ranks):
            arrivals, beats = board.arrivals(rank), board.beats(rank)
            first = self._seen.setdefault((board, rank), (arrivals, beats))
            waits = board.ahead(rank) > 0 or (board is self._board and board.ahead(rank) == 0)
            if rank != board.me and waits and arrivals == first[0] and beats - first[1] >= _BEATS:
                found.append(_Stuck(rank, board))
        return found

    def _declare(self, other: _Stuck, late: list[Board]) -> None:
        me = _Stuck(self._board.me, self._board)
        error = CollectiveMismatch.crossed(me.said, other.said)
        for board in (self._board, *late):
            board.declare(error)
        raise error
