"""HierarchicalPath: collectives over several hosts: memory within each host, messages between them.

    meet           on each host; then the hosts check that all called the same
    every carrier  takes its part of the tensors of all replicas on its host, straight out of their memory, does the
                   collective with the carriers of the same part on the other hosts, and writes to the tensors of
                   all replicas on its host
    meet           on each host: every part is there

Where all ranks carry, what is small goes in one exchange, with the call (``gcl.transport.paths.prepared_host_call``).

Each byte crosses the network once to each host that needs it, however many processes a host has. A host has as many
carriers as the host with the fewest processes has processes. Groups that stay inside their hosts send nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from gcl.core.prepared_call import DONE, PreparedCall
from gcl.core.request import Request
from gcl.errors import ArgumentError
from gcl.kernels.copies import copy_array
from gcl.transport.memory.segment import array_at
from gcl.transport.memory.staged_copies import StagedCopies
from gcl.transport.messages.stripes import Stripe
from gcl.transport.paths.memory_path import KEPT_BYTES, MemoryPath
from gcl.transport.paths.message_path import MessagePath
from gcl.transport.paths.path_state import Breakable
from gcl.transport.paths.prepared_host_call import HostCall

__all__ = ["HierarchicalPath"]


@dataclass(frozen=True, kw_only=True)
class _AcrossCall(PreparedCall):
    """A call between hosts."""

    work: HostCall


class HierarchicalPath(Breakable):
    """Runs collectives for one rank.

    ``memory`` joins its host; ``across`` the hosts, for this rank's ``part`` (None: it carries nothing); ``everyone``
    all ranks; ``replicas`` are those of the host; ``inside``: no group leaves its host.
    """

    name = "hosts"

    def __init__(
        self,
        memory: MemoryPath,
        across: MessagePath | None,
        everyone: MessagePath,
        part: Stripe,
        replicas: list[int],
        *,
        inside: bool,
    ) -> None:
        self.memory, self._across, self.everyone = memory, across, everyone
        self._part, self._inside, self.replicas = part, inside, replicas
        # every rank must hear of a mismatch: those that carry nothing ask everyone
        carried_by_all = (
            across is not None and part[1] * across.channel.messages.ranks == everyone.channel.messages.ranks
        )
        self._agreement = across if across is not None and carried_by_all else everyone
        self.prepared: dict[tuple[object, ...], PreparedCall] = memory.prepared if inside else {}

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray:
        """A zeroed tensor in the segment of the host."""
        return self.memory.empty(shape, dtype)

    def shared(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray:
        """A zeroed tensor that all ranks of the host see."""
        return self.memory.shared(shape, dtype)

    def run(self, request: Request, x: np.ndarray, out: np.ndarray) -> None:
        """Run ``request`` from ``x`` to ``out`` (C-contiguous, leading axis the local replicas)."""
        self.check()
        try:
            if self._inside and request.collective is not None:
                self.memory.run(request, x, out)
            elif self._across is not None and self._agreement is self._across and self._across.swaps(request):
                self._swap(self._across, request, x, out)
            else:
                self._run(request, x, out)
        except BaseException as error:
            self.fail(error)
            raise

    def finish(self, call: PreparedCall, status: int) -> None:
        """Complete a call that was made before."""
        if not isinstance(call, _AcrossCall):
            self.memory.finish(call, status)
            return
        while status != DONE:
            if not call.work.wait(status):
                raise self.everyone.mismatch(call.request)
            status = call.run()

    def refuse(self, error: ArgumentError) -> None:
        """Tell the ranks of this host, and those that agree with this one on the others."""
        if self._fault is None:
            if not self._inside:
                self.prepared.clear()  # a prepared call does not look for what others refused
            self.memory.refuse(error)
            if not self._inside:
                self._agreement.refuse(error)

    def _depart(self, error: BaseException | None) -> None:
        self.prepared.clear()  # a prepared call does not look for faults
        for path in (self.memory, self.everyone, self._across):
            if path is not None and error is None:
                path.close()
            elif path is not None and error is not None:
                path.fail(error)

    def _swap(self, across: MessagePath, request: Request, x: np.ndarray, out: np.ndarray) -> None:
        """Run ``request`` in one exchange, and keep how."""
        near_x = self.memory.near(x)
        near_out = near_x if out is x else self.memory.near(out)
        work = HostCall(self.memory, across, self._part, request, near_x, near_out)
        far = near_x is not x or near_out is not out
        run = StagedCopies(work.run, (near_x, x), (out, near_out)) if far else work.run
        call = _AcrossCall.of(self.prepared, run, request, x, out, work=work)
        if not far or max(x.nbytes, out.nbytes) <= KEPT_BYTES:
            self.prepared[request.key(x, out)] = call
        self.finish(call, call.run())

    def _run(self, request: Request, x: np.ndarray, out: np.ndarray) -> None:
        near_x = self.memory.near(x)
        shared = request.shared
        near_out = near_x if out is x or shared else self.memory.near(out)
        if near_x is not x:
            copy_array(near_x, x)
        meeting = self.memory.meeting(request, near_x, near_out)
        self.memory.hold(meeting.enter, request)
        meeting.look()
        inputs, outputs = meeting.places.tolist()
        if not self._agreement.channel.agree(request, meeting.signature()):
            raise self.everyone.mismatch(request)
        if self._across is not None:
            elements = near_out.size // len(near_out)
            rows = [array_at(address, (request.count,), request.dtype) for address in inputs]
            results = [array_at(address, (elements,), request.dtype) for address in outputs]
            self._across.work(request, rows, [out.reshape(-1)] * len(rows) if shared else results, self._part)
        self.memory.hold(meeting.leave, request)
        if near_out is not out and not shared:
            copy_array(out, near_out)
