"""tcp: messages between hosts over connections of their own: the kernel moves bytes while ranks combine others.

Between two ranks goes a plain stream of bytes, because both know what comes next. A connection that ends tells at
once that a rank has left, or died.
"""

from __future__ import annotations

import os
import socket
import weakref
from collections.abc import Sequence
from contextlib import suppress
from time import monotonic
from typing import NamedTuple

import numpy as np

from gcl.transport.tcp.parallel_connections import (
    ENDED,
    FILL,
    LOAN,
    SEND,
    advance,
    complete,
    is_full,
    move,
    new_table,
    queue,
    room_for,
    widened,
)
from gcl.transport.tcp.vmsplice import can_lend, open_pipe

__all__ = ["TcpMessages"]

_GONE = "whose connection has ended: it has left, or its process has died; look at its output"


_LENT_BYTES = 1 << 16  # less is copied as quickly
_PIPES = 64  # at most, of two descriptors each
_NOTHING = np.empty(0, np.uint8)


class _Message(NamedTuple):
    """One message under way: complete when its queue has come to ``goal``. It keeps its ``data`` alive."""

    rank: int
    way: int
    goal: int
    data: np.ndarray


class TcpMessages:
    """Messages between the ranks at the other ends of ``connections``."""

    name = "tcp"
    lends = True

    def __init__(self, rank: int, connections: dict[int, socket.socket]) -> None:
        self.rank, self.ranks = rank, len(connections) + 1
        self._connections = dict(sorted(connections.items()))
        for connection in connections.values():
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection.setblocking(False)
        #: the line of each rank's connection in the table
        self.places = {peer: place for place, peer in enumerate(self._connections)}
        #: the connections as compiled code has them, in the order of their ranks
        self.table = new_table([connection.fileno() for connection in self._connections.values()])
        self.polled = np.zeros(len(connections), np.int64)
        self._closed = False
        self._pipes: list[int] = []
        weakref.finalize(self, _close_all, self._pipes)

    def send(self, to: int, data: np.ndarray, *, lent: bool = False) -> _Message:
        message = self._queue(to, SEND, data, lent=lent and data.nbytes >= _LENT_BYTES and self._has_pipe(to))
        line = self.table[self.places[to]]
        if line[SEND] + 1 == message.goal:
            advance(line)
        return message

    def receive(self, frm: int, data: np.ndarray) -> _Message:
        return self._queue(frm, FILL, data)

    def sent(self, to: int) -> _Message:
        """All that was sent to a rank so far, as one message."""
        return _Message(to, SEND, int(self.table[self.places[to], SEND + 1]), _NOTHING)

    def wait(self, pending: Sequence[_Message], *, timeout: float) -> list[int]:
        deadline = monotonic() + timeout
        targets = np.zeros((len(self.table), 2), np.int64)
        for rank, way, goal, _ in pending:
            place, column = self.places[rank], way // FILL
            targets[place, column] = max(targets[place, column], goal)
        while not move(self.table, targets, self.polled):
            if late := self.late(targets, deadline):
                return late
        return []

    def late(self, targets: np.ndarray, deadline: float) -> list[int]:
        """The ranks that have not come to ``targets``, if it is no use to wait longer for them."""
        late = [rank for rank, place in self.places.items() if self._waits(place, targets)]
        ended = any(self.table[self.places[rank], ENDED] for rank in late)
        return late if self._closed or ended or monotonic() > deadline else []

    def reserve(self, segments: int) -> None:
        """Make room for so many segments in every queue."""
        while self.table.shape[1] < room_for(segments):
            self.table = widened(self.table)

    def gone(self, rank: int) -> str:
        return _GONE if self._has_ended(rank) else ""

    def close(self) -> None:
        """Tell the others. What they sent stays readable for this process until the connections are forgotten."""
        self._closed = True
        for connection in self._connections.values():
            with suppress(OSError):
                connection.shutdown(socket.SHUT_WR)

    def _has_pipe(self, to: int) -> bool:
        """Say whether data can be lent to a rank."""
        loan = self.table[self.places[to], LOAN]
        if not loan.any() and len(self._pipes) < 2 * _PIPES and can_lend() and (ends := open_pipe()):
            loan[: len(ends)] = ends
            self._pipes += ends
        return bool(loan.any())

    def _queue(self, rank: int, way: int, data: np.ndarray, *, lent: bool = False) -> _Message:
        if not data.nbytes:
            return _Message(rank, way, 0, data)
        place = self.places[rank]
        if is_full(self.table[place], way):
            self.table = widened(self.table)
        line = self.table[place]
        return _Message(rank, way, queue(line, way, data.__array_interface__["data"][0], data.nbytes, lent), data)

    def _waits(self, place: int, targets: np.ndarray) -> bool:
        """Say whether something is missing on one connection."""
        return not complete(self.table[place : place + 1], targets[place : place + 1])

    def _has_ended(self, rank: int) -> bool:
        """Say whether nothing more will come."""
        line = self.table[self.places[rank]]
        if not line[ENDED]:
            with suppress(BlockingIOError):
                try:
                    line[ENDED] = not self._connections[rank].recv(1, socket.MSG_PEEK)
                except OSError as error:
                    if isinstance(error, BlockingIOError):
                        raise
                    line[ENDED] = 1
        return bool(line[ENDED])


def _close_all(descriptors: list[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)
