"""tcp: messages between hosts over connections of their own: the kernel moves bytes while ranks combine others.

Between two ranks goes a plain stream of bytes, because both know what comes next. A connection that ends tells at
once that a rank has left, or died.
"""

from __future__ import annotations

import os
import select
import socket
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from time import monotonic

import numpy as np

__all__ = ["TcpMessages"]

_PIECE = 1 << 16  # bytes given to the kernel, or taken from it, before the other direction has its turn
_YIELDS = 100  # before sleeping: 6 % of a large all-reduce
_NAP_MILLISECONDS = 100
_GONE = "whose connection has ended: it has left, or its process has died; look at its output"


class _Message:
    """One message under way; ``rest`` is what the kernel has not taken, or given, yet."""

    __slots__ = ("rank", "rest")

    def __init__(self, rank: int, data: np.ndarray) -> None:
        self.rank = rank
        self.rest = data.view(np.uint8).data


class _Peer:
    """The connection to one rank."""

    def __init__(self, connection: socket.socket) -> None:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.setblocking(False)
        self.connection = connection
        self.sending: deque[_Message] = deque()
        self.receiving: deque[_Message] = deque()
        self.ended = False

    def advance(self) -> bool:
        """Move what can be moved without waiting, a piece in each direction; say whether anything was."""
        return self._receive() | self._send()

    def events(self) -> int:
        """What to wait for."""
        return (select.POLLIN if self.receiving else 0) | (select.POLLOUT if self.sending else 0)

    def has_ended(self) -> bool:
        """Say whether nothing more will come."""
        if not self.ended:
            with suppress(BlockingIOError):
                try:
                    self.ended = not self.connection.recv(1, socket.MSG_PEEK)
                except OSError as error:
                    if isinstance(error, BlockingIOError):
                        raise
                    self.ended = True
        return self.ended

    def _send(self) -> bool:
        queue = self.sending
        if not queue or self.ended:
            return False
        message = queue[0]
        try:
            taken = self.connection.send(message.rest[:_PIECE])
        except BlockingIOError:
            return False
        except OSError:
            self.ended = not self.receiving  # what came before the end can still be read
            return False
        message.rest = message.rest[taken:]
        if not message.rest:
            queue.popleft()
        return True

    def _receive(self) -> bool:
        queue = self.receiving
        if not queue or self.ended:
            return False
        message = queue[0]
        try:
            given = self.connection.recv_into(message.rest[:_PIECE])
        except BlockingIOError:
            return False
        except OSError:
            given = 0
        self.ended = not given
        message.rest = message.rest[given:]
        if not message.rest:
            queue.popleft()
        return not self.ended


class TcpMessages:
    """Messages between the ranks at the other ends of ``connections``."""

    name = "tcp"

    def __init__(self, rank: int, connections: dict[int, socket.socket]) -> None:
        self.rank, self.ranks = rank, len(connections) + 1
        self._peers = {peer: _Peer(connection) for peer, connection in connections.items()}
        self._closed = False

    def send(self, to: int, data: np.ndarray) -> _Message:
        message, peer = _Message(to, data), self._peers[to]
        if message.rest:
            peer.sending.append(message)
            if len(peer.sending) == 1:
                peer.advance()
        return message

    def receive(self, frm: int, data: np.ndarray) -> _Message:
        message = _Message(frm, data)
        if message.rest:
            self._peers[frm].receiving.append(message)
        return message

    def wait(self, pending: Sequence[_Message], *, timeout: float) -> list[int]:
        deadline = monotonic() + timeout
        peers = list(self._peers.values())
        first = idle = 0
        while True:
            while first < len(pending) and not pending[first].rest:
                first += 1
            if first == len(pending):
                return []
            if sum(peer.advance() for peer in peers):
                idle = 0
                continue
            idle += 1
            if idle < _YIELDS:
                os.sched_yield()
                continue
            late = [message.rank for message in pending[first:] if message.rest]
            if self._closed or monotonic() > deadline or any(self._peers[rank].ended for rank in late):
                return sorted(set(late))
            self._sleep(peers)

    def gone(self, rank: int) -> str:
        return _GONE if self._peers[rank].has_ended() else ""

    def close(self) -> None:
        """Tell the others. What they sent stays readable for this process until the connections are forgotten."""
        self._closed = True
        for peer in self._peers.values():
            with suppress(OSError):
                peer.connection.shutdown(socket.SHUT_WR)

    def _sleep(self, peers: list[_Peer]) -> None:
        """Until something can be moved, or a while."""
        poll = select.poll()
        for peer in peers:
            if (events := peer.events()) and not peer.ended:
                poll.register(peer.connection, events)
        poll.poll(_NAP_MILLISECONDS)
