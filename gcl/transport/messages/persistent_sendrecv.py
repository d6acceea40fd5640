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

__all__ = ["INLINE", "MESSAGES", "NBYTES", "SIGNATURE", "Headers", "PersistentSendrecv", "Transfers"]

#: Words of a header: what is called, the messages and bytes of data that follow, the bytes of data in the header.
SIGNATURE, MESSAGES, NBYTES, INLINE = range(4)
_WORDS = 4
#: The most data that a header brings with it: copying them twice takes less than a second message.
_INLINE_BYTES = 1 << 16

_STAGE, _SIGNATURE, _PEERS, _SENDS, _FILLS = range(5)
_IDLE, _HEADERS, _DATA = range(3)  # stages


class Headers:
    """Memory for one header to and one from each peer, which one exchange at a time uses."""

    def __init__(self, messages: PointToPoint) -> None:
        self.peers = [rank for rank in range(messages.ranks) if rank != messages.rank]
        words = _WORDS + _INLINE_BYTES // 8
        self.sent, self.came = (np.zeros((len(self.peers), words), np.int64) for _ in range(2))

    def by_rank(self) -> dict[int, np.ndarray]:
        """The header that came from each rank, in words."""
        return dict(zip(self.peers, self.came, strict=True))

    @staticmethod
    def with_text(signature: int, text: str = "") -> np.ndarray:
        """A header of its own with a text, as it is sent."""
        data = text.encode()[:_INLINE_BYTES]
        words = np.array([signature, 0, 0, len(data)], np.int64)
        return np.concatenate([words.view(np.uint8), np.frombuffer(data, np.uint8)])

    @staticmethod
    def text_of(header: np.ndarray) -> str:
        """The text that came with a header."""
        return bytes(header[_WORDS:].view(np.uint8)[: int(header[INLINE])]).decode(errors="replace")


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

    def __init__(self, signature: int, transfers: Transfers, messages: PointToPoint, headers: Headers) -> None:
        self._before, self._after, self._kept = transfers.before, transfers.after, transfers.kept
        self._headers = headers
        #: the words of the header to each peer
        self._calls = np.zeros((len(headers.peers), _WORDS), np.int64)
        self._calls[:, SIGNATURE] = signature
        gathers, sends = self._divided(transfers.sends, headers.sent)
        inline, fills = self._divided(transfers.fills, headers.came)
        scatters = [(address, at, nbytes) for at, address, nbytes in inline]
        lengths = np.full(len(headers.peers), 8 * _WORDS)
        for call, row, rank in zip(self._calls, headers.sent, headers.peers, strict=True):
            data = [array.nbytes for party, array in sends if party == rank]
            start, stop = row.ctypes.data, row.ctypes.data + row.nbytes
            call[MESSAGES:] = len(data), sum(data), sum(n for at, _, n in gathers if start <= at < stop)
            gathers.append((start, call.ctypes.data, call.nbytes))
        lengths += self._calls[:, INLINE]
        self._come = [messages.prepare_receive(rank, row, header=True) for rank, row in headers.by_rank().items()]
        self._go = [
            messages.prepare_send(rank, row.view(np.uint8)[:length], header=True)
            for rank, row, length in zip(headers.peers, headers.sent, lengths, strict=True)
        ]
        self._go += [messages.prepare_send(party, array) for party, array in sends]
        self._fills = [messages.prepare_receive(party, array) for party, array in fills]
        requests = messages.requests_of([*self._come, *self._go, *self._fills])
        messages.release_with(self, requests)
        begun, all_of_them = (
            len(messages.requests_of([*self._come, *self._go, *more])) for more in ([], self._fills)
        )
        peers = len(headers.peers)
        self._words = np.array([_IDLE, signature, peers, begun - 2 * peers, all_of_them - begun], np.int64)
        self._exchange = bound(
            _exchange,
            *(messages.addresses, self._words, requests.ctypes.data, headers.came),
            *(np.array(rows, np.int64).reshape(-1, 3) for rows in (gathers, scatters)),
            messages.new_work(len(requests)),
        )

    def announce(self, signature: int) -> None:
        """The call is known to all by this number from now on."""
        self._words[_SIGNATURE] = self._calls[:, SIGNATURE] = signature

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

    @property
    def pending(self) -> list[Message]:
        """What was started and not completed."""
        return [*self._come, *self._go, *(self._fills if self._words[_STAGE] == _DATA else [])]

    @property
    def sent(self) -> list[Message]:
        """All that was sent."""
        return self._go

    def _divided(
        self, arrays: list[tuple[int, np.ndarray]], headers: np.ndarray
    ) -> tuple[list[tuple[int, int, int]], list[tuple[int, np.ndarray]]]:
        """What goes with the headers, as (place in a header, address, bytes), and the rest, which goes by itself."""
        inline, rest = list[tuple[int, int, int]](), list[tuple[int, np.ndarray]]()
        for rank, header in zip(self._headers.peers, headers, strict=True):
            theirs = [(party, array) for party, array in arrays if party == rank and array.nbytes]
            if sum(array.nbytes for _, array in theirs) > _INLINE_BYTES:
                rest += theirs
                continue
            at = header.ctypes.data + 8 * _WORDS
            for _, array in theirs:
                inline.append((at, array.__array_interface__["data"][0], array.nbytes))
                at += array.nbytes
        return inline, rest


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
