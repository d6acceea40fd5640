"""Announcements: the messages of parties that carry no data: which call a party makes, and notices.

    header    CALL, SIGNATURE, MESSAGES, NBYTES, TEXT, and the bytes of a text

One receive per party is always posted once announcements are in use. Headers of earlier calls, which nobody waits for
any more, are dropped; those of later calls are kept until then. A header can also be a notice, with a negative number
in place of a signature, and the reason as text:

    REFUSED    a call of this party was refused; a party that refused a call itself ignores it
    LEFT       this party takes part in no further call
"""

from __future__ import annotations

from collections.abc import Collection
from enum import IntEnum

import numpy as np

from gcl.transport.messages.point_to_point import PointToPoint
from gcl.transport.mpi.mpi_requests import Message, Tag

_TEXT_BYTES = 1 << 14


class Header(IntEnum):
    """Index of each word of a header."""

    CALL = 0  # number of the call on this channel
    SIGNATURE = 1  # of the call, or a Notice
    MESSAGES = 2  # number of messages with data for the receiver that the signature's tag marks
    NBYTES = 3  # bytes of all of them
    TEXT = 4  # bytes of text
    DATA = 5  # the first word of the text


class Notice(IntEnum):
    """What takes the place of the signature in a header; signatures are not negative."""

    REFUSED = -1
    LEFT = -2


def encode(call: int, signature: int, text: str = "", *, messages: int = 0, nbytes: int = 0) -> np.ndarray:
    """The bytes of a header, in memory of its own."""
    data = text.encode()[:_TEXT_BYTES]
    words = {
        Header.CALL: call,
        Header.SIGNATURE: signature,
        Header.MESSAGES: messages,
        Header.NBYTES: nbytes,
        Header.TEXT: len(data),
    }
    fixed = np.array([words[word] for word in Header if word < Header.DATA], np.int64)
    return np.concatenate([fixed.view(np.uint8), np.frombuffer(data, np.uint8)])


def text_of(header: np.ndarray) -> str:
    """The text that ``header`` carries."""
    return bytes(header[Header.DATA :].view(np.uint8)[: int(header[Header.TEXT])]).decode(errors="replace")


class Announcements:
    """The headers that other parties send over ``messages``."""

    def __init__(self, messages: PointToPoint) -> None:
        self._messages = messages
        self._memory: np.ndarray | None = None
        self._posted: dict[int, Message] = {}
        self._came: set[int] = set()  # those whose posted receive is known to be complete
        self._later: dict[int, np.ndarray] = {}

    def pending(self, ranks: Collection[int]) -> list[Message]:
        """The receives of the next header of each of ``ranks``; call ``came`` after a wait for them."""
        return [self._pending(rank) for rank in ranks]

    def came(self, ranks: Collection[int]) -> None:
        """A wait for the next header of each of ``ranks`` has ended."""
        self._came.update(ranks)

    def take(self, rank: int, call: int) -> np.ndarray | None:
        """The next header that ``rank`` sent about ``call``, or when it left; None if none has arrived."""
        while (header := self._next(rank)) is not None:
            if header[Header.SIGNATURE] == Notice.LEFT or header[Header.CALL] > call:
                self._later[rank] = header
            if header[Header.SIGNATURE] == Notice.LEFT or header[Header.CALL] == call:
                return header
            if header[Header.CALL] > call:
                return None
        return None

    def close(self, ranks: Collection[int]) -> None:
        """Drop pending headers of ``ranks``, about which MPI would complain at its end, and expect no more."""
        if not self._messages.usable:
            return
        for rank in ranks:
            while self._next(rank) is not None:
                pass
        for rank in set(self._posted) - self._came:
            self._messages.withdraw(self._posted[rank])
        self._posted, self._came = {}, set()

    def _next(self, rank: int) -> np.ndarray | None:
        """The first header of ``rank`` that was not taken, if it has arrived."""
        if rank in self._later:
            return self._later.pop(rank)
        if rank not in self._came and not self._messages.arrived(self._pending(rank)):
            return None
        self._came.discard(rank)
        del self._posted[rank]
        return np.array(self._row(rank))

    def _pending(self, rank: int) -> Message:
        if rank not in self._posted:
            self._posted[rank] = self._messages.receive(rank, self._row(rank), tag=Tag.HEADER)
        return self._posted[rank]

    def _row(self, rank: int) -> np.ndarray:
        """The memory that receives headers of ``rank``."""
        if self._memory is None:
            self._memory = np.zeros((self._messages.ranks, Header.DATA + _TEXT_BYTES // 8), np.int64)
            self._messages.keep(self._memory)  # a header may arrive after everything else has ended
        row: np.ndarray = self._memory[rank]
        return row
