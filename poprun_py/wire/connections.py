"""Connections: the channels to all supervisors that have reported, by rank, and the detection of silent hosts."""

from __future__ import annotations

import selectors
from collections.abc import Callable

from poprun_py.errors import ChannelClosed, ChannelError
from poprun_py.wire.channel import SILENCE, Channel
from poprun_py.wire.messages import Message


class Connections:
    """Reads every channel and calls ``on_message(rank, message)``, or ``on_loss(rank, why)`` when a channel is lost.

    ``on_message`` may raise ChannelError for a message that the supervisor may not send; its channel is closed then.
    """

    def __init__(
        self,
        selector: selectors.BaseSelector,
        *,
        on_message: Callable[[int, Message], None],
        on_loss: Callable[[int, str], None],
    ) -> None:
        self._selector = selector
        self._on_message = on_message
        self._on_loss = on_loss
        self._channels: dict[int, Channel] = {}

    def __contains__(self, rank: int) -> bool:
        return rank in self._channels

    @property
    def is_used(self) -> bool:
        return bool(self._channels)

    def connect(self, rank: int, channel: Channel) -> None:
        self._channels[rank] = channel
        self._selector.register(channel, _interest(channel), lambda: self._on_readable(rank))

    def send(self, rank: int, message: Message) -> None:
        """Queue a message; nothing if the channel of ``rank`` is gone."""
        channel = self._channels.get(rank)
        if channel is not None:
            channel.send(message)
            if channel.wants_to_send:
                self._update(rank, channel)

    def drop_silent(self) -> None:
        """Drop the supervisors on other hosts that have stopped answering."""
        for rank, channel in list(self._channels.items()):
            if channel.is_silent:
                self._drop(rank, f"has not answered for {SILENCE:g} s; its host is down or unreachable")

    def close(self) -> None:
        for channel in self._channels.values():
            channel.close()

    def _on_readable(self, rank: int) -> None:
        channel = self._channels[rank]
        channel.push()
        try:
            for message in channel.receive():
                self._on_message(rank, message)
        except ChannelError as error:
            self._drop(rank, "is gone" if isinstance(error, ChannelClosed) else f"sent an invalid message: {error}")
            return
        self._update(rank, channel)

    def _update(self, rank: int, channel: Channel) -> None:
        self._selector.modify(channel, _interest(channel), lambda: self._on_readable(rank))

    def _drop(self, rank: int, why: str) -> None:
        channel = self._channels.pop(rank)
        self._selector.unregister(channel)
        channel.close()
        self._on_loss(rank, why)


def _interest(channel: Channel) -> int:
    return selectors.EVENT_READ | (selectors.EVENT_WRITE if channel.wants_to_send else 0)
