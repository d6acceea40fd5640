"""MessageChannel: messages between parties; a wait ends after ``timeout`` and names the parties that did not answer.

Every collective begins with a header (``persistent_sendrecv``) to every other party. A header can also be a notice,
with a negative number in place of a signature, and the reason as text:

    REFUSED    a call of this party was refused; a party that refused a call itself ignores it
    LEFT       this party takes part in no further call
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import IntEnum
from time import monotonic

import numpy as np

from gcl.core.prepared_call import BROKEN, DONE, MISMATCH, WAITING
from gcl.core.request import Request
from gcl.errors import CollectiveMismatch, CollectiveTimeout, PeerLost
from gcl.transport.messages.endpoints import Endpoints
from gcl.transport.messages.persistent_sendrecv import (
    Header,
    Headers,
    PersistentSendrecv,
    Transfers,
)
from gcl.transport.messages.point_to_point import PointToPoint
from gcl.transport.mpi.mpi_requests import Message

__all__ = ["MessageChannel"]


class Notice(IntEnum):
    """What takes the place of the signature in a header; signatures are not negative."""

    REFUSED = -1
    LEFT = -2


class MessageChannel:
    """``messages`` between ``endpoints``; ``timeout`` in seconds."""

    def __init__(self, messages: PointToPoint, endpoints: Endpoints, timeout: float) -> None:
        self.messages, self.endpoints, self._timeout = messages, endpoints, timeout
        self.send, self.receive = messages.send, messages.receive
        self._headers = Headers(messages)
        self._refused = 0
        self._refusals_of = [0] * messages.ranks
        self._notices: list[Message] = []  # sent; kept until MPI has read them

    def wait(self, request: Request, pending: Sequence[Message]) -> None:
        """Complete messages of ``request``; raise PeerLost or CollectiveTimeout if a party does not answer."""
        late = self.messages.wait(pending, timeout=self._timeout)
        if late:
            raise self._missing(request, late)

    def first(self, step: Callable[[], object]) -> None:
        """Run ``step``, which writes the data that is sent next."""
        step()

    then = first

    def agree(self, request: Request, signature: int) -> bool:
        """Return whether every party announces ``signature``; if not, discard the data that others have sent."""
        headers = self._exchange(request, Headers.encode(signature))
        while notices := _notices(headers):
            self._raise_reported(request, notices)
            self.wait(request, [self.receive(rank, header, header=True) for rank, header in notices.items()])
        self._refused, self._refusals_of = 0, [0] * self.messages.ranks
        same = all(header[Header.SIGNATURE] == signature for header in headers.values())
        if not same:
            self._discard(request, headers)
        return same

    @property
    def has_refused(self) -> bool:
        """Whether a call was refused here after the last one that ran."""
        return self._refused > 0

    def refuse(self, reason: str) -> None:
        """Send all parties a notice that a call was refused."""
        self._refused += 1
        self._notify(Notice.REFUSED, reason)

    def leave(self, reason: str) -> None:
        """End; if there is a ``reason``, send it to all parties first."""
        if reason:
            self._notify(Notice.LEFT, reason)
        self.messages.close()

    def prepare(self, request: Request, transfers: Transfers) -> PersistentSendrecv:
        """Prepare ``request`` and all its data as one exchange."""
        return PersistentSendrecv(request.signature, transfers, self.messages, self._headers)

    def finish(self, request: Request, sendrecv: PersistentSendrecv, status: int, kept: object) -> bool:
        """Complete ``sendrecv``; return whether all parties made the same call. ``kept``: the memory it fills."""
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
                self._discard(request, headers, sendrecv.sent)
                self._raise_reported(
                    request, {rank: header for rank, header in headers.items() if header[Header.SIGNATURE] < 0}
                )
        except BaseException:
            messages.keep((sendrecv, kept))
            raise
        return status == DONE

    def exchange_text(self, request: Request, text: str) -> list[str]:
        """The ``text`` of every party."""
        headers = self._exchange(request, Headers.encode(0, text))
        return [
            Headers.decode_text(headers[rank]) if rank in headers else text for rank in range(self.messages.ranks)
        ]

    def _exchange(self, request: Request, mine: np.ndarray) -> dict[int, np.ndarray]:
        """Send ``mine`` to all other parties; return their headers, which are valid until the next exchange."""
        headers = self._headers.by_rank()
        receives = [self.receive(rank, header, header=True) for rank, header in headers.items()]
        self.wait(request, receives + [self.send(rank, mine, header=True) for rank in headers])
        return headers

    def _notify(self, notice: Notice, reason: str) -> None:
        header = Headers.encode(notice, reason)
        self._notices += [self.send(rank, header, header=True) for rank in self._headers.peers]

    def _raise_reported(self, request: Request, notices: dict[int, np.ndarray]) -> None:
        """Raise the errors that ``notices`` report, except for calls that were refused here too."""
        for rank, header in notices.items():
            reason, who = Headers.decode_text(header), self.endpoints.contact(rank)
            if header[Header.SIGNATURE] == Notice.LEFT:
                raise PeerLost.left(request, who, reason)
            if self._refusals_of[rank] >= self._refused:
                raise CollectiveMismatch.refused(request, who, reason)
            self._refusals_of[rank] += 1

    def _discard(self, request: Request, headers: dict[int, np.ndarray], sent: Sequence[Message] = ()) -> None:
        """Receive and discard the data that others announced; complete the messages ``sent``, which they discard."""
        calls = {rank: header for rank, header in headers.items() if header[Header.SIGNATURE] >= 0}
        discarded = [
            self.receive(rank, np.empty(int(header[Header.NBYTES]), np.uint8))
            for rank, header in calls.items()
            for _ in range(int(header[Header.MESSAGES]))
        ]
        self.wait(request, [*discarded, *(message for message in sent if message.rank in calls)])

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


def _notices(headers: dict[int, np.ndarray]) -> dict[int, np.ndarray]:
    """Those of ``headers``, by party, that are notices."""
    return {rank: header for rank, header in headers.items() if header[Header.SIGNATURE] < 0}
