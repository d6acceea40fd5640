"""Listener: the sockets on which supervisors report; peers without the key are rejected before anything is read."""

from __future__ import annotations

import errno
import selectors
import socket
from collections.abc import Callable, Sequence

from poprun_py.errors import ChannelError
from poprun_py.linux.event_sources import Timers
from poprun_py.wire import messages
from poprun_py.wire.channel import Channel, Handshake, new_key

#: Seconds that a peer has for each step of its introduction, and how many peers may be in it: one more, and the
#: oldest is refused.
TIMEOUT, _MOST_PENDING = 10.0, 256

#: Seconds without new connections when no more files can be opened.
_PAUSE = 0.2


class Listener:
    """Listens at ``addresses`` of this host and calls ``accept`` with each supervisor that has authenticated itself.

    Its channel is no longer registered then. ``accept`` returns False to refuse a supervisor.
    """

    def __init__(
        self,
        selector: selectors.BaseSelector,
        timers: Timers,
        *,
        accept: Callable[[messages.Hello, Channel], bool],
        log: Callable[[str], None],
        addresses: Sequence[str] = ("127.0.0.1",),
    ) -> None:
        self.key = new_key()
        self._selector = selector
        self._timers = timers
        self._accept = accept
        self._log = log
        self._pending: dict[Handshake | Channel, None] = {}  # the oldest first
        self._listeners = [socket.create_server((address, 0), backlog=_MOST_PENDING) for address in addresses]
        for listener in self._listeners:
            listener.setblocking(False)
            self._listen(listener)

    @property
    def address(self) -> str:
        """``host:port``, or several separated by commas."""
        return ",".join("{}:{}".format(*listener.getsockname()) for listener in self._listeners)

    def close(self) -> None:
        """Stop listening."""
        for channel in (*self._pending, *self._listeners):
            channel.close()

    def _listen(self, listener: socket.socket) -> None:
        if listener.fileno() >= 0:  # else it was closed meanwhile
            self._selector.register(listener, selectors.EVENT_READ, lambda: self._on_connection(listener))

    def _on_connection(self, listener: socket.socket) -> None:
        try:
            connection, _ = listener.accept()
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM):
                self._pause(listener)
            return
        if len(self._pending) >= _MOST_PENDING:
            self._refuse(next(iter(self._pending)), "too many other connections came")
        try:
            peer = Handshake(connection, self.key)
        except OSError:  # it disconnected at once
            connection.close()
            return
        self._pending[peer] = None
        self._selector.register(peer, selectors.EVENT_READ, lambda: self._on_answer(peer))
        self._timers.call_later(TIMEOUT, lambda: self._refuse(peer, "it took too long"))

    def _pause(self, listener: socket.socket) -> None:
        """Wait before the next connection: none can be accepted now, but the kernel would report it all the time."""
        self._selector.unregister(listener)
        self._timers.call_later(_PAUSE, lambda: self._listen(listener))

    def _on_answer(self, peer: Handshake) -> None:
        try:
            channel = peer.advance()
        except ChannelError as error:
            self._refuse(peer, str(error))
            return
        if channel is None:
            return
        del self._pending[peer]
        self._pending[channel] = None
        self._selector.modify(channel, selectors.EVENT_READ, lambda: self._on_first_message(channel))
        self._timers.call_later(TIMEOUT, lambda: self._refuse(channel, "it sent no Hello"))

    def _on_first_message(self, channel: Channel) -> None:
        try:
            arrived = channel.receive()
        except ChannelError as error:
            self._refuse(channel, str(error))
            return
        if not arrived:
            return
        if len(arrived) > 1 or not isinstance(arrived[0], messages.Hello):
            self._refuse(channel, "it sent no Hello")
            return
        del self._pending[channel]
        self._selector.unregister(channel)
        if not self._accept(arrived[0], channel):
            self._log(f"There is no place for an instance {arrived[0].rank}")
            channel.close()

    def _refuse(self, peer: Handshake | Channel, why: str) -> None:
        if peer in self._pending:
            self._log(f"A connection to the channel was refused: {why}")
            del self._pending[peer]
            self._selector.unregister(peer)
            peer.close()
