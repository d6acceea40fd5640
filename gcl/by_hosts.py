"""ByHosts: all-reduce over several hosts: memory within each host, messages between them.

    meet          on each host; then hosts check that all called the same
    every rank    takes its slice of the tensors of all replicas on its host, straight out of their memory, and
                  all-reduces it with the ranks that have the same slice on the other hosts
    meet          on each host: every slice is there

Each byte crosses the network once in each direction, however many processes a host has: 2 (H - 1)/H x S per host, as
long as a host's replicas are one subtree. The other collectives go by messages between all ranks.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gcl.by_messages import ByMessages
from gcl.calls import Kind, Request
from gcl.errors import GclError
from gcl.in_memory import InMemory
from gcl.ready import ReadyCall
from gcl.transport.segment import array_at

__all__ = ["ByHosts"]

_LINE = 64  # bytes; slices begin on one


class ByHosts:
    """Runs collectives for one rank: ``memory`` joins its host, ``across`` its slice's ranks, ``everyone`` all."""

    name = "hosts"

    def __init__(self, memory: InMemory, across: ByMessages, everyone: ByMessages) -> None:
        self.memory, self._across, self.everyone = memory, across, everyone
        self._fault: GclError | None = None
        self.ready: dict[tuple[object, ...], ReadyCall] = {}

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray:
        """A zeroed tensor in the segment of the host."""
        return self.memory.empty(shape, dtype)

    def shared(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray:
        """A zeroed tensor of this rank's own."""
        return np.zeros(shape, dtype)

    def run(self, request: Request, x: np.ndarray, out: np.ndarray) -> None:
        """Run ``request`` from ``x`` to ``out`` (C-contiguous, leading axis the local replicas)."""
        if self._fault is not None:
            raise self._fault
        try:
            self._run(request, x, out)
        except BaseException as error:
            self.fail(error)
            raise

    def finish(self, call: ReadyCall, status: int) -> None:
        """Nothing: there are no ready calls over hosts."""

    def fail(self, error: BaseException) -> None:
        """Raise the same at every later call, and tell ranks that still wait."""
        for path in (self.memory, self._across, self.everyone):
            path.fail(error)
        interrupted = GclError("an earlier collective was interrupted, so the ranks are out of step; connect again")
        self._fault = self._fault or (error if isinstance(error, GclError) else interrupted)

    def close(self) -> None:
        """Leave: ranks of this host that still wait for this one are told."""
        self._fault = self._fault or GclError("the communicator is closed; connect again")
        self.memory.close()
        self._across.close()
        self.everyone.close()

    def _run(self, request: Request, x: np.ndarray, out: np.ndarray) -> None:
        near_x = self.memory.near(x)
        near_out = near_x if out is x else self.memory.near(out)
        if near_x is not x:
            near_x[...] = x
        signature, inputs, outputs = self.memory.enter(request, near_x, near_out)
        if not self._across.agree(request, signature):
            raise self.everyone.mismatch(request)
        if request.kind is Kind.ALL_REDUCE:
            low, high = self._slice(request)
            rows = [array_at(address, (request.count,), request.dtype)[low:high] for address in inputs]
            results = [array_at(address, (request.count,), request.dtype)[low:high] for address in outputs]
            self._across.work(request.resized(high - low), rows, results)
        else:
            local = len(x)
            shared = request.kind is Kind.ALL_GATHER_SHARED
            results = [near_out.reshape(-1)] * local if shared else list(near_out.reshape(local, -1))
            self.everyone.work(request, list(near_x.reshape(local, -1)), results)
        self.memory.leave(request)
        if near_out is not out:
            out[...] = near_out

    def _slice(self, request: Request) -> tuple[int, int]:
        """The elements that this rank is responsible for on its host."""
        unit = _LINE // request.dtype.itemsize
        units, ranks, rank = -(-request.count // unit), self.memory.ranks, self.memory.rank
        low, high = (min(request.count, units * r // ranks * unit) for r in (rank, rank + 1))
        return low, high
