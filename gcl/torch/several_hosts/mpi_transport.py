"""MPI transport: the MPI of a job carries the bytes between hosts, over any network that it supports."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from threading import Lock

import numpy as np

from gcl.errors import ArgumentError, CollectiveTimeout, PeerLost, TransportError
from gcl.torch.one_host.monitored_barrier import RESERVED, monitored_barrier
from gcl.torch.several_hosts.host_transport import ELSEWHERE
from gcl.torch.work import GclWork
from gcl.transport.mpi.polling import poll
from gcl.transport.mpi.process_subset import Pending, ProcessSubset

_BYTE = np.dtype(np.uint8)


class MpiTransport:
    """The processes ``members`` of the job, in that order; all create it (``several_hosts.host_transport``)."""

    name = "mpi"

    def __init__(self, members: Sequence[int], timeout: float) -> None:
        self._processes, self.timeout = ProcessSubset(members), timeout
        self.rank, self.ranks = self._processes.rank, self._processes.ranks

    def all_gather(self, x: np.ndarray, outs: Sequence[np.ndarray], what: str) -> None:
        rows = np.empty((self.ranks, x.size), _BYTE)
        self._finish(self._processes.all_gather(np.ascontiguousarray(x), rows), what)
        _divide(rows, outs)

    def broadcast(self, x: np.ndarray, root: int, what: str) -> None:
        self._finish(self._processes.broadcast(x, root), what)

    def all_to_all(self, parts: Sequence[np.ndarray], outs: Sequence[np.ndarray], what: str) -> None:
        sizes, out_sizes = [part.size for part in parts], [out.size for out in outs]
        received = np.empty(sum(out_sizes), _BYTE)
        self._finish(self._processes.all_to_all(np.concatenate(parts), sizes, received, out_sizes), what)
        _divide(np.split(received, np.cumsum(out_sizes)[:-1]), outs)

    def gather(self, x: np.ndarray, outs: Sequence[np.ndarray], root: int, what: str) -> None:
        rows = np.empty((self.ranks, x.size), _BYTE) if self.rank == root else None
        self._finish(self._processes.gather(np.ascontiguousarray(x), rows, root), what)
        if rows is not None:
            _divide(rows, outs)

    def scatter(self, parts: Sequence[np.ndarray], out: np.ndarray, root: int, what: str) -> None:
        rows = np.stack(parts) if self.rank == root else None
        self._finish(self._processes.scatter(rows, out, root), what)

    def barrier(self) -> None:
        self._finish(self._processes.barrier(), "barrier")

    def monitored_barrier(self, seconds: float, *, all_ranks: bool) -> None:
        monitored_barrier(self, self.rank, self.ranks, seconds, all_ranks=all_ranks)

    def send(self, data: np.ndarray, target: int, tag: int) -> GclWork:
        pending = self._processes.send(np.ascontiguousarray(data), target, self._tag(tag))
        return self._message(_Message(pending, f"send to rank {target}", -1, lambda: None))

    def receive(self, out: np.ndarray, source: int | None, tag: int, then: Callable[[], None]) -> GclWork:
        pending = self._processes.receive(out, source, self._tag(tag))
        return self._message(_Message(pending, "receive", out.nbytes, then))

    def withdraw(self, work: GclWork) -> None:
        """Cancel a receive without a message yet."""
        if isinstance(work, _Message) and not work.is_settled:
            work.pending.cancel()

    def _message(self, work: _Message) -> GclWork:
        def waits(seconds: float | None) -> bool:
            limit = self.timeout if seconds is None else seconds
            if poll(work.look, limit):
                return True
            if seconds is None:
                work.settle(CollectiveTimeout(f"{work.what} waited {limit:g} s; check what that rank is doing"))
            return work.is_settled

        work.waits_with(waits, settles=False)
        return work

    def _finish(self, pending: Pending, what: str) -> None:
        try:
            done = poll(pending.done, self.timeout)
        except TransportError as error:
            raise _lost(what, error) from error
        if not done:
            raise CollectiveTimeout(
                f"{what} between hosts waited {self.timeout:g} s; check what the other "
                "ranks are doing, or raise timeout"
            )

    def _tag(self, tag: int) -> int:
        largest = self._processes.largest_tag
        if tag >= RESERVED:
            return largest - (tag - RESERVED)
        if tag > largest - 2:
            raise ArgumentError(f"tag {tag} is too large for this MPI; use at most {largest - 2}")
        return tag


class _Message(GclWork):
    """A send, or a receive of ``nbytes`` (-1: a send), after which ``then`` is called."""

    def __init__(self, pending: Pending, what: str, nbytes: int, then: Callable[[], None]) -> None:
        super().__init__([], what=what)
        self.pending, self._nbytes, self._then = pending, nbytes, then
        self._looking = Lock()  # several threads may wait for it

    def look(self) -> bool:
        """Test whether it is complete or has failed."""
        with self._looking:
            if self.is_settled:
                return True
            try:
                if not self.pending.done():
                    return False
                message = self.pending
                if 0 <= self._nbytes != message.nbytes:
                    raise ArgumentError(
                        f"rank {message.source} of the group sends {message.nbytes} bytes with tag {message.tag}, "
                        f"but the tensor has {self._nbytes}; pass tensors of equal size and dtype on both sides"
                    )
                self._then()
            except TransportError as error:
                self.settle(_lost(self.what, error))
            except ArgumentError as error:
                self.settle(error)
            else:
                self.settle(source=-1 if self._nbytes < 0 else self.pending.source)
        return True


def _divide(parts: Sequence[np.ndarray] | np.ndarray, outs: Sequence[np.ndarray]) -> None:
    for out, part in zip(outs, parts, strict=True):
        out[...] = part


def _lost(what: str, error: TransportError) -> PeerLost:
    text = f"{what} between hosts failed: {error}"
    return PeerLost(text, text, ELSEWHERE)
