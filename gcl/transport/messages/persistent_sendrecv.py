"""PersistentSendrecv: the exchange of a call and all its data with every party, prepared once and run often.

    header    what is called, and the data if they are small      to and from every party
    data      straight from tensor to tensor                      received after the headers are found to agree

The messages are persistent MPI requests, which compiled code starts and completes; it returns to Python only while a
party is late. A PersistentSendrecv has the addresses of tensors only: it does not keep them alive.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

import numpy as np

from gcl.core.prepared_call import BROKEN, DONE, MISMATCH
from gcl.core.request import Request
from gcl.kernels.copies import copy_bytes
from gcl.kernels.jit import bare, bound
from gcl.transport.messages.point_to_point import PointToPoint
from gcl.transport.mpi.mpi_requests import Library, Message, start, wait_for

__all__ = ["Header", "Headers", "PersistentSendrecv", "Transfers"]

#: The most data that a header carries: copying them twice takes less than a second message.
_INLINE_BYTES = 1 << 16


class Header(IntEnum):
    """Index of each word of a header."""

    SIGNATURE = 0  # of the call; negative: see ``message_channel``
    MESSAGES = 1  # number of messages with data that follow
    NBYTES = 2  # bytes of all of them
    INLINE = 3  # bytes of data that the header carries
    DATA = 4  # the first word of these data


class SendrecvWord(IntEnum):
    """Index of each word that describes an exchange to compiled code."""

    STAGE = 0  # an ExchangeStage
    SIGNATURE = 1  # of the call
    PEERS = 2  # number of headers to send, and to receive
    SENDS = 3  # number of requests that send data
    FILLS = 4  # number of requests that receive data


class SendrecvStage(IntEnum):
    """How far an exchange has come."""

    IDLE = 0  # nothing is under way
    HEADERS = 1  # waits for the headers
    DATA = 2  # the headers agree; waits for everything else


class Headers:
    """Memory for one header to and one from each peer; only one exchange uses it at a time."""

    def __init__(self, messages: PointToPoint) -> None:
        self.peers = [rank for rank in range(messages.ranks) if rank != messages.rank]
        words = Header.DATA + _INLINE_BYTES // 8
        self.outgoing, self.incoming = (np.zeros((len(self.peers), words), np.int64) for _ in range(2))

    def by_rank(self) -> dict[int, np.ndarray]:
        """The header received from each rank, in words."""
        return dict(zip(self.peers, self.incoming, strict=True))

    @staticmethod
    def encode(signature: int, text: str = "") -> np.ndarray:
        """The bytes of a header that carries ``text``, in memory of its own."""
        data = text.encode()[:_INLINE_BYTES]
        words = np.array([signature, 0, 0, len(data)], np.int64)
        return np.concatenate([words.view(np.uint8), np.frombuffer(data, np.uint8)])

    @staticmethod
    def decode_text(header: np.ndarray) -> str:
        """The text that ``header`` carries."""
        return bytes(header[Header.DATA :].view(np.uint8)[: int(header[Header.INLINE])]).decode(errors="replace")


@dataclass
class Transfers:
    """The contents of an exchange: (party, array) pairs to send and to fill, and the steps before and after.

    Collectives use it in place of a ``MessageChannel``. ``kept`` is memory that lives as long as the exchange.
    """

    sends: list[tuple[int, np.ndarray]] = field(default_factory=list)
    fills: list[tuple[int, np.ndarray]] = field(default_factory=list)
    before: list[Callable[[], object]] = field(default_factory=list)
    after: list[Callable[[], object]] = field(default_factory=list)
    kept: list[np.ndarray] = field(default_factory=list)

    def send(self, party: int, data: np.ndarray) -> Message:
        """Send ``data`` after the steps ``before``."""
        self.sends.append((party, data))
        return Message(party, ())

    def receive(self, party: int, data: np.ndarray) -> Message:
        """Receive into ``data``."""
        self.fills.append((party, data))
        return Message(party, ())

    def wait(self, request: Request, pending: Sequence[Message]) -> None:
        """Do nothing: all data has been received before the steps ``after`` run."""

    def first(self, step: Callable[[], object]) -> None:
        """Run ``step`` before all sends."""
        self.before.append(step)

    def then(self, step: Callable[[], object]) -> None:
        """Run ``step`` after all data has been received."""
        self.after.append(step)

    def take(self, count: int, dtype: np.dtype[Any]) -> np.ndarray:
        """Allocate memory for ``count`` elements, which lives as long as the exchange."""
        self.kept.append(np.empty(count, dtype))
        return self.kept[-1]


class PersistentSendrecv:
    """Run it until it is DONE; another status is for ``MessageChannel.finish``."""

    def __init__(self, signature: int, transfers: Transfers, messages: PointToPoint, headers: Headers) -> None:
        self._before, self._after, self._kept = transfers.before, transfers.after, transfers.kept
        self._headers = headers
        #: the words of the header to each peer
        self._calls = np.zeros((len(headers.peers), Header.DATA), np.int64)
        self._calls[:, Header.SIGNATURE] = signature
        gathers, sends = self._divided(transfers.sends, headers.outgoing)
        inline, fills = self._divided(transfers.fills, headers.incoming)
        scatters = [(address, at, nbytes) for at, address, nbytes in inline]
        lengths = np.full(len(headers.peers), 8 * Header.DATA)
        for call, row, rank in zip(self._calls, headers.outgoing, headers.peers, strict=True):
            data = [array.nbytes for party, array in sends if party == rank]
            start, stop = row.ctypes.data, row.ctypes.data + row.nbytes
            call[Header.MESSAGES :] = len(data), sum(data), sum(n for at, _, n in gathers if start <= at < stop)
            gathers.append((start, call.ctypes.data, call.nbytes))
        lengths += self._calls[:, Header.INLINE]
        self._header_receives = [
            messages.prepare_receive(rank, row, header=True) for rank, row in headers.by_rank().items()
        ]
        self._sends = [
            messages.prepare_send(rank, row.view(np.uint8)[:length], header=True)
            for rank, row, length in zip(headers.peers, headers.outgoing, lengths, strict=True)
        ]
        self._sends += [messages.prepare_send(party, array) for party, array in sends]
        self._data_receives = [messages.prepare_receive(party, array) for party, array in fills]
        requests = messages.requests_of([*self._header_receives, *self._sends, *self._data_receives])
        messages.release_with(self, requests)
        begun, all_of_them = (
            len(messages.requests_of([*self._header_receives, *self._sends, *more]))
            for more in ([], self._data_receives)
        )
        peers = len(headers.peers)
        words = {
            SendrecvWord.STAGE: SendrecvStage.IDLE,
            SendrecvWord.SIGNATURE: signature,
            SendrecvWord.PEERS: peers,
            SendrecvWord.SENDS: begun - 2 * peers,
            SendrecvWord.FILLS: all_of_them - begun,
        }
        self._words = np.array([words[word] for word in SendrecvWord], np.int64)
        self._exchange = bound(
            _exchange,
            *(messages.addresses, self._words, requests.ctypes.data, headers.incoming),
            *(np.array(rows, np.int64).reshape(-1, 3) for rows in (gathers, scatters)),
            messages.new_work(len(requests), sum(array.nbytes for _, array in [*sends, *fills])),
        )

    def announce(self, signature: int) -> None:
        """Use another signature for the call from now on."""
        self._words[SendrecvWord.SIGNATURE] = self._calls[:, Header.SIGNATURE] = signature

    def run(self) -> int:
        """Start or continue the exchange; return DONE, WAITING, MISMATCH or BROKEN."""
        if self._words[SendrecvWord.STAGE] == SendrecvStage.IDLE:
            for prepare in self._before:
                prepare()
        status = self._exchange()
        if status == DONE:
            for finish in self._after:
                finish()
        return int(status)

    @property
    def pending(self) -> list[Message]:
        """The messages that have been started and are not complete."""
        return [
            *self._header_receives,
            *self._sends,
            *(self._data_receives if self._words[SendrecvWord.STAGE] == SendrecvStage.DATA else []),
        ]

    @property
    def sent(self) -> list[Message]:
        """All messages that are sent."""
        return self._sends

    def _divided(
        self, arrays: list[tuple[int, np.ndarray]], headers: np.ndarray
    ) -> tuple[list[tuple[int, int, int]], list[tuple[int, np.ndarray]]]:
        """Split ``arrays``: those in headers, as (address in a header, address, bytes), and those sent alone."""
        inline, rest = list[tuple[int, int, int]](), list[tuple[int, np.ndarray]]()
        for rank, header in zip(self._headers.peers, headers, strict=True):
            theirs = [(party, array) for party, array in arrays if party == rank and array.nbytes]
            if sum(array.nbytes for _, array in theirs) > _INLINE_BYTES:
                rest += theirs
                continue
            at = header.ctypes.data + 8 * Header.DATA
            for _, array in theirs:
                inline.append((at, array.__array_interface__["data"][0], array.nbytes))
                at += array.nbytes
        return inline, rest


@bare
def _exchange(addresses: Any, words: Any, requests: int, headers: Any, gathers: Any, scatters: Any, work: Any) -> Any:
    """Advance through the stages until the exchange is complete or a party is late.

    ``requests``, in order: receive headers, send headers, send data, receive data.
    """
    peers = words[SendrecvWord.PEERS]
    begun = 2 * peers + words[SendrecvWord.SENDS]
    if words[SendrecvWord.STAGE] == SendrecvStage.IDLE:
        for row in range(len(gathers)):
            copy_bytes(gathers[row, 0], gathers[row, 1], gathers[row, 2])
        if not start(addresses, requests, begun):
            return BROKEN
        words[SendrecvWord.STAGE] = SendrecvStage.HEADERS
    if words[SendrecvWord.STAGE] == SendrecvStage.HEADERS:
        status = wait_for(addresses, requests, peers, work)
        if status != DONE:
            return status
        for peer in range(peers):
            if headers[peer, Header.SIGNATURE.value] != words[SendrecvWord.SIGNATURE]:
                return MISMATCH
        if words[SendrecvWord.FILLS] and not start(
            addresses, requests + begun * addresses[Library.REQUEST_BYTES], words[SendrecvWord.FILLS]
        ):
            return BROKEN
        words[SendrecvWord.STAGE] = SendrecvStage.DATA
    status = wait_for(addresses, requests, begun + words[SendrecvWord.FILLS], work)
    if status != DONE:
        return status
    for row in range(len(scatters)):
        copy_bytes(scatters[row, 0], scatters[row, 1], scatters[row, 2])
    words[SendrecvWord.STAGE] = SendrecvStage.IDLE
    return DONE
