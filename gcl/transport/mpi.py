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
_FAREWELL_SECONDS = 0.5
_DATA, _FAREWELL = 0, 1  # tags
_NOTHING = [None, 0, MPI.BYTE]


class MpiMessages:
    """Messages over a communicator of their own, so that nobody else's traffic is met; collective to make."""

    name = "mpi"

    def __init__(self, *, among: int = 0) -> None:
        """Join the ranks that give the same ``among``, in their order."""
        self._communicator = MPI.COMM_WORLD.Split(among, MPI.COMM_WORLD.rank)
        self.rank: int = self._communicator.rank
        self.ranks: int = self._communicator.size
        self._farewells = {
            rank: self._communicator.Irecv(_NOTHING, rank, _FAREWELL)
            for rank in range(self.ranks)
            if rank != self.rank
        }
        self._closed = False

    def send(self, to: int, data: np.ndarray) -> Any:
        return to, self._communicator.Isend([data.view(np.uint8), MPI.BYTE], to, _DATA)

    def receive(self, frm: int, data: np.ndarray) -> Any:
        return frm, self._communicator.Irecv([data.view(np.uint8), MPI.BYTE], frm, _DATA)

    def wait(self, pending: Sequence[Any], *, timeout: float) -> list[int]:
        requests, deadline, tries = [request for _, request in pending], monotonic() + timeout, 0
        while not MPI.Request.Testall(requests):
            tries += 1
            if tries < _YIELDS:
                os.sched_yield()
                continue
            sleep(_NAP_SECONDS)
            # a rank is asked first whether it left: what it sent before that has come by then
            if monotonic() > deadline or any(self.left(rank) and not request.Test() for rank, request in pending):
                return self._late(pending)
        return []

    def left(self, rank: int) -> bool:
        return bool(self._farewells[rank].Test())

    def close(self) -> None:
        """Tell the others. The MPI communicator stays: freeing it is collective, and MPI_Finalize does it."""
        if self._closed:
            return
        self._closed = True
        words = [self._communicator.Isend(_NOTHING, rank, _FAREWELL) for rank in self._farewells]
        deadline = monotonic() + _FAREWELL_SECONDS
        while not MPI.Request.Testall(words) and monotonic() < deadline:
            sleep(_NAP_SECONDS)

    def _late(self, pending: Sequence[Any]) -> list[int]:
        """The ranks that have not answered. Their messages may still come: what they are written to must stay."""
        late = [(rank, request) for rank, request in pending if not request.Test()]
        self._communicator.Set_attr(MPI.Comm.Create_keyval(), late)  # MPI holds it as long as it lives itself
        return sorted({rank for rank, _ in late})
