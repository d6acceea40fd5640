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
    MESSAGES = 1  # of data that follow
    NBYTES = 2  # of each of them together
    INLINE = 3  # bytes of data that the header carries
    DATA = 4  # the first word of these data


class Exchange(IntEnum):
    """Index of each word that describes an exchange to compiled code."""

    STAGE = 0  # an ExchangeStage
    SIGNATURE = 1  # of the call
    PEERS = 2  # headers to send, and to receive
    SENDS = 3  # requests that send data
    FILLS = 4  # requests that receive data


class ExchangeStage(IntEnum):
    """How far an exchange has come."""

    IDLE = 0  # nothing is under way
    HEADERS = 1  # waits for the headers
    DATA = 2  # the headers agree; waits for everything else


class Headers:
    """Memory for one header to and one from each peer; only one exchange uses it at a time."""

    def __init__(self, messages: PointToPoint) -> None:
        self.peers = [rank for rank in range(messages.ranks) if rank != messages.rank]
        words = Header.DATA + _INLINE_BYTES // 8
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
        return bytes(header[Header.DATA :].view(np.uint8)[: int(header[Header.INLINE])]).decode(errors="replace")


@dataclass
class Transfers:
    """What an exchange carries: (party, array) to send and to fill; the steps before and after.

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
        """Nothing: everything has been received when the steps ``after`` are done."""

    def first(self, step: Callable[[], object]) -> None:
        """Do ``step`` before all sends."""
        self.before.append(step)

    def then(self, step: Callable[[], object]) -> None:
        """Do ``step`` after everything has been received."""
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
        self._calls = np.zeros((len(headers.peers), Header.DATA), np.int64)
        self._calls[:, Header.SIGNATURE] = signature
        gathers, sends = self._divided(transfers.sends, headers.sent)
        inline, fills = self._divided(transfers.fills, headers.came)
        scatters = [(address, at, nbytes) for at, address, nbytes in inline]
        lengths = np.full(len(headers.peers), 8 * Header.DATA)
        for call, row, rank in zip(self._calls, headers.sent, headers.peers, strict=True):
            data = [array.nbytes for party, array in sends if party == rank]
            start, stop = row.ctypes.data, row.ctypes.data + row.nbytes
            call[Header.MESSAGES :] = len(data), sum(data), sum(n for at, _, n in gathers if start <= at < stop)
            gathers.append((start, call.ctypes.data, call.nbytes))
        lengths += self._calls[:, Header.INLINE]
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
        words = {
            Exchange.STAGE: ExchangeStage.IDLE,
            Exchange.SIGNATURE: signature,
            Exchange.PEERS: peers,
            Exchange.SENDS: begun - 2 * peers,
            Exchange.FILLS: all_of_them - begun,
        }
        self._words = np.array([words[word] for word in Exchange], np.int64)
        self._exchange = bound(
            _exchange,
            *(messages.addresses, self._words, requests.ctypes.data, headers.came),
            *(np.array(rows, np.int64).reshape(-1, 3) for rows in (gathers, scatters)),
            messages.new_work(len(requests)),
        )

    def announce(self, signature: int) -> None:
        """Announce the call by another signature from now on."""
        self._words[Exchange.SIGNATURE] = self._calls[:, Header.SIGNATURE] = signature

    def run(self) -> int:
        """Begin or continue; DONE, WAITING, MISMATCH or BROKEN."""
        if self._words[Exchange.STAGE] == ExchangeStage.IDLE:
            for prepare in self._before:
                prepare()
        status = self._exchange()
        if status == DONE:
            for finish in self._after:
                finish()
        return int(status)

    @property
    def pending(self) -> list[Message]:
        """The messages that were started and are not complete."""
        return [*self._come, *self._go, *(self._fills if self._words[Exchange.STAGE] == ExchangeStage.DATA else [])]

    @property
    def sent(self) -> list[Message]:
        """All messages that are sent."""
        return self._go

    def _divided(
        self, arrays: list[tuple[int, np.ndarray]], headers: np.ndarray
    ) -> tuple[list[tuple[int, int, int]], list[tuple[int, np.ndarray]]]:
        """Data that headers carry, as (address in a header, address, bytes), and those that are messages."""
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
    """Go through the stages until a party is late.

    ``requests``: the headers to receive, those to send, the data to send, the data to receive.
    """
    peers = words[Exchange.PEERS]
    begun = 2 * peers + words[Exchange.SENDS]
    if words[Exchange.STAGE] == ExchangeStage.IDLE:
        for row in range(len(gathers)):
            copy_bytes(gathers[row, 0], gathers[row, 1], gathers[row, 2])
        if not start(addresses, requests, begun):
            return BROKEN
        words[Exchange.STAGE] = ExchangeStage.HEADERS
    if words[Exchange.STAGE] == ExchangeStage.HEADERS:
        status = wait_for(addresses, requests, peers, work)
        if status != DONE:
            return status
        for peer in range(peers):
            if headers[peer, Header.SIGNATURE.value] != words[Exchange.SIGNATURE]:
                return MISMATCH
        if words[Exchange.FILLS] and not start(
            addresses, requests + begun * addresses[Library.REQUEST_BYTES], words[Exchange.FILLS]
        ):
            return BROKEN
        words[Exchange.STAGE] = ExchangeStage.DATA
    status = wait_for(addresses, requests, begun + words[Exchange.FILLS], work)
    if status != DONE:
        return status
    for row in range(len(scatters)):
        copy_bytes(scatters[row, 0], scatters[row, 1], scatters[row, 2])
    words[Exchange.STAGE] = ExchangeStage.IDLE
    return DONE
