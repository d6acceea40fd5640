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
        """A call of this rank cannot be made: others that make it wait for this rank in vain, and are told."""

    def fail(self, error: BaseException) -> None:
        """A call ended with ``error``: the ranks are out of step from here on."""

    def close(self) -> None:
        """Leave; others that wait for this rank are told."""
