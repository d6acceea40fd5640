"""Link: messages between parties, every wait with an end that names who is missing."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic
from typing import Any

import numpy as np

from gcl.calls import Request
from gcl.errors import CollectiveTimeout, PeerLost
from gcl.parties import Parties
from gcl.ready import DONE, MISMATCH, WAITING
from gcl.swap import Data, Swap
from gcl.transport.messages import Messages
from gcl.transport.tcp import TcpMessages

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

    def agree(self, request: Request, signature: int) -> bool:
        """Say whether every party announces ``signature``; forget the data that came with what others announce."""
        headers = self.exchange(request, np.array([signature, 0], np.int64))
        same = bool((headers[:, 0] == signature).all())
        if not same:
            self.forget(request, {rank: int(nbytes) for rank, (_, nbytes) in enumerate(headers)})
        return same

    def forget(self, request: Request, nbytes: dict[int, int]) -> None:
        """Receive so many bytes from each rank, and drop them."""
        self.wait(request, [self.receive(rank, np.empty(n, np.uint8)) for rank, n in nbytes.items() if n])

    def swap(self, request: Request, data: Data) -> Swap:
        """``request`` and all its ``data`` in one exchange, over connections."""
        messages = self.messages
        assert isinstance(messages, TcpMessages)
        swap = Swap(request.signature, data, messages.places)
        messages.reserve(swap.segments)
        return swap

    def ready(self, swap: Swap) -> Callable[[], int]:
        """A call that begins ``swap``, or goes on with it."""
        messages = self.messages
        assert isinstance(messages, TcpMessages)
        return lambda: swap.run(messages.table, messages.polled)

    def finish(self, request: Request, swap: Swap, status: int) -> bool:
        """Complete ``swap``; say whether all announced the same."""
        messages, deadline = self.messages, monotonic() + self._timeout
        assert isinstance(messages, TcpMessages)
        while status == WAITING:
            if late := messages.late(swap.targets, deadline):
                raise self._missing(request, late)
            status = swap.run(messages.table, messages.polled)
        if status == MISMATCH:
            self.forget(request, {rank: int(swap.headers[1, place, 1]) for rank, place in messages.places.items()})
        return status == DONE

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
