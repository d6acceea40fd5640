"""Switchboard: the channels to all supervisors that have reported, by rank."""

from __future__ import annotations

import selectors
from collections.abc import Callable

from poprun_py.errors import ChannelClosed, ChannelError
from poprun_py.wire.channel import SILENCE, Channel
from poprun_py.wire.messages import Message

__all__ = ["Switchboard"]


class Switchboard:
    """Listens to every channel and says what comes: ``on_message(rank, message)``, or ``on_loss(rank, why)``.

    ``on_message`` may raise ChannelError for what the supervisor may not say: its channel is given up then.
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
        self._selector.register(channel, _interest(channel), lambda: self._listen(rank))

    def tell(self, rank: int, message: Message) -> None:
        """Send it, or as much as goes now; nothing where there is no channel any more."""
        channel = self._channels.get(rank)
        if channel is not None:
            channel.send(message)
            if channel.wants_to_send:
                self._watch(rank, channel)

    def give_up_silent(self) -> None:
        """Give up the supervisors on hosts that are silent; only other hosts can be."""
        for rank, channel in list(self._channels.items()):
            if channel.is_silent:
                self._lose(rank, f"has not answered for {SILENCE:g} s; its host is down, or out of reach")

    def close(self) -> None:
        for channel in self._channels.values():
            channel.close()

    def _listen(self, rank: int) -> None:
        channel = self._channels[rank]
        channel.push()
        try:
            for message in channel.receive():
                self._on_message(rank, message)
        except ChannelError as error:
            self._lose(rank, "is gone" if isinstance(error, ChannelClosed) else f"was given up: {error}")
            return
        self._watch(rank, channel)

    def _watch(self, rank: int, channel: Channel) -> None:
        self._selector.modify(channel, _interest(channel), lambda: self._listen(rank))

    def _lose(self, rank: int, why: str) -> None:
        channel = self._channels.pop(rank)
        self._selector.unregister(channel)
        channel.close()
        self._on_loss(rank, why)


def _interest(channel: Channel) -> int:
    return selectors.EVENT_READ | (selectors.EVENT_WRITE if channel.wants_to_send else 0)
