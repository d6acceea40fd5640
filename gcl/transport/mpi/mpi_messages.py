"""MpiMessages: messages between processes, on one host or many, over an MPI communicator of their own.

MPI reads and writes tensors in place. After a failed wait, memory that MPI may still write to is kept until MPI ends
(``keep``), so that a late message cannot overwrite memory that has been reused.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Mapping, Sequence
from time import monotonic, sleep
from typing import Any

import numpy as np
from mpi4py import MPI

from gcl.core.prepared_call import DONE, WAITING
from gcl.core.request import in_background
from gcl.errors import TransportError
from gcl.transport.mpi.mpi_library import MpiLibrary, load
from gcl.transport.mpi.mpi_requests import Message, Pace, Tag, Work, new_work, wait
from gcl.transport.mpi.polling import poll
from gcl.transport.rendezvous.process_liveness import Process

_NAP_SECONDS = 50e-6
_FAREWELL_SECONDS = 0.5
_DEATH_SECONDS = 1.0
_ARRIVAL = 32_767  # the largest tag that every MPI has, in the communicator that programs use too
_NOTHING = [None, 0, MPI.BYTE]
_LONGEST_BYTES = 1 << 30  # of one message: MPI counts in 32 bits
_FEW = 64  # requests that are waited for without new memory


def missing_ranks(timeout: float) -> list[int]:
    """Wait for all ranks of the job; return those that did not arrive within ``timeout`` seconds."""
    world = MPI.COMM_WORLD
    others = [rank for rank in range(world.size) if rank != world.rank]
    arrivals = [world.Irecv(_NOTHING, rank, _ARRIVAL) for rank in others]
    sent = [world.Isend(_NOTHING, rank, _ARRIVAL) for rank in others]
    poll(lambda: MPI.Request.Testall(arrivals) and MPI.Request.Testall(sent), timeout)
    return [rank for rank, request in zip(others, arrivals, strict=True) if not request.Test()]


class MpiMessages:
    """Messages over an MPI communicator that nothing else uses; all ranks of the job create it together."""

    name = "mpi"

    def __init__(
        self,
        members: Sequence[int] | None = None,
        *,
        near: Mapping[int, Process] | None = None,
        crowded: bool = False,
        timeout: float = 300.0,
    ) -> None:
        """Join ``members`` (default: all ranks of the job), which are numbered in that order.

        ``near``: the processes of those on this machine, by number. ``crowded``: this machine has more ranks of the
        job than cores, so that waits must let others run. Raises TransportError after ``timeout`` seconds.
        """
        self._library = load()
        self._communicator, request = MPI.COMM_WORLD.Idup()
        if not poll(request.Test, timeout):
            raise TransportError(
                f"MPI created no communicator in {timeout:g} s, so some rank has died; check the output of all ranks"
            )
        self._communicator.Set_errhandler(MPI.ERRORS_RETURN)
        self._handle = self._communicator.handle
        largest: Any = MPI.COMM_WORLD.Get_attr(MPI.TAG_UB)
        self._tags = int(largest or _ARRIVAL) - Tag.CALLS + 1
        self._members = list(range(self._communicator.size)) if members is None else list(members)
        self.rank: int = self._members.index(self._communicator.rank)
        self.ranks: int = len(self._members)
        self._near = dict(near or {})
        self._crowded = crowded
        self._farewells = {
            rank: self._communicator.Irecv(_NOTHING, member, Tag.FAREWELL)
            for rank, member in enumerate(self._members)
            if rank != self.rank
        }
        self._work = self.new_work(_FEW)
        self._broken: set[int] = set()
        others = [self._members[rank] for rank in self._farewells]
        self._process = os.getpid()
        self._end = weakref.finalize(self, _leave, self._process, self._communicator, others, self._farewells)

    @property
    def addresses(self) -> np.ndarray:
        """The words of ``mpi_requests.Library``."""
        return self._library.addresses

    def new_work(self, requests: int, nbytes: int = 0) -> np.ndarray:
        """Memory for a wait for ``requests`` requests, whose messages have ``nbytes``."""
        return new_work(self._library.addresses, requests, self._pace(nbytes))

    @property
    def usable(self) -> bool:
        return self._end.alive and os.getpid() == self._process and not MPI.Is_finalized()

    def _pace(self, nbytes: int) -> Pace:
        """How this thread waits for ``nbytes``."""
        return Pace.of(nbytes, crowded=self._crowded, background=in_background())

    def tag_of(self, signature: int) -> int:
        return Tag.CALLS + signature % self._tags

    def send(self, to: int, data: np.ndarray, *, tag: int = Tag.DATA) -> Message:
        return self._begin(self._library.isend, to, data, tag)

    def receive(self, frm: int, data: np.ndarray, *, tag: int = Tag.DATA) -> Message:
        return self._begin(self._library.irecv, frm, data, tag)

    def prepare_send(self, to: int, data: np.ndarray, *, tag: int = Tag.DATA) -> Message:
        return self._prepared(self._begin(self._library.send_init, to, data, tag))

    def prepare_receive(self, frm: int, data: np.ndarray, *, tag: int = Tag.DATA) -> Message:
        return self._prepared(self._begin(self._library.recv_init, frm, data, tag))

    def requests_of(self, messages: Sequence[Message]) -> np.ndarray:
        """The handles of all requests of ``messages``, as compiled code takes them."""
        handles = [request for message in messages for request in message.requests]
        return np.array(handles, self._library.request_dtype)

    def release_with(self, owner: object, requests: np.ndarray) -> None:
        """Free persistent requests when ``owner`` is gone."""
        weakref.finalize(owner, _free, self._library, requests).atexit = False

    def wait(self, pending: Sequence[Message], *, timeout: float) -> list[int]:
        if self._broken:
            return sorted(self._broken)
        requests, deadline = self.requests_of(pending), monotonic() + timeout
        work = self._work if len(requests) <= _FEW else self.new_work(len(requests))
        nbytes = sum(message.data.nbytes for message in pending if message.data is not None)
        work[Work.BUSY_NANOSECONDS], work[Work.NAP_NANOSECONDS] = self._pace(nbytes)
        try:
            while (status := wait(self._library.addresses, requests.ctypes.data, len(requests), work)) == WAITING:
                if late := self._late(pending, requests, deadline):
                    self.keep(pending)
                    return late
        except BaseException:
            self.keep(pending)
            raise
        return [] if status == DONE else self.lost([message.rank for message in pending], pending)

    def arrived(self, message: Message) -> bool:
        if not message.requests or not all(map(self._is_complete, message.requests)):
            return False
        _free(self._library, self.requests_of([message]))
        return True

    def withdraw(self, message: Message) -> None:
        requests = self.requests_of([message])
        for slot in range(len(requests)):
            self._library.cancel(requests[slot:].ctypes.data)
        _free(self._library, requests)

    def late(self, pending: Sequence[Message], deadline: float) -> list[int]:
        return self._late(pending, self.requests_of(pending), deadline)

    def _late(self, pending: Sequence[Message], requests: np.ndarray, deadline: float) -> list[int]:
        # first check whether a rank has left: then everything it sent before has arrived
        gone = {rank for rank in {message.rank for message in pending} if self.gone(rank)}
        ranks = [message.rank for message in pending for _ in message.requests]
        waiting = {rank for rank, request in zip(ranks, requests, strict=True) if not self._is_complete(int(request))}
        return sorted(waiting) if gone & waiting or monotonic() > deadline else []

    def lost(self, ranks: Sequence[int], memory: object) -> list[int]:
        """Those of ``ranks`` that are gone, after MPI reported a failed message: it may do so before they end."""
        self.keep(memory)
        ranks, deadline = sorted(set(ranks)), monotonic() + _DEATH_SECONDS
        while not (gone := [rank for rank in ranks if self.gone(rank)]) and monotonic() < deadline:
            sleep(_NAP_SECONDS)
        self._broken.update(gone or ranks)
        return gone or ranks

    def keep(self, memory: object) -> None:
        """Keep memory until MPI ends, because late messages may be written to it."""
        self._communicator.Set_attr(MPI.Comm.Create_keyval(), memory)

    def has_left(self, rank: int) -> bool:
        try:
            return bool(self._farewells[rank].Test())
        except MPI.Exception:
            self._broken.add(rank)
            return False

    def gone(self, rank: int) -> str:
        died = (
            rank in self._near and not self._near[rank].alive()
        )  # checked before the farewell, which it may send just before it ends
        if self.has_left(rank):
            return "which has left; call it on all ranks, or on none, and find out why that rank stopped"
        if died:
            return "whose process has died; check its output"
        return "to which MPI has lost the connection; check its output" if rank in self._broken else ""

    def close(self) -> None:
        """Send farewells. The MPI communicator is left to MPI_Finalize, because freeing it is collective."""
        self._end()

    def _begin(self, start: Any, rank: int, data: np.ndarray, tag: int) -> Message:
        """Start or prepare a message, as several requests if it is too long for one."""
        address, nbytes, requests = data.__array_interface__["data"][0], data.nbytes, []
        for first in range(0, max(nbytes, 1), _LONGEST_BYTES):
            length = min(nbytes - first, _LONGEST_BYTES)
            request = np.zeros(1, self._library.request_dtype)
            where = self._members[rank], tag, self._handle, request.ctypes.data
            if start(address + first, length, self._library.byte, *where):
                self._broken.add(rank)
                break
            requests.append(int(request[0]))
        return Message(rank, tuple(requests), data)

    def _prepared(self, message: Message) -> Message:
        if message.rank in self._broken:
            raise TransportError(f"MPI creates no request for rank {message.rank}")
        return message._replace(data=None)

    def _is_complete(self, request: int) -> bool:
        """Whether a request is complete; it is not freed."""
        flag, status = np.zeros(1, np.int32), self.new_work(1)
        failed = self._library.request_get_status(request, flag.ctypes.data, status.ctypes.data)
        return not failed and bool(flag[0])


def _leave(process: int, communicator: Any, others: Sequence[int], farewells: Mapping[int, Any]) -> None:
    """Send every other rank a farewell: on ``close``, when the object is collected, or at exit."""
    if os.getpid() != process or MPI.Is_finalized():  # a forked child is not a rank
        return
    sent = [communicator.Isend(_NOTHING, rank, Tag.FAREWELL) for rank in others]
    deadline = monotonic() + _FAREWELL_SECONDS
    while not MPI.Request.Testall(sent) and monotonic() < deadline:
        sleep(_NAP_SECONDS)
    for farewell in farewells.values():  # MPI_Finalize receives those that arrive later
        if farewell:
            farewell.Free()


def _free(library: MpiLibrary, requests: np.ndarray) -> None:
    if not MPI.Is_finalized():
        for slot in range(len(requests)):
            library.request_free(requests[slot:].ctypes.data)
