"""PointToPoint: the interface of a transport between ranks that share no memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from gcl.transport.mpi.mpi_requests import Message, Tag


class PointToPoint(Protocol):
    """Point-to-point messages; between two ranks those of one tag arrive in the order they were sent."""

    name: str
    rank: int
    ranks: int

    @property
    def usable(self) -> bool:
        """Whether messages can still be sent and received by this process."""

    def tag_of(self, signature: int) -> int:
        """The tag of messages of the call ``signature``, at least ``Tag.CALLS``."""

    def send(self, to: int, data: np.ndarray, *, tag: int = Tag.DATA) -> Message:
        """Start to send contiguous ``data``, which must not change until ``wait`` returns."""

    def receive(self, frm: int, data: np.ndarray, *, tag: int = Tag.DATA) -> Message:
        """Start to receive into contiguous ``data``; the message may be shorter."""

    def prepare_send(self, to: int, data: np.ndarray, *, tag: int = Tag.DATA) -> Message:
        """A persistent request that sends; ``data`` is not kept alive."""

    def prepare_receive(self, frm: int, data: np.ndarray, *, tag: int = Tag.DATA) -> Message:
        """A persistent request that receives."""

    @property
    def addresses(self) -> np.ndarray:
        """The functions with which compiled code starts and completes requests."""

    def new_work(self, requests: int, nbytes: int = 0) -> np.ndarray:
        """Memory that compiled code needs to wait for ``requests`` requests, whose messages have ``nbytes``."""

    def requests_of(self, messages: Sequence[Message]) -> np.ndarray:
        """The requests of ``messages``, one after the other, as compiled code takes them."""

    def release_with(self, owner: object, requests: np.ndarray) -> None:
        """Free persistent requests when ``owner`` is gone."""

    def wait(self, pending: Sequence[Message], *, timeout: float) -> list[int]:
        """Complete ``pending``; return the ranks that are gone, or did not answer within ``timeout`` seconds."""

    def arrived(self, message: Message) -> bool:
        """Whether a message that ``send`` or ``receive`` started is complete; if so, it must not be used again."""

    def withdraw(self, message: Message) -> None:
        """Cancel a receive; its memory must be kept (``keep``), because the message may be on its way."""

    def late(self, pending: Sequence[Message], deadline: float) -> list[int]:
        """The ranks that have not answered, if waiting is pointless: one is gone, or the deadline has passed."""

    def lost(self, ranks: Sequence[int], memory: object) -> list[int]:
        """Those of ``ranks`` that are gone, after a wait failed; ``memory`` lives as long as the transport."""

    def keep(self, memory: object) -> None:
        """Keep ``memory`` as long as the transport lives: late messages may be written to it."""

    def has_left(self, rank: int) -> bool:
        """Whether ``rank`` has said that it leaves."""

    def gone(self, rank: int) -> str:
        """Why ``rank`` can no longer answer; "" if it still can."""

    def close(self) -> None:
        """Leave, and notify ranks that still wait for this one."""
