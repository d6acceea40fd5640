"""Link: messages between parties, every wait with an end that names who is missing."""

from __future__ import annotations

from typing import Any

import numpy as np

from gcl.calls import Request
from gcl.errors import CollectiveTimeout, PeerLost
from gcl.parties import Parties
from gcl.transport.messages import Messages

__all__ = ["Link"]


class Link:
    """``messages`` between ``parties``; ``timeout`` in seconds."""

    def __init__(self, messages: Messages, parties: Parties, timeout: float) -> None:
        self.messages, self.parties, self._timeout = messages, parties, timeout
        self.send, self.receive = messages.send, messages.receive

    def wait(self, request: Request, pending: list[Any]) -> None:
        """Complete messages of ``request``; raise PeerLost or CollectiveTimeout if a party does not answer."""
        late = self.messages.wait(pending, timeout=self._timeout)
        if late:
            raise self._missing(request, late)

    def exchange(self, request: Request, mine: np.ndarray) -> np.ndarray:
        """Everyone's ``mine``: [parties, ...]."""
        messages = self.messages
        everyone = np.empty((messages.ranks, *mine.shape), mine.dtype)
        everyone[messages.rank] = mine
        others = [rank for rank in range(messages.ranks) if rank != messages.rank]
        receives = [messages.receive(rank, everyone[rank]) for rank in others]
        self.wait(request, receives + [messages.send(rank, mine) for rank in others])
        return everyone

    def _missing(self, request: Request, late: list[int]) -> PeerLost | CollectiveTimeout:
        gone = {party: why for party in late if (why := self.messages.gone(party))}
        if gone:
            names = ", ".join(self.parties.names[party] for party in gone)
            return PeerLost(f"{request} waits for {names}, {next(iter(gone.values()))}")
        names = ", ".join(self.parties.names[party] for party in late)
        return CollectiveTimeout(
            f"{request} waited {self._timeout:g} s for {names}; look at what they do, or raise timeout"
        )
