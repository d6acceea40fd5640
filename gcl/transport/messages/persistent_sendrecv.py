"""PersistentSendrecv: all messages of a call with every party, prepared once and run often.

    before    steps that write the data to send
    data      straight from tensor to tensor; an empty message where a party needs none
    after     steps that combine and copy the received data

The tag of the messages identifies their call: a party that makes another call receives none of them, and
both find out while they wait (``message_channel``). The messages are persistent MPI requests, which compiled code
starts and completes; it returns to Python only while a party is late. A PersistentSendrecv has the addresses of
tensors only: it does not keep them alive.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

import numpy as np

from gcl.core.prepared_call import BROKEN, DONE, UNREAD
from gcl.core.request import Request
from gcl.kernels.jit import bare, bound
from gcl.reduce.buffer_pool import BufferPool
from gcl.reduce.encoded_steps import Step, copy, in_order, take_steps
from gcl.transport.messages.point_to_point import PointToPoint
from gcl.transport.mpi.mpi_requests import Message, start, wait_for

#: Several arrays for one party go in one message if they total no more than this: copying them takes less than a
#: second message.
_PACKED_BYTES = 1 << 16
#: Announcements that have arrived are read after this number of exchanges; until then they need memory.
_UNREAD_CALLS = 256


class SendrecvWord(IntEnum):
    """Index of each word that describes an exchange to compiled code."""

    STARTED = 0  # whether messages are under way
    REQUESTS = 1  # number of requests


@dataclass
class Transfers:
    """The contents of an exchange: (party, array) pairs to send and to fill, and the steps before and after.

    Collectives use it in place of a ``MessageChannel``. ``memory`` is for one exchange at a time;
    ``buffers`` is the part that this exchange uses.
    """

    memory: BufferPool = field(default_factory=BufferPool)
    sends: list[tuple[int, np.ndarray]] = field(default_factory=list)
    fills: list[tuple[int, np.ndarray]] = field(default_factory=list)
    before: list[Step] = field(default_factory=list)
    after: list[Step] = field(default_factory=list)
    buffers: list[np.ndarray] = field(default_factory=list)

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

    def first(self, step: Step) -> None:
        """Take ``step`` before all sends."""
        self.before.append(step)

    def then(self, step: Step) -> None:
        """Take ``step`` after all data has been received."""
        self.after.append(step)

    def take(self, count: int, dtype: np.dtype[Any]) -> np.ndarray:
        """Memory for ``count`` elements, which other exchanges use at other times."""
        self.buffers.append(self.memory.take(count, dtype))
        return self.buffers[-1]

    def messages(self, parties: Sequence[int]) -> tuple[list[tuple[int, np.ndarray]], list[tuple[int, np.ndarray]]]:
        """What is sent and filled, with at least one message to and from each of ``parties``; small arrays packed."""
        sends, fills = list[tuple[int, np.ndarray]](), list[tuple[int, np.ndarray]]()
        scatters = list[Step]()
        for party in parties:
            arrays, packed = self._packed(self.sends, party)
            if packed is not None:
                self.before += [copy(*pair) for pair in zip(packed, arrays, strict=True)]
            sends += [(party, array) for array in self._whole(arrays, packed)]
            arrays, packed = self._packed(self.fills, party)
            if packed is not None:
                scatters += [copy(*pair) for pair in zip(arrays, packed, strict=True)]
            fills += [(party, array) for array in self._whole(arrays, packed)]
        self.after = scatters + self.after
        return sends, fills

    def _packed(
        self, pairs: list[tuple[int, np.ndarray]], party: int
    ) -> tuple[list[np.ndarray], list[np.ndarray] | None]:
        """The arrays of ``party``, and slots for them side by side if they go in one message."""
        arrays = [array for other, array in pairs if other == party and array.nbytes]
        total = sum(array.nbytes for array in arrays)
        if len(arrays) < 2 or total > _PACKED_BYTES:
            return arrays, None
        memory, slots, at = self.take(total, np.dtype(np.uint8)), [], 0
        for array in arrays:
            slots.append(memory[at : at + array.nbytes])
            at += array.nbytes
        return arrays, slots

    def _whole(self, arrays: list[np.ndarray], packed: list[np.ndarray] | None) -> list[np.ndarray]:
        """One array for each message."""
        if packed is None:
            return arrays or [self.take(0, np.dtype(np.uint8))]
        return [self.buffers[-1]]


class PersistentSendrecv:
    """Call ``run`` until it returns DONE; another status is for ``MessageChannel.finish``.

    ``calls`` [1] counts the calls of the channel.
    """

    def __init__(
        self, signature: int, transfers: Transfers, messages: PointToPoint, calls: np.ndarray, scratch: np.ndarray
    ) -> None:
        self.signature = signature
        parties = [rank for rank in range(messages.ranks) if rank != messages.rank]
        sends, fills = transfers.messages(parties)
        self._kept, tag = transfers.buffers, messages.tag_of(signature)
        #: the messages that are sent
        self.sent = [messages.prepare_send(party, array, tag=tag) for party, array in sends]
        self._filled = [messages.prepare_receive(party, array, tag=tag) for party, array in fills]
        #: rank -> number of messages for it, and of bytes of all of them
        self.sizes = {
            party: (len(parts), sum(parts))
            for party in parties
            for parts in [[array.nbytes for to, array in sends if to == party]]
        }
        requests = messages.requests_of(self.pending)
        messages.release_with(self, requests)
        words = {SendrecvWord.STARTED: 0, SendrecvWord.REQUESTS: len(requests)}
        self._words = np.array([words[word] for word in SendrecvWord], np.int64)
        nbytes = sum(array.nbytes for _, array in [*sends, *fills])
        #: starts or continues the exchange; returns DONE, WAITING, UNREAD or BROKEN
        self.run: Callable[[], int] = bound(
            _exchange,
            *(messages.addresses, self._words, requests.ctypes.data, calls),
            *(in_order(transfers.before), in_order(transfers.after), scratch),
            messages.new_work(len(requests), nbytes),
        )

    @property
    def pending(self) -> list[Message]:
        """All messages: those that are received, and those that are sent."""
        return [*self._filled, *self.sent]

    def filled_from(self, ranks: Sequence[int]) -> list[Message]:
        """The messages received from ``ranks``."""
        return [message for message in self._filled if message.rank in ranks]


class SendrecvPair:
    """Two exchanges of one call, one after the other, used as one."""

    def __init__(self, first: PersistentSendrecv, second: PersistentSendrecv) -> None:
        self.signature, self._exchanges, self._done = first.signature, (first, second), 0

    def run(self) -> int:
        """Start or continue the call; return DONE, WAITING, UNREAD or BROKEN."""
        if not self._done:
            if (status := self._exchanges[0].run()) not in (DONE, UNREAD):
                return status
            self._done = 1
        if (status := self._exchanges[1].run()) in (DONE, UNREAD):
            self._done = 0
        return status

    @property
    def sizes(self) -> dict[int, tuple[int, int]]:
        """rank -> number of messages for it, and of bytes of all of them, in the exchange under way."""
        return self._exchanges[self._done].sizes

    @property
    def sent(self) -> list[Message]:
        """The messages that are sent in the exchange under way."""
        return self._exchanges[self._done].sent

    @property
    def pending(self) -> list[Message]:
        """All messages of the exchange under way."""
        return self._exchanges[self._done].pending

    def filled_from(self, ranks: Sequence[int]) -> list[Message]:
        """The messages received from ``ranks`` in the exchange under way."""
        return self._exchanges[self._done].filled_from(ranks)


#: The messages of one call.
Sendrecv = PersistentSendrecv | SendrecvPair


@bare
def _exchange(
    addresses: Any, words: Any, requests: int, calls: Any, before: Any, after: Any, scratch: Any, work: Any
) -> Any:
    """Start the messages, or go on waiting for them; when all are complete, take the steps after them."""
    if not words[SendrecvWord.STARTED]:
        calls[0] += 1
        take_steps(before, scratch)
        if not start(addresses, requests, words[SendrecvWord.REQUESTS]):
            return BROKEN
        words[SendrecvWord.STARTED] = 1
    status = wait_for(addresses, requests, words[SendrecvWord.REQUESTS], work)
    if status != DONE:
        return status
    take_steps(after, scratch)
    words[SendrecvWord.STARTED] = 0
    return UNREAD if calls[0] % _UNREAD_CALLS < 2 else DONE
