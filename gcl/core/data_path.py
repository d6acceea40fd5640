"""Data path: how the bytes of collectives move: through shared memory, by messages, or by step programs."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from gcl.core.prepared_call import PreparedCall
from gcl.core.request import Request
from gcl.errors import ArgumentError


class DataPath(Protocol):
    """Protocol of a data path, which moves the bytes of a communicator."""

    name: str
    #: by Request.key; only while nothing has failed
    prepared: dict[tuple[object, ...], PreparedCall]

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray:
        """A zeroed tensor in memory that this path can use without copies."""

    def shared(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray:
        """A zeroed tensor, one for all ranks that share memory."""

    def run(self, request: Request, x: np.ndarray, out: np.ndarray) -> None:
        """Run one collective from ``x`` to ``out``, both C-contiguous."""

    def finish(self, call: PreparedCall, status: int) -> None:
        """Complete a prepared call whose ``run`` returned ``status``."""

    def refuse(self, error: ArgumentError) -> None:
        """Publish that a call of this rank was refused, so that ranks that made the call do not wait for this one."""

    def fail(self, error: BaseException) -> None:
        """Publish that a call ended with ``error``, after which the ranks are no longer synchronised."""

    def close(self) -> None:
        """Close; ranks that wait for this one raise PeerLost."""
