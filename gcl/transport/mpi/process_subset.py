"""ProcessSubset: collectives and messages of some processes of an MPI job, in a communicator of their own.

Calls are non-blocking and polled for completion, so that the caller bounds every wait.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from mpi4py import MPI

from gcl.errors import TransportError


def world_rank() -> int:
    """The rank of this process in its job; -1 if MPI is not running, or not for several threads."""
    running = MPI.Is_initialized() and not MPI.Is_finalized()
    return int(MPI.COMM_WORLD.rank) if running and MPI.Query_thread() == MPI.THREAD_MULTIPLE else -1


class Pending:
    """A call that has begun; ``memory`` is what MPI reads or writes."""

    def __init__(self, request: Any, *memory: object) -> None:
        self._request, self._memory = request, memory
        self._status = MPI.Status()

    def done(self) -> bool:
        """Whether it is complete; raise TransportError if it failed."""
        try:
            return self._test()
        except MPI.Exception as error:
            raise TransportError(str(error).splitlines()[0]) from error

    def _test(self) -> bool:
        return bool(self._request.Test(self._status))

    def cancel(self) -> None:
        """Cancel the receive."""
        self._request.Cancel()

    @property
    def source(self) -> int:
        """The process that sent the received message."""
        return int(self._status.Get_source())

    @property
    def tag(self) -> int:
        """The tag of the received message."""
        return int(self._status.Get_tag())

    @property
    def nbytes(self) -> int:
        """The number of bytes received."""
        return int(self._status.Get_count())


class _FromAny(Pending):
    """A receive from any process: each poll probes for a message, and receives it.

    In MPICH 5.0 a pending receive from any source, over both shared memory and the network, occasionally never
    completes.
    """

    def __init__(self, communicator: Any, out: np.ndarray, tag: int) -> None:
        super().__init__(None, out)
        self._find = partial(communicator.Improbe, MPI.ANY_SOURCE, tag, self._status)
        self._out = out

    def _test(self) -> bool:
        if self._request is None:
            message = self._find()
            if message is None:
                return False
            self._request = message.Irecv(self._out)
        return super()._test()

    def cancel(self) -> None:
        if self._request is not None:
            super().cancel()


class ProcessSubset:
    """The processes ``members`` of the job, numbered in that order; all of them create it, and no others."""

    def __init__(self, members: Sequence[int]) -> None:
        everyone = MPI.COMM_WORLD.Get_group()
        group = everyone.Incl(list(members))
        self._communicator = MPI.COMM_WORLD.Create_group(group)
        group.Free()
        everyone.Free()
        self._communicator.Set_errhandler(MPI.ERRORS_RETURN)
        self.rank, self.ranks = int(self._communicator.rank), int(self._communicator.size)
        largest: Any = MPI.COMM_WORLD.Get_attr(MPI.TAG_UB)
        self.largest_tag = int(largest)

    def all_gather(self, x: np.ndarray, rows: np.ndarray) -> Pending:
        """Copy the bytes ``x`` of process i to row i."""
        return Pending(self._communicator.Iallgather(x, rows), x, rows)

    def broadcast(self, x: np.ndarray, root: int) -> Pending:
        """Copy the bytes ``x`` of process ``root``."""
        return Pending(self._communicator.Ibcast(x, root), x)

    def all_to_all(
        self, sent: np.ndarray, sizes: Sequence[int], received: np.ndarray, out_sizes: Sequence[int]
    ) -> Pending:
        """Copy ``sizes[j]`` bytes to process j, and ``out_sizes[i]`` from process i, one after the other."""
        request = self._communicator.Ialltoallv([sent, sizes, MPI.BYTE], [received, out_sizes, MPI.BYTE])
        return Pending(request, sent, received)

    def gather(self, x: np.ndarray, rows: np.ndarray | None, root: int) -> Pending:
        """Copy the bytes ``x`` of process i to row i of process ``root``."""
        return Pending(self._communicator.Igather(x, rows, root), x, rows)

    def scatter(self, rows: np.ndarray | None, out: np.ndarray, root: int) -> Pending:
        """Copy row i of process ``root`` to ``out`` of process i."""
        return Pending(self._communicator.Iscatter(rows, out, root), rows, out)

    def barrier(self) -> Pending:
        """Wait for all."""
        return Pending(self._communicator.Ibarrier())

    def send(self, data: np.ndarray, target: int, tag: int) -> Pending:
        """Send bytes."""
        return Pending(self._communicator.Isend(data, target, tag), data)

    def receive(self, out: np.ndarray, source: int | None, tag: int) -> Pending:
        """Receive at most as many bytes as ``out`` has, from any process if ``source`` is None."""
        if source is None:
            return _FromAny(self._communicator, out, tag)
        return Pending(self._communicator.Irecv(out, source, tag), out)
