"""mpi: messages between processes, on one host or many, over a communicator of their own."""

from __future__ import annotations

import os
from collections.abc import Sequence
from time import monotonic, sleep
from typing import Any

import numpy as np
from mpi4py import MPI

__all__ = ["MpiMessages"]

_YIELDS = 500
_NAP_SECONDS = 50e-6


class MpiMessages:
    """Messages over a communicator of their own, so that nobody else's traffic is met; collective to make."""

    name = "mpi"

    def __init__(self, *, among: int = 0) -> None:
        """Join the ranks that give the same ``among``, in their order."""
        self._communicator = MPI.COMM_WORLD.Split(among, MPI.COMM_WORLD.rank)
        self.rank: int = self._communicator.rank
        self.ranks: int = self._communicator.size

    def send(self, to: int, data: np.ndarray) -> Any:
        return self._communicator.Isend([data.view(np.uint8), MPI.BYTE], to)

    def receive(self, frm: int, data: np.ndarray) -> Any:
        return self._communicator.Irecv([data.view(np.uint8), MPI.BYTE], frm)

    def wait(self, pending: Sequence[Any], *, timeout: float) -> bool:
        requests, deadline, tries = list(pending), monotonic() + timeout, 0
        while not MPI.Request.Testall(requests):
            tries += 1
            if tries < _YIELDS:
                os.sched_yield()
            elif monotonic() > deadline:
                return False
            else:
                sleep(_NAP_SECONDS)
        return True

    def close(self) -> None:
        """Nothing: freeing the MPI communicator is collective, and MPI_Finalize does it."""
