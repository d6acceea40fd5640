"""MessageChannel: messages between parties, every wait with an end that names who is missing.

Every collective begins with a header (``persistent_sendrecv``) to everyone. In its place can come a word and a text:

    REFUSED    the call of this party was refused; why          forgotten by those that refused one themselves
    LEFT       this party takes part no more; why
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import monotonic

import numpy as np

from gcl.core.prepared_call import BROKEN, DONE, MISMATCH, WAITING
from gcl.core.request import Request
from gcl.errors import CollectiveMismatch, CollectiveTimeout, PeerLost
from gcl.transport.messages.endpoints import Endpoints
from gcl.transport.messages.persistent_sendrecv import (
    MESSAGES,
    NBYTES,
    SIGNATURE,
    Headers,
    PersistentSendrecv,
    Transfers,
)
from gcl.transport.messages.point_to_point import PointToPoint
from gcl.transport.mpi.mpi_requests import Message

__all__ = ["MessageChannel"]

_REFUSED, _LEFT = -1, -2  # signatures are not negative


class MessageChannel:
    """``messages`` between ``endpoints``; ``timeout`` in seconds."""

    def __init__(self, messages: PointToPoint, endpoints: Endpoints, timeout: float) -> None:
        self.messages, self.endpoints, self._timeout = messages, endpoints, timeout
        self.send, self.receive = messages.send, messages.receive
        self._headers = Headers(messages)
        self._refused = 0
        self._forgiven = [0] * messages.ranks
        self._said: list[Message] = []  # on their way

    def wait(self, request: Request, pending: Sequence[Message]) -> None:
        """Complete messages of ``request``; raise PeerLost or CollectiveTimeout if a party does not answer."""
        late = self.messages.wait(pending, timeout=self._timeout)
        if late:
            raise self._missing(request, late)

    def first(self, step: Callable[[], object]) -> None:
        """Do what sends wait for."""
        step()

    then = first

    def agree(self, request: Request, signature: int) -> bool:
        """Say whether every party announces ``signature``; forget the data that came with what others announce."""
        headers = self._exchange(request, Headers.with_text(signature))
        while said := {rank: header for rank, header in headers.items() if header[SIGNATURE] < 0}:
            self._hear(request, said)
            self.wait(request, [self.receive(rank, header, header=True) for rank, header in said.items()])
        self._refused, self._forgiven = 0, [0] * self.messages.ranks
        same = all(header[SIGNATURE] == signature for header in headers.values())
        if not same:
            self._forget(request, headers)
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
        """Tell everyone why this party takes part no more, if there is a reason, and end."""
        if reason:
            self._say(_LEFT, reason)
        self.messages.close()

    def prepare(self, request: Request, transfers: Transfers) -> PersistentSendrecv:
        """``request`` and all its data in one exchange."""
        return PersistentSendrecv(request.signature, transfers, self.messages, self._headers)

    def finish(self, request: Request, sendrecv: PersistentSendrecv, status: int, kept: object) -> bool:
        """Complete ``sendrecv``; say whether all announced the same. ``kept`` is the memory that it fills."""
        messages, deadline = self.messages, monotonic() + self._timeout
        try:
            while status == WAITING:
                if late := messages.late(sendrecv.pending, deadline):
                    raise self._missing(request, late)
                status = sendrecv.run()
            if status == BROKEN:
                raise self._missing(request, messages.lost(self._headers.peers, None))
            if status == MISMATCH:
                headers = self._headers.by_rank()
                self._forget(request, headers, sendrecv.sent)
                self._hear(request, {rank: header for rank, header in headers.items() if header[SIGNATURE] < 0})
        except BaseException:
            messages.keep((sendrecv, kept))
            raise
        return status == DONE

    def exchange_text(self, request: Request, text: str) -> list[str]:
        """Everyone's ``text``."""
        headers = self._exchange(request, Headers.with_text(0, text))
        return [Headers.text_of(headers[rank]) if rank in headers else text for rank in range(self.messages.ranks)]

    def _exchange(self, request: Request, mine: np.ndarray) -> dict[int, np.ndarray]:
        """The header of every other party, until the next one comes; ``mine`` goes to all of them."""
        headers = self._headers.by_rank()
        receives = [self.receive(rank, header, header=True) for rank, header in headers.items()]
        self.wait(request, receives + [self.send(rank, mine, header=True) for rank in headers])
        return headers

    def _say(self, word: int, reason: str) -> None:
        header = Headers.with_text(word, reason)
        self._said += [self.send(rank, header, header=True) for rank in self._headers.peers]

    def _hear(self, request: Request, said: dict[int, np.ndarray]) -> None:
        """Raise what some said in place of a header, unless it is a call that was refused here too."""
        for rank, header in said.items():
            reason, who = Headers.text_of(header), self.endpoints.contact(rank)
            if header[SIGNATURE] == _LEFT:
                raise PeerLost.left(request, who, reason)
            if self._forgiven[rank] >= self._refused:
                raise CollectiveMismatch.refused(request, who, reason)
            self._forgiven[rank] += 1

    def _forget(self, request: Request, headers: dict[int, np.ndarray], sent: Sequence[Message] = ()) -> None:
        """Receive the data that others announced, and drop them; complete what was ``sent``, which they drop."""
        calls = {rank: header for rank, header in headers.items() if header[SIGNATURE] >= 0}
        dropped = [
            self.receive(rank, np.empty(int(header[NBYTES]), np.uint8))
            for rank, header in calls.items()
            for _ in range(int(header[MESSAGES]))
        ]
        self.wait(request, [*dropped, *(message for message in sent if message.rank in calls)])

    def _missing(self, request: Request, late: list[int]) -> PeerLost | CollectiveTimeout:
        gone = {party: why for party in late if (why := self.messages.gone(party))}
        if gone:
            names = ", ".join(self.endpoints.contact(party) for party in gone)
            text = f"{request} waits for {names}, {next(iter(gone.values()))}"
            return PeerLost(text, text)
        names = ", ".join(self.endpoints.contact(party) for party in late)
        return CollectiveTimeout(
            f"{request} waited {self._timeout:g} s for {names}; look at what they do, or raise timeout"
        )
