"""PointToPoint: what collectives need of a transport between ranks that share no memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

__all__ = ["PointToPoint"]


class PointToPoint(Protocol):
    """Ordered point-to-point messages; two messages between the same ranks arrive in the order they were sent."""

    name: str
    rank: int
    ranks: int
    #: whether lent data may be under way after ``wait``
    lends: bool

    def send(self, to: int, data: np.ndarray, *, lent: bool = False) -> Any:
        """Start to send contiguous ``data``, which must stay as it is until ``wait``; if it is ``lent``, until ``to``
        has received it, so that it need not be copied."""

    def receive(self, frm: int, data: np.ndarray) -> Any:
        """Start to receive into contiguous ``data``, which is as long as what is sent."""

    def wait(self, pending: Sequence[Any], *, timeout: float) -> list[int]:
        """Complete what was started; the ranks that are gone, or did not answer in ``timeout`` seconds."""

    def gone(self, rank: int) -> str:
        """Why ``rank`` can answer no more, "" if it can."""

    def close(self) -> None:
        """Take part no more: ranks that still wait for this one are told."""
