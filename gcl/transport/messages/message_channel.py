"""MessageChannel: messages between parties; a wait ends after ``timeout`` and names the parties that did not answer.

Calls that are prepared (``persistent_sendrecv``) send data only. A party that has waited for a while announces its
call, so that parties which make different calls find out. Every other call begins with an announcement to every other
party, and the same from each.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from time import monotonic

import numpy as np

from gcl.core.prepared_call import BROKEN, DONE, UNREAD, WAITING
from gcl.core.request import Request
from gcl.errors import CollectiveMismatch, CollectiveTimeout, PeerLost
from gcl.reduce.buffer_pool import BufferPool
from gcl.reduce.encoded_steps import Step, run_steps
from gcl.reduce.reduction import new_scratch
from gcl.transport.messages.announcements import Announcements, Header, Notice, encode, text_of
from gcl.transport.messages.endpoints import Endpoints
from gcl.transport.messages.persistent_sendrecv import PersistentSendrecv, Sendrecv, Transfers
from gcl.transport.messages.point_to_point import PointToPoint
from gcl.transport.mpi.mpi_requests import Message, Tag


class MessageChannel:
    """``messages`` between ``endpoints``; ``timeout`` in seconds."""

    def __init__(self, messages: PointToPoint, endpoints: Endpoints, timeout: float) -> None:
        self.messages, self.endpoints, self._timeout = messages, endpoints, timeout
        self._others = [rank for rank in range(messages.ranks) if rank != messages.rank]
        self._announcements = Announcements(messages)
        self._calls = np.zeros(1, np.int64)
        self._scratch, self._memory = new_scratch(), BufferPool()
        self._refused = 0
        self._refusals_of = [0] * messages.ranks
        self._sent: list[Message] = []  # headers; kept until MPI has read them

    def send(self, to: int, data: np.ndarray) -> Message:
        """Start to send ``data``, which must not change until ``wait`` returns."""
        return self.messages.send(to, data)

    def receive(self, frm: int, data: np.ndarray) -> Message:
        """Start to receive into ``data``."""
        return self.messages.receive(frm, data)

    def wait(self, request: Request, pending: Sequence[Message]) -> None:
        """Complete messages of ``request``; raise PeerLost or CollectiveTimeout if a party does not answer."""
        late = self.messages.wait(pending, timeout=self._timeout)
        if late:
            raise self._missing(request, late)

    def first(self, step: Step) -> None:
        """Take ``step``, which writes the data that is sent next."""
        run_steps(step, self._scratch)

    then = first

    def agree(self, request: Request, signature: int) -> bool:
        """Whether every party announces ``signature``; if not, discard the data that others have sent."""
        self._calls[0] += 1
        for rank in self._others:
            self._announce(rank, encode(self._call, signature))
        headers = self._headers(request, self._others)
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
        self._announcements.close(self._others)
        self.messages.close()

    def transfers(self) -> Transfers:
        """Transfers without contents, for one call that is prepared."""
        self._memory.clear()
        return Transfers(self._memory)

    def prepare(self, signature: int, transfers: Transfers) -> PersistentSendrecv:
        """Prepare all messages of the call ``signature``."""
        return PersistentSendrecv(signature, transfers, self.messages, self._calls, self._scratch)

    def finish(self, request: Request, sendrecv: Sendrecv, status: int, memory: object) -> bool:
        """Complete ``sendrecv``; return whether all parties made the same call. ``memory``: the memory it fills."""
        deadline, headers = monotonic() + self._timeout, dict[int, np.ndarray]()
        try:
            if status == WAITING:
                for rank, (number, nbytes) in sendrecv.sizes.items():
                    self._announce(rank, encode(self._call, sendrecv.signature, messages=number, nbytes=nbytes))
            while status == WAITING:
                headers |= self._arrived(request, headers)
                if any(header[Header.SIGNATURE] != sendrecv.signature for header in headers.values()):
                    self._end_mismatch(request, sendrecv, headers)
                    self.messages.keep((sendrecv, memory))
                    return False
                if late := self.messages.late(sendrecv.pending, deadline):
                    raise self._missing(request, late)
                status = sendrecv.run()
            if status == BROKEN:
                raise self._missing(request, self.messages.lost(self._others, None))
            if status == UNREAD:
                for rank in self._others:
                    self._announcements.take(rank, self._call)
        except BaseException:
            self.messages.keep((sendrecv, memory))
            raise
        return status in (DONE, UNREAD)

    def exchange_text(self, request: Request, text: str) -> list[str]:
        """The ``text`` of every party."""
        for rank in self._others:
            self._announce(rank, encode(self._call, 0, text))
        texts = {rank: text_of(header) for rank, header in self._wait_for_headers(request, self._others).items()}
        return [texts.get(rank, text) for rank in range(self.messages.ranks)]

    @property
    def _call(self) -> int:
        """Number of calls that were begun on this channel."""
        return int(self._calls[0])

    def _announce(self, rank: int, header: np.ndarray) -> None:
        self._sent = [message for message in self._sent if not self.messages.arrived(message)]
        self._sent.append(self.messages.send(rank, header, tag=Tag.HEADER))

    def _notify(self, notice: Notice, reason: str) -> None:
        for rank in self._others:  # a refused call was to be the next one
            self._announce(rank, encode(self._call + 1, notice, reason))

    def _headers(self, request: Request, ranks: Collection[int]) -> dict[int, np.ndarray]:
        """What each of ``ranks`` announced for this call; raise what notices report."""
        headers = dict[int, np.ndarray]()
        while missing := [rank for rank in ranks if rank not in headers]:
            headers |= self._reported(request, self._wait_for_headers(request, missing))
        return headers

    def _arrived(self, request: Request, known: Collection[int]) -> dict[int, np.ndarray]:
        """What parties other than ``known`` have announced for this call so far; raise what notices report."""
        taken = {rank: self._announcements.take(rank, self._call) for rank in self._others if rank not in known}
        return self._reported(request, {rank: header for rank, header in taken.items() if header is not None})

    def _wait_for_headers(self, request: Request, ranks: Collection[int]) -> dict[int, np.ndarray]:
        """The next header of this call from each of ``ranks``."""
        headers = dict[int, np.ndarray]()
        while True:
            for rank in ranks:
                if rank not in headers and (header := self._announcements.take(rank, self._call)) is not None:
                    headers[rank] = header
            if len(headers) == len(ranks):
                return headers
            missing = [rank for rank in ranks if rank not in headers]
            self.wait(request, self._announcements.pending(missing))
            self._announcements.came(missing)

    def _reported(self, request: Request, headers: dict[int, np.ndarray]) -> dict[int, np.ndarray]:
        """The ``headers`` that are not notices; raise what notices report, except for calls refused here too."""
        for rank, header in headers.items():
            reason, who = text_of(header), self.endpoints.contact(rank)
            if header[Header.SIGNATURE] == Notice.LEFT:
                raise PeerLost.departed(request, who, reason)
            if header[Header.SIGNATURE] == Notice.REFUSED:
                if self._refusals_of[rank] >= self._refused:
                    raise CollectiveMismatch.refused(request, who, reason)
                self._refusals_of[rank] += 1
        return {rank: header for rank, header in headers.items() if header[Header.SIGNATURE] >= 0}

    def _end_mismatch(self, request: Request, sendrecv: Sendrecv, headers: dict[int, np.ndarray]) -> None:
        """Complete what can be completed of ``sendrecv``, after some party made another call."""
        headers |= self._headers(request, [rank for rank in self._others if rank not in headers])
        same = [rank for rank, header in headers.items() if header[Header.SIGNATURE] == sendrecv.signature]
        others = {rank: header for rank, header in headers.items() if rank not in same}
        self._discard(request, others, [*sendrecv.sent, *sendrecv.filled_from(same)])

    def _discard(self, request: Request, headers: dict[int, np.ndarray], pending: Sequence[Message] = ()) -> None:
        """Receive and discard the data that others announced; complete ``pending``, which they receive."""
        discarded = []
        for rank, header in headers.items():
            tag, nbytes = self.messages.tag_of(int(header[Header.SIGNATURE])), int(header[Header.NBYTES])
            for _ in range(int(header[Header.MESSAGES])):
                discarded.append(self.messages.receive(rank, np.empty(nbytes, np.uint8), tag=tag))
        self.wait(request, [*discarded, *pending])

    def _missing(self, request: Request, late: list[int]) -> PeerLost | CollectiveTimeout:
        gone = {party: why for party in late if (why := self.messages.gone(party))}
        if gone:
            names = ", ".join(self.endpoints.contact(party) for party in gone)
            text = f"{request} waits for {names}, {next(iter(gone.values()))}"
            return PeerLost(text, text, names, left=all(map(self.messages.has_left, gone)))
        names = ", ".join(self.endpoints.contact(party) for party in late)
        return CollectiveTimeout(
            f"{request} waited {self._timeout:g} s for {names}; check what they are doing, or raise timeout"
        )
