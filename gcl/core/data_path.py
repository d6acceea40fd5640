"""Data path: the way the bytes of collectives take: shared memory, messages, or the programs of a method."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from gcl.core.prepared_call import PreparedCall
from gcl.core.request import Request
from gcl.errors import ArgumentError

__all__ = ["DataPath"]


class DataPath(Protocol):
    """What a communicator is made over."""

    name: str
    #: by Request.key; only while nothing has failed
    prepared: dict[tuple[object, ...], PreparedCall]

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray:
        """A zeroed tensor that this path moves fast."""

    def shared(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray:
        """A zeroed tensor of which ranks that share memory have one together."""

    def run(self, request: Request, x: np.ndarray, out: np.ndarray) -> None:
        """Run one collective from ``x`` to ``out``, both C-contiguous."""

    def finish(self, call: PreparedCall, status: int) -> None:
        """Complete a prepared call whose ``run`` returned ``status``."""

    def refuse(self, error: ArgumentError) -> None:
        """Report that a call of this rank was refused, so that ranks that made it do not wait for this one."""

    def fail(self, error: BaseException) -> None:
        """Report that a call ended with ``error``: from here on the ranks are out of step."""

    def close(self) -> None:
        """Leave; ranks that wait for this one get PeerLost."""
