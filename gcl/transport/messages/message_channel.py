"""MessageChannel: messages between parties, every wait with an end that names who is missing.

Every collective begins with a header (signature, bytes that follow) to everyone. In its place can come a word:

    REFUSED    the call of this party was refused; why          forgotten by those that refused one themselves
    LEFT       this party takes part no more; why               only where no data of a collective is under way
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from time import monotonic
from typing import Any

import numpy as np

from gcl.core.prepared_call import DONE, MISMATCH, WAITING
from gcl.core.request import Request
from gcl.errors import CollectiveMismatch, CollectiveTimeout, PeerLost
from gcl.transport.messages.endpoints import Endpoints
from gcl.transport.messages.persistent_sendrecv import Data, Swap
from gcl.transport.messages.point_to_point import PointToPoint
from gcl.transport.tcp.tcp_messages import TcpMessages

__all__ = ["MessageChannel"]

_REFUSED, _LEFT = -1, -2  # signatures are not negative

_LENT_BYTES = 1 << 23  # less stays in the cache, where it is copied as quickly


class MessageChannel:
    """``messages`` between ``parties``; ``timeout`` in seconds."""

    def __init__(self, messages: PointToPoint, parties: Endpoints, timeout: float) -> None:
        self.messages, self.parties, self._timeout = messages, parties, timeout
        self.send, self.receive = messages.send, messages.receive
        #: no collective is under way, so that a header is what the others expect
        self.idle = True
        self._refused = 0
        self._forgiven = [0] * messages.ranks
        self._said: list[np.ndarray] = []  # messages on their way
        self._lends = False

    def wait(self, request: Request, pending: list[Any]) -> None:
        """Complete messages of ``request``; raise PeerLost or CollectiveTimeout if a party does not answer."""
        late = self.messages.wait(pending, timeout=self._timeout)
        if late:
            raise self._missing(request, late)

    @contextmanager
    def data_of(self, request: Request) -> Iterator[None]:
        """The data of ``request`` are under way; at the end everyone has what was lent to it."""
        self.idle = False
        self._lends = self.messages.lends and request.count * request.dtype.itemsize >= _LENT_BYTES
        yield
        if self._lends:
            self.exchange(request, np.zeros(1, np.int64))
        self._lends, self.idle = False, True

    def lend(self, party: int, data: np.ndarray) -> Any:
        """Send what stays as it is until ``party`` has it: at the latest until the end of ``data_of``."""
        return self.messages.send(party, data, lent=self._lends)

    def first(self, step: Callable[[], object]) -> None:
        """Do what sends wait for."""
        step()

    then = first

    def agree(self, request: Request, signature: int) -> bool:
        """Say whether every party announces ``signature``; forget the data that came with what others announce."""
        self.idle = False
        headers = self.exchange(request, np.array([signature, 0], np.int64))
        while said := [rank for rank, (word, _) in enumerate(headers) if word < 0]:
            self._hear(request, headers, said)
            self.wait(request, [self.receive(rank, headers[rank]) for rank in said])
        self._refused, self._forgiven = 0, [0] * len(headers)
        self.idle = same = bool((headers == [signature, 0]).all())
        if not same:
            self.forget(request, {rank: int(nbytes) for rank, (_, nbytes) in enumerate(headers)})
        return same

    @property
    def has_refused(self) -> bool:
        """Whether a call was refused here since the last one that was made."""
        return self._refused > 0

    def refuse(self, reason: str) -> None:
        """Tell everyone that a call was refused."""
        self._refused += 1
        self._say(_REFUSED, reason)

    def leave(self, reason: str) -> None:
        """Tell everyone why this party takes part no more, if they can be told, and end."""
        if reason and self.idle:
            self._say(_LEFT, reason)
        self.idle = False
        self.messages.close()

    def _say(self, word: int, reason: str) -> None:
        text = np.frombuffer(reason.encode(), np.uint8)
        header = np.array([word, text.size], np.int64)
        self._said += [header, text]
        for rank in range(self.messages.ranks):
            if rank != self.messages.rank:
                self.send(rank, header)
                self.send(rank, text)

    def _hear(self, request: Request, headers: np.ndarray, said: list[int]) -> None:
        """Read what some said in place of a header; raise it, unless it is a call that was refused here too."""
        texts = {rank: np.empty(int(headers[rank, 1]), np.uint8) for rank in said}
        self.wait(request, [self.receive(rank, text) for rank, text in texts.items()])
        for rank, text in texts.items():
            reason, who = bytes(text).decode(errors="replace"), self.parties.carrier(rank)
            if headers[rank, 0] == _LEFT:
                raise PeerLost.left(request, who, reason)
            if self._forgiven[rank] >= self._refused:
                raise CollectiveMismatch.refused(request, who, reason)
            self._forgiven[rank] += 1

    def forget(self, request: Request, nbytes: dict[int, int], sent: Sequence[Any] = ()) -> None:
        """Receive so many bytes from each rank, and drop them; complete what was ``sent``, which they drop."""
        dropped = [self.receive(rank, np.empty(n, np.uint8)) for rank, n in nbytes.items() if n]
        self.wait(request, [*dropped, *sent])

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

        def go_on() -> int:
            self.idle = False
            status = swap.run(messages.table, messages.polled)
            self.idle = status == DONE
            return status

        return go_on

    def finish(self, request: Request, swap: Swap, status: int) -> bool:
        """Complete ``swap``; say whether all announced the same."""
        messages, deadline = self.messages, monotonic() + self._timeout
        assert isinstance(messages, TcpMessages)
        while status == WAITING:
            if late := messages.late(swap.targets, deadline):
                raise self._missing(request, late)
            status = swap.run(messages.table, messages.polled)
        self.idle = status == DONE
        if status == MISMATCH:
            headers = {rank: swap.headers[1, place] for rank, place in messages.places.items()}
            calls = {rank: int(nbytes) for rank, (word, nbytes) in headers.items() if word >= 0}
            self.forget(request, calls, list(map(messages.sent, calls)))
            everyone = np.array([headers.get(rank, [0, 0]) for rank in range(messages.ranks)])
            self._hear(request, everyone, [rank for rank, (word, _) in headers.items() if word < 0])
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
            names = ", ".join(self.parties.carrier(party) for party in gone)
            text = f"{request} waits for {names}, {next(iter(gone.values()))}"
            return PeerLost(text, text)
        names = ", ".join(self.parties.carrier(party) for party in late)
        return CollectiveTimeout(
            f"{request} waited {self._timeout:g} s for {names}; look at what they do, or raise timeout"
        )
