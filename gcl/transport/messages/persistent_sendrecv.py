"""PersistentSendrecv: one exchange of a call and its data with every party, prepared once, run often.

    header    what is called, and the data if they are few        to and from everyone
    data      straight from tensor to tensor                      received once the headers are found to agree

Persistent MPI requests, which compiled code starts and completes; it comes back to Python only while a party is late.
A PersistentSendrecv has the addresses of tensors only: it keeps none alive.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gcl.core.prepared_call import BROKEN, DONE, MISMATCH
from gcl.core.request import Request
from gcl.kernels.copies import copy_bytes
from gcl.kernels.jit import bare, bound
from gcl.transport.messages.point_to_point import PointToPoint
from gcl.transport.mpi.mpi_requests import REQUEST_BYTES, Message, start, wait_for

__all__ = [
    "HEADER_BYTES",
    "INLINE",
    "INLINE_BYTES",
    "MESSAGES",
    "NBYTES",
    "SIGNATURE",
    "PersistentSendrecv",
    "Transfers",
    "inline_data",
    "new_header",
]

#: Words of a header: what is called, the messages and bytes of data that follow, the bytes of data in the header.
SIGNATURE, MESSAGES, NBYTES, INLINE = range(4)
_WORDS = 4
#: The most data that a header brings with it: what goes in one packet of MPI.
INLINE_BYTES = 4096
HEADER_BYTES = 8 * _WORDS + INLINE_BYTES

_STAGE, _SIGNATURE, _PEERS, _SENDS, _FILLS = range(5)
_IDLE, _HEADERS, _DATA = range(3)  # stages


def new_header(signature: int = 0) -> np.ndarray:
    """A header without data, in words."""
    header = np.zeros(HEADER_BYTES // 8, np.int64)
    header[SIGNATURE] = signature
    return header


def inline_data(header: np.ndarray) -> np.ndarray:
    """The bytes of a header that are for data."""
    return header[_WORDS:].view(np.uint8)


@dataclass
class Transfers:
    """What an exchange carries: (party, array) to send and to fill; what to do before and after.

    Collectives tell it what they would tell a ``MessageChannel``. ``kept`` is memory that lives with the exchange.
    """

    sends: list[tuple[int, np.ndarray]] = field(default_factory=list)
    fills: list[tuple[int, np.ndarray]] = field(default_factory=list)
    before: list[Callable[[], object]] = field(default_factory=list)
    after: list[Callable[[], object]] = field(default_factory=list)
    kept: list[np.ndarray] = field(default_factory=list)

    def send(self, party: int, data: np.ndarray) -> Message:
        """Send ``data`` once everything ``before`` is done."""
        self.sends.append((party, data))
        return Message(party, ())

    def receive(self, party: int, data: np.ndarray) -> Message:
        """Fill ``data``."""
        self.fills.append((party, data))
        return Message(party, ())

    def wait(self, request: Request, pending: Sequence[Message]) -> None:
        """All has come when what is ``after`` is done."""

    def first(self, step: Callable[[], object]) -> None:
        """Do ``step`` before all sends."""
        self.before.append(step)

    def then(self, step: Callable[[], object]) -> None:
        """Do ``step`` when all has come."""
        self.after.append(step)

    def take(self, count: int, dtype: np.dtype[Any]) -> np.ndarray:
        """Memory for ``count`` elements."""
        self.kept.append(np.empty(count, dtype))
        return self.kept[-1]


class PersistentSendrecv:
    """Run it until it is DONE; another status is for ``MessageChannel.finish``."""

    def __init__(self, signature: int, transfers: Transfers, messages: PointToPoint) -> None:
        self._before, self._after, self._kept = transfers.before, transfers.after, transfers.kept
        self._peers = [rank for rank in range(messages.ranks) if rank != messages.rank]
        #: what everyone calls, [peers, words], as it is sent and as it came
        self._sent = np.zeros((len(self._peers), HEADER_BYTES // 8), np.int64)
        self.headers = np.zeros_like(self._sent)
        self._sent[:, SIGNATURE] = signature
        gathers, sends = self._divided(transfers.sends, self._sent, outwards=True)
        scatters, fills = self._divided(transfers.fills, self.headers, outwards=False)
        for party, array in sends:
            self._sent[self._peers.index(party), MESSAGES : NBYTES + 1] += 1, array.nbytes
        self._come = [messages.prepare_receive(rank, row, header=True) for rank, row in self.by_rank()]
        lengths = 8 * _WORDS + self._sent[:, INLINE]
        self._go = [
            messages.prepare_send(rank, row.view(np.uint8)[:length], header=True)
            for rank, row, length in zip(self._peers, self._sent, lengths, strict=True)
        ]
        data = [messages.prepare_send(party, array) for party, array in sends]
        self._fills = [messages.prepare_receive(party, array) for party, array in fills]
        self._go += data
        requests = messages.requests_of([*self._come, *self._go, *self._fills])
        messages.release_with(self, requests)
        counts = [sum(len(message.requests) for message in group) for group in (data, self._fills)]
        self._words = np.array([_IDLE, signature, len(self._peers), *counts], np.int64)
        self._exchange = bound(
            _exchange,
            *(messages.addresses, self._words, requests.ctypes.data, self.headers),
            *(gathers, scatters, messages.new_work(len(requests))),
        )

    def announce(self, signature: int) -> None:
        """The call is known to all by this number from now on."""
        self._words[_SIGNATURE] = signature
        self._sent[:, SIGNATURE] = signature

    def run(self) -> int:
        """Begin, or go on; DONE, WAITING, MISMATCH or BROKEN."""
        if self._words[_STAGE] == _IDLE:
            for prepare in self._before:
                prepare()
        status = self._exchange()
        if status == DONE:
            for finish in self._after:
                finish()
        return int(status)

    def by_rank(self) -> list[tuple[int, np.ndarray]]:
        """The header that came from each rank."""
        return list(zip(self._peers, self.headers, strict=True))

    @property
    def pending(self) -> list[Message]:
        """What was started and not completed."""
        return [*self._come, *self._go, *(self._fills if self._words[_STAGE] == _DATA else [])]

    @property
    def sent(self) -> list[Message]:
        """All that was sent."""
        return self._go

    def _divided(
        self, arrays: list[tuple[int, np.ndarray]], headers: np.ndarray, *, outwards: bool
    ) -> tuple[np.ndarray, list[tuple[int, np.ndarray]]]:
        """What goes with the headers, as rows of (to, from, bytes), and the rest, which goes by itself."""
        rows, rest = [], []
        for peer, header in zip(self._peers, headers, strict=True):
            theirs = [(party, array) for party, array in arrays if party == peer and array.nbytes]
            if sum(array.nbytes for _, array in theirs) > INLINE_BYTES:
                rest += theirs
                continue
            at = header.ctypes.data + 8 * _WORDS
            for _, array in theirs:
                place = at, array.__array_interface__["data"][0]
                rows.append([*(place if outwards else place[::-1]), array.nbytes])
                at += array.nbytes
            header[INLINE] = at - header.ctypes.data - 8 * _WORDS
        return np.array(rows, np.int64).reshape(-1, 3), rest


@bare
def _exchange(addresses: Any, words: Any, requests: int, headers: Any, gathers: Any, scatters: Any, work: Any) -> Any:
    """Go through the stages as far as it goes; ``requests`` are headers to come, to go, data to go, to come."""
    peers = words[_PEERS]
    begun = 2 * peers + words[_SENDS]
    if words[_STAGE] == _IDLE:
        for row in range(len(gathers)):
            copy_bytes(gathers[row, 0], gathers[row, 1], gathers[row, 2])
        if not start(addresses, requests, begun):
            return BROKEN
        words[_STAGE] = _HEADERS
    if words[_STAGE] == _HEADERS:
        status = wait_for(addresses, requests, peers, work)
        if status != DONE:
            return status
        for peer in range(peers):
            if headers[peer, SIGNATURE] != words[_SIGNATURE]:
                return MISMATCH
        if words[_FILLS] and not start(addresses, requests + begun * addresses[REQUEST_BYTES], words[_FILLS]):
            return BROKEN
        words[_STAGE] = _DATA
    status = wait_for(addresses, requests, begun + words[_FILLS], work)
    if status != DONE:
        return status
    for row in range(len(scatters)):
        copy_bytes(scatters[row, 0], scatters[row, 1], scatters[row, 2])
    words[_STAGE] = _IDLE
    return DONE
