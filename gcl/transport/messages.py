"""Messages: what collectives need of a transport between ranks that share no memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

__all__ = ["Messages"]


class Messages(Protocol):
    """Ordered point-to-point messages; two messages between the same ranks arrive in the order they were sent."""

    name: str
    rank: int
    ranks: int

    def send(self, to: int, data: np.ndarray) -> Any:
        """Start to send contiguous ``data``, which must stay as it is until ``wait``."""

    def receive(self, frm: int, data: np.ndarray) -> Any:
        """Start to receive into contiguous ``data``."""

    def wait(self, pending: Sequence[Any], *, timeout: float) -> bool:
        """Complete what was started; False if that takes longer than ``timeout`` seconds."""

    def close(self) -> None:
        """Release what the transport holds."""
