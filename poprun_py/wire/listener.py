"""Reception: where supervisors report; everybody else is turned away before a word of theirs is read."""

from __future__ import annotations

import functools
import selectors
import socket
from collections.abc import Callable, Sequence

from poprun_py.errors import ChannelError
from poprun_py.linux.timers import Alarms
from poprun_py.wire import messages
from poprun_py.wire.channel import Admission, Channel, new_key

__all__ = ["Reception"]

#: Seconds a stranger has to prove itself and say hello, and how many may try at once; one more, and the oldest goes.
_TIMEOUT, _MOST_STRANGERS = 10.0, 256


class Reception:
    """Listens at ``addresses`` of this host; ``welcome`` is called with each supervisor that has proved itself.

    The channel is no longer watched then. ``welcome`` returns False for one that is not wanted.
    """

    def __init__(
        self,
        selector: selectors.BaseSelector,
        alarms: Alarms,
        *,
        welcome: Callable[[messages.Hello, Channel], bool],
        log: Callable[[str], None],
        addresses: Sequence[str] = ("127.0.0.1",),
    ) -> None:
        self.key = new_key()
        self._selector = selector
        self._alarms = alarms
        self._welcome = welcome
        self._log = log
        self._strangers: dict[Admission | Channel, None] = {}  # the oldest first
        self._listeners = [socket.create_server((address, 0), backlog=_MOST_STRANGERS) for address in addresses]
        for listener in self._listeners:
            listener.setblocking(False)
            selector.register(listener, selectors.EVENT_READ, functools.partial(self._on_connection, listener))

    @property
    def address(self) -> str:
        """``host:port``, or several separated by commas."""
        return ",".join("{}:{}".format(*listener.getsockname()) for listener in self._listeners)

    def close(self) -> None:
        """Listen no more."""
        for each in (*self._strangers, *self._listeners):
            each.close()

    def _on_connection(self, listener: socket.socket) -> None:
        try:
            connection, _ = listener.accept()
        except OSError:
            return
        if len(self._strangers) >= _MOST_STRANGERS:
            self._dismiss(next(iter(self._strangers)), "too many others came")
        try:
            stranger = Admission(connection, self.key)
        except OSError:  # it left at once
            connection.close()
            return
        self._strangers[stranger] = None
        self._selector.register(stranger, selectors.EVENT_READ, lambda: self._on_answer(stranger))
        self._alarms.set(_TIMEOUT, lambda: self._dismiss(stranger, "it took too long"))

    def _on_answer(self, stranger: Admission) -> None:
        try:
            channel = stranger.advance()
        except ChannelError as error:
            self._dismiss(stranger, str(error))
            return
        if channel is None:
            return
        del self._strangers[stranger]
        self._strangers[channel] = None
        self._selector.modify(channel, selectors.EVENT_READ, lambda: self._on_first_message(channel))
        self._alarms.set(_TIMEOUT, lambda: self._dismiss(channel, "it did not introduce itself"))

    def _on_first_message(self, channel: Channel) -> None:
        try:
            arrived = channel.receive()
        except ChannelError as error:
            self._dismiss(channel, str(error))
            return
        if not arrived:
            return
        if len(arrived) > 1 or not isinstance(arrived[0], messages.Hello):
            self._dismiss(channel, "it did not introduce itself")
            return
        del self._strangers[channel]
        self._selector.unregister(channel)
        if not self._welcome(arrived[0], channel):
            self._log(f"There is no place for an instance {arrived[0].rank}")
            channel.close()

    def _dismiss(self, stranger: Admission | Channel, why: str) -> None:
        if stranger in self._strangers:
            self._log(f"A connection to the channel was refused: {why}")
            del self._strangers[stranger]
            self._selector.unregister(stranger)
            stranger.close()
