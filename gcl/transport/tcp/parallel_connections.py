"""streams: bytes moved over several connections at once, by compiled code without the GIL.

A table has a line of words for each connection: its file descriptor, whether it has ended, two queues of segments,
those to send and those to fill, and what lending takes. Queues are rings; their counters only grow, so that a segment
is complete when the counter of its queue has passed it:

    words   0     1      2     3         4     5         6 ...
            fd    ended  done  queued    done  queued    loan    then the segments, (address, bytes left, lent) each:
                         to send         to fill                 as many to send as to fill
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gcl.kernels.atomics import load_acquire
from gcl.kernels.jit import bare, bare_part
from gcl.kernels.system_calls import errno_location, poll, recv, sched_yield, send
from gcl.transport.tcp.vmsplice import LOAN_WORDS, lend

__all__ = [
    "ENDED",
    "FILL",
    "LOAN",
    "SEND",
    "advance",
    "complete",
    "is_full",
    "move",
    "new_table",
    "queue",
    "room_for",
    "widened",
]

ENDED, SEND, FILL = 1, 2, 4
#: the words of a line that lending takes
LOAN = slice(6, 6 + LOAN_WORDS)
_FD, _SEGMENTS = 0, LOAN.stop
_LOAN_START, _LOAN_STOP = LOAN.start, LOAN.stop
_WORDS = 3  # of a segment
_CAPACITY = 64  # segments in a queue at first
_PIECE = 1 << 18  # bytes given to the kernel, or taken from it, before the other direction has its turn
_YIELDS = 2000  # before sleeping
_NAP_MILLISECONDS = 100

_MSG_DONTWAIT, _MSG_NOSIGNAL, _MSG_MORE = 0x40, 0x4000, 0x8000
_EINTR, _EAGAIN = 4, 11
_POLLIN, _POLLOUT = 1, 4


def new_table(descriptors: list[int], capacity: int = _CAPACITY) -> np.ndarray:
    """A line for each connection, with empty queues of ``capacity`` segments."""
    table = np.zeros((len(descriptors), room_for(capacity)), np.int64)
    table[:, _FD] = descriptors
    return table


def widened(table: np.ndarray) -> np.ndarray:
    """The same with room for twice as many segments."""
    capacity = (table.shape[1] - _SEGMENTS) // (2 * _WORDS)
    wide = new_table(list(table[:, _FD]), 2 * capacity)
    wide[:, ENDED], wide[:, LOAN] = table[:, ENDED], table[:, LOAN]
    for line, found in zip(wide, table, strict=True):
        for way in (SEND, FILL):
            line[way] = line[way + 1] = found[way]
            for count in range(found[way], found[way + 1]):
                at = _position(found, way, count)
                queue(line, way, *found[at : at + _WORDS])
    return wide


@bare
def _position(line: Any, way: int, count: int) -> Any:
    """Where the segment that is number ``count`` of its queue stands."""
    capacity = (len(line) - _SEGMENTS) // (2 * _WORDS)
    return _SEGMENTS + _WORDS * ((way - SEND) // (FILL - SEND) * capacity + count % capacity)


def room_for(segments: int) -> int:
    """How many words a line with queues of ``segments`` has."""
    return _SEGMENTS + 2 * _WORDS * segments


def is_full(line: np.ndarray, way: int) -> bool:
    """Say whether a queue has no room."""
    return bool(line[way + 1] - line[way] == (len(line) - _SEGMENTS) // (2 * _WORDS))


@bare
def queue(line: Any, way: int, address: int, nbytes: int, lent: int) -> Any:
    """Append a segment to a queue (SEND or FILL) that has room; return the count that completes it."""
    position = _position(line, way, line[way + 1])
    line[position], line[position + 1], line[position + 2] = address, nbytes, lent
    line[way + 1] += 1
    return line[way + 1]


@bare_part
def _advance(line: Any, way: int) -> Any:
    """Move one piece of a queue, as far as the kernel takes, or gives, it at once; say whether anything was moved."""
    if line[way] == line[way + 1] or line[ENDED]:
        return False
    position = _position(line, way, line[way])
    address, left = line[position], line[position + 1]
    size = min(left, _PIECE)
    if way == SEND:
        # a header and what follows it leave together
        more = size == left and line[way + 1] - line[way] > 1
        if line[position + 2]:
            moved = lend(line[_FD], line[_LOAN_START:_LOAN_STOP], address, size, more)
        else:
            moved = send(line[_FD], address, size, _MSG_DONTWAIT | _MSG_NOSIGNAL | (_MSG_MORE if more else 0))
    else:
        moved = recv(line[_FD], address, size, _MSG_DONTWAIT)
    if moved < 0:
        error = load_acquire(errno_location())
        if error != _EAGAIN and error != _EINTR and (way == FILL or line[FILL] == line[FILL + 1]):
            line[ENDED] = 1  # what came before the end can still be read
        return False
    if moved == 0:
        line[ENDED] = 1
        return False
    line[position] += moved
    line[position + 1] -= moved
    if moved == left:
        line[way] += 1
    return True


@bare
def advance(line: Any) -> Any:
    """Move a piece in each direction of one connection, without waiting; say whether anything was moved."""
    filled = _advance(line, FILL)
    return _advance(line, SEND) or filled


@bare_part
def _sleep(table: Any, polled: Any) -> Any:
    """Wait until something can be moved; False after a while, or on a signal."""
    for peer in range(len(table)):
        line = table[peer]
        events = (_POLLIN if line[FILL] < line[FILL + 1] else 0) | (_POLLOUT if line[SEND] < line[SEND + 1] else 0)
        # struct pollfd: a descriptor, which is skipped if it is negative, what to wait for, and what was found
        descriptor = line[_FD] if events and not line[ENDED] else -1
        polled[peer] = (descriptor & 0xFFFFFFFF) | (events << 32)
    return poll(polled.ctypes.data, len(table), _NAP_MILLISECONDS) > 0


@bare
def complete(table: Any, targets: Any) -> Any:
    """Say whether each connection's counters, of what was sent and filled, have come as far as ``targets``."""
    for peer in range(len(table)):
        if table[peer, SEND] < targets[peer, 0] or table[peer, FILL] < targets[peer, 1]:
            return False
    return True


@bare_part
def _hopeless(table: Any, targets: Any) -> Any:
    """Say whether a connection has ended that is not ``complete``."""
    for peer in range(len(table)):
        line = table[peer]
        if line[ENDED] and (line[SEND] < targets[peer, 0] or line[FILL] < targets[peer, 1]):
            return True
    return False


@bare
def move(table: Any, targets: Any, polled: Any) -> Any:
    """Move segments until all are ``complete``; False when the caller should look why they are not yet."""
    idle = 0
    while not complete(table, targets):
        moved = False
        for peer in range(len(table)):
            if advance(table[peer]):
                moved = True
        if moved:
            idle = 0
            continue
        idle += 1
        if idle < _YIELDS:
            sched_yield()
        elif _hopeless(table, targets) or not _sleep(table, polled):
            return False
    return True
