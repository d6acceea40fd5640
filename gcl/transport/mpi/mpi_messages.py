"""mpi: messages between processes, on one host or many, over a communicator of their own."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from time import monotonic, sleep
from typing import Any

import numpy as np
from mpi4py import MPI

from gcl.errors import TransportError
from gcl.transport.rendezvous.process_liveness import Process

__all__ = ["MpiMessages", "missing_ranks"]

_YIELDS = 500
_NAP_SECONDS = 50e-6
_FAREWELL_SECONDS = 0.5
_DEATH_SECONDS = 1.0
_DATA, _FAREWELL = 0, 1  # tags
_ROLL_CALL = 32_767  # the largest tag that every MPI has, in the communicator that programs use too
_NOTHING = [None, 0, MPI.BYTE]
_NAPS_PER_LOOK = 1000  # at whether processes still live


def missing_ranks(timeout: float) -> list[int]:
    """Meet all ranks of the job; those that did not come in ``timeout`` seconds."""
    world = MPI.COMM_WORLD
    others = [rank for rank in range(world.size) if rank != world.rank]
    coming = [world.Irecv(_NOTHING, rank, _ROLL_CALL) for rank in others]
    told = [world.Isend(_NOTHING, rank, _ROLL_CALL) for rank in others]
    deadline = monotonic() + timeout
    _yield_until(lambda: (MPI.Request.Testall(coming) and MPI.Request.Testall(told)) or monotonic() > deadline)
    return [rank for rank, request in zip(others, coming, strict=True) if not request.Test()]


class MpiMessages:
    """Messages over a communicator of their own, apart from everyone else's; all ranks make one together."""

    name = "mpi"
    lends = False

    def __init__(
        self,
        members: Sequence[int] | None = None,
        *,
        near: Mapping[int, Process] | None = None,
        timeout: float = 300.0,
    ) -> None:
        """Join ``members`` (default: all ranks of the job), which are numbered in that order.

        ``near``: the processes of those on this host, by number. Raises TransportError after ``timeout`` seconds.
        """
        self._communicator, request = MPI.COMM_WORLD.Idup()
        deadline = monotonic() + timeout
        _yield_until(lambda: request.Test() or monotonic() > deadline)
        if not request.Test():
            raise TransportError(
                f"MPI made no communicator in {timeout:g} s, so some rank has died; look at their output"
            )
        self._members = list(range(self._communicator.size)) if members is None else list(members)
        self.rank: int = self._members.index(self._communicator.rank)
        self.ranks: int = len(self._members)
        self._near = dict(near or {})
        self._farewells = {
            rank: self._communicator.Irecv(_NOTHING, member, _FAREWELL)
            for rank, member in enumerate(self._members)
            if rank != self.rank
        }
        self._broken: set[int] = set()
        self._closed = False

    def send(self, to: int, data: np.ndarray, *, lent: bool = False) -> Any:
        try:
            return to, self._communicator.Isend([data.view(np.uint8), MPI.BYTE], self._members[to], _DATA)
        except MPI.Exception:
            self._broken.add(to)
            return to, MPI.REQUEST_NULL

    def receive(self, frm: int, data: np.ndarray) -> Any:
        return frm, self._communicator.Irecv([data.view(np.uint8), MPI.BYTE], self._members[frm], _DATA)

    def wait(self, pending: Sequence[Any], *, timeout: float) -> list[int]:
        try:
            return sorted(self._broken) or self._wait(pending, timeout)
        except MPI.Exception:
            return self._lost(pending)

    def _wait(self, pending: Sequence[Any], timeout: float) -> list[int]:
        requests, deadline, tries = [request for _, request in pending], monotonic() + timeout, 0
        while not MPI.Request.Testall(requests):
            tries += 1
            if tries < _YIELDS:
                os.sched_yield()
                continue
            sleep(_NAP_SECONDS)
            # a rank is asked first whether it left: what it sent before that has come by then
            look = self.gone if tries % _NAPS_PER_LOOK == 0 else self._left
            if monotonic() > deadline or any(look(rank) and not request.Test() for rank, request in pending):
                return self._late(pending)
        return []

    def gone(self, rank: int) -> str:
        if self._left(rank):
            return "which has left; call it on all ranks, or on none, and look at why that rank stopped"
        if rank in self._near and not self._near[rank].alive():
            return "whose process has died; look at its output"
        return "to which MPI has lost the connection; look at its output" if rank in self._broken else ""

    def close(self) -> None:
        """Tell the others. The MPI communicator stays: freeing it is collective, and MPI_Finalize does it."""
        if self._closed:
            return
        self._closed = True
        words = [self._communicator.Isend(_NOTHING, self._members[rank], _FAREWELL) for rank in self._farewells]
        deadline = monotonic() + _FAREWELL_SECONDS
        while not MPI.Request.Testall(words) and monotonic() < deadline:
            sleep(_NAP_SECONDS)

    def _left(self, rank: int) -> bool:
        """Say whether ``rank`` closed its end."""
        try:
            return bool(self._farewells[rank].Test())
        except MPI.Exception:
            self._broken.add(rank)
            return False

    def _lost(self, pending: Sequence[Any]) -> list[int]:
        """The ranks that are gone, after MPI found that some message cannot arrive: it may know before we do."""
        self._communicator.Set_attr(MPI.Comm.Create_keyval(), list(pending))
        ranks, deadline = sorted({rank for rank, _ in pending}), monotonic() + _DEATH_SECONDS
        while not (gone := [rank for rank in ranks if self.gone(rank)]) and monotonic() < deadline:
            sleep(_NAP_SECONDS)
        self._broken.update(gone or ranks)
        return gone or ranks

    def _late(self, pending: Sequence[Any]) -> list[int]:
        """The ranks that have not answered. Their messages may still come: what they are written to must stay."""
        late = [(rank, request) for rank, request in pending if not request.Test()]
        self._communicator.Set_attr(MPI.Comm.Create_keyval(), late)  # MPI holds it as long as it lives itself
        return sorted({rank for rank, _ in late})


def _yield_until(done: Any) -> None:
    """Ask ``done`` until it says yes: often at first, then seldom."""
    tries = 0
    while not done():
        tries += 1
        if tries < _YIELDS:
            os.sched_yield()
        else:
            sleep(_NAP_SECONDS)
