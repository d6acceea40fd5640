"""HierarchicalPath: collectives over several hosts: memory within each host, messages between them.

    meet           on each host; then the hosts check that all made the same call
    every sender   reads its stripe of the tensors of all replicas on its host in place, runs the collective with the
                   senders of the same stripe on the other hosts, and writes the result to the tensors of all
                   replicas on its host
    meet           on each host: every stripe is complete

Each byte crosses the network once to each host that needs it, however many processes a host has. A host has as many
senders as the host with the fewest processes has processes. Groups that stay inside their hosts send nothing.

Where all ranks are senders, the messages of calls of limited size are nothing but their data, and are prepared once
(``PreparedHostCall``): as long as the addresses of the tensors of all ranks of the host do not change, the same call
runs in compiled code. For small tensors, the first rank of each host sends all stripes.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from secrets import randbits
from typing import Any

import numpy as np

from gcl.core.prepared_call import DONE, MISMATCH, WAITING, PreparedCall
from gcl.core.request import Request
from gcl.errors import ArgumentError
from gcl.kernels.copies import copy_array
from gcl.transport.memory.segment import array_at
from gcl.transport.memory.staged_copies import StagedCopies
from gcl.transport.messages.endpoints import Stripe
from gcl.transport.messages.persistent_sendrecv import Sendrecv
from gcl.transport.paths.memory_path import KEPT_BYTES, MemoryPath
from gcl.transport.paths.message_path import MessagePath
from gcl.transport.paths.path_state import BreakablePath, PathState

#: If the tensors of all replicas of a host total no more than this, one rank of the host exchanges them: messages of
#: the other ranks would cost more than the work they would save, and ranks that sleep leave that rank the cores.
_ONE_SENDER_BYTES = 1 << 17
_FIRST = 0  # the rank of a host that exchanges small tensors


@dataclass(frozen=True, kw_only=True)
class _CrossHostCall(PreparedCall):
    """A call between hosts."""

    work: PreparedHostCall


class HierarchicalPath(BreakablePath):
    """Runs collectives for one rank.

    ``memory`` connects the ranks of its host; ``across`` connects the hosts for this rank's ``stripe`` (None: it
    sends nothing); ``everyone`` connects all ranks. ``replicas``: those of the host. ``inside``: every group lies
    within one host.
    """

    name = "hosts"

    def __init__(
        self,
        memory: MemoryPath,
        across: MessagePath | None,
        everyone: MessagePath,
        stripe: Stripe,
        replicas: list[int],
        *,
        inside: bool,
    ) -> None:
        self.memory, self._across, self.everyone = memory, across, everyone
        self._stripe, self._inside, self.replicas = stripe, inside, replicas
        # every rank must learn of a mismatch: if some ranks send nothing, all ranks compare calls
        all_send = (
            across is not None and stripe.number * across.channel.messages.ranks == everyone.channel.messages.ranks
        )
        self._agreement = across if across is not None and all_send else everyone
        self._state = PathState(self._leave_paths, memory.prepared if inside else None)
        self.prepared = self._state.prepared

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray:
        """A zeroed tensor in the segment of the host."""
        return self.memory.empty(shape, dtype)

    def shared(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray:
        """A zeroed tensor that all ranks of the host see."""
        return self.memory.shared(shape, dtype)

    def run(self, request: Request, x: np.ndarray, out: np.ndarray) -> None:
        """Run ``request`` from ``x`` to ``out`` (C-contiguous, leading axis the local replicas)."""
        self._state.check()
        try:
            if self._inside and request.collective is not None:
                self.memory.run(request, x, out)
            elif self._across is not None and self._agreement is self._across and self._across.is_at_once(request):
                self._run_at_once(self._across, request, x, out)
            else:
                self._run(request, x, out)
        except BaseException as error:
            self.fail(error)
            raise

    def finish(self, call: PreparedCall, status: int) -> None:
        """Complete a prepared call that returned ``status``."""
        if not isinstance(call, _CrossHostCall):
            self.memory.finish(call, status)
            return
        while status != DONE:
            if not call.work.wait(status, (call.x(), call.out())):
                raise self.everyone.mismatch(call.request)
            status = call.run()

    def refuse(self, error: ArgumentError) -> None:
        """Notify the ranks of this host, and those on other hosts that compare calls with this one, of a refusal."""
        if self._state.fault is None:
            if not self._inside:
                self.prepared.clear()  # a prepared call does not check for refusals
            self.memory.refuse(error)
            if not self._inside:
                self._agreement.refuse(error)

    def _leave_paths(self, error: BaseException | None) -> None:
        for path in (self.memory, self.everyone, self._across):
            if path is not None and error is None:
                path.close()
            elif path is not None and error is not None:
                path.fail(error)

    def _run_at_once(self, across: MessagePath, request: Request, x: np.ndarray, out: np.ndarray) -> None:
        """Run ``request`` with messages that are prepared, and kept for the next call."""
        near_x = self.memory.near(x)
        near_out = near_x if out is x else self.memory.near(out)
        owners = across.channel.endpoints.owners
        most = max(map(owners.count, owners))
        work = PreparedHostCall(self.memory, across, self._stripe, most, request, near_x, near_out)
        far = near_x is not x or near_out is not out
        run = StagedCopies(work.run, (near_x, x), (out, near_out)) if far else work.run
        call = _CrossHostCall.of(self.prepared, run, request, x, out, work=work)
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
        inputs, outputs = meeting.addresses.tolist()
        if not self._agreement.channel.agree(request, meeting.signature()):
            meeting.disagree()
            raise self.everyone.mismatch(request)
        if self._across is not None:
            elements = near_out.size // len(near_out)
            rows = [array_at(address, (request.count,), request.dtype) for address in inputs]
            results = [array_at(address, (elements,), request.dtype) for address in outputs]
            self._across.work(request, rows, [out.reshape(-1)] * len(rows) if shared else results, self._stripe)
        self.memory.hold(meeting.leave, request)
        if near_out is not out and not shared:
            copy_array(out, near_out)


class _Stage(IntEnum):
    """How far a prepared call between hosts has progressed."""

    ENTERING = 0  # waits for the ranks of this host
    EXCHANGING = 1  # waits for the other hosts
    LEAVING = 2  # waits for the ranks of this host again


class PreparedHostCall:
    """``request`` on two tensors of the segment: meet, exchange this rank's ``stripe``, meet again.

    If the tensors are small, the first rank of each host exchanges all of them, and the others only meet. If the
    first rank finds a mismatch, it tells them instead of meeting them again. Then each of them announces one to its
    counterparts on other hosts, which wait for it if they have started a larger call. ``replicas``: the number
    of replicas on the host that has the most.
    """

    def __init__(
        self,
        memory: MemoryPath,
        across: MessagePath,
        stripe: Stripe,
        replicas: int,
        request: Request,
        x: np.ndarray,
        out: np.ndarray,
    ) -> None:
        self._memory, self._across, self._request = memory, across, request
        small = request.count * request.dtype.itemsize * replicas <= _ONE_SENDER_BYTES
        self._sends, self._stripe = stripe.position == _FIRST or not small, Stripe(0, 1) if small else stripe
        self._meeting = memory.meeting(request, x, out)
        self._widths = request.count, out.size // len(out)
        self._stage = _Stage.ENTERING
        self._sendrecv: Sendrecv | None = None

    def run(self) -> int:
        """Start or continue the call; return DONE, WAITING, MISMATCH or BROKEN."""
        if self._stage == _Stage.ENTERING:
            if (status := self._meeting.enter()) != DONE:
                return status
            if self._sends:
                self._prepare()
            self._stage = _Stage.EXCHANGING if self._sends else _Stage.LEAVING
        if self._stage == _Stage.EXCHANGING:
            assert self._sendrecv is not None
            if (status := self._sendrecv.run()) != DONE:
                return status
            self._stage = _Stage.LEAVING
        if (status := self._meeting.leave()) == DONE:
            self._stage = _Stage.ENTERING
        return status

    def wait(self, status: int, tensors: object) -> bool:
        """Complete what ``run`` waits for; False if the calls of hosts differ. ``tensors``: those of this rank."""
        if self._stage == _Stage.EXCHANGING:
            assert self._sendrecv is not None
            memory = tensors, self._memory.memories
            if not self._across.channel.finish(self._request, self._sendrecv, status, memory):
                self._meeting.disagree()
                return False
            self._stage = _Stage.LEAVING
        elif self._stage == _Stage.ENTERING:
            self._memory.hold(self._meeting.enter, self._request)
        elif self._memory.hold(self._leave, self._request) == MISMATCH:
            # a signature that matches no call, so that no counterpart waits for this rank
            self._across.channel.agree(self._request, randbits(62))
            return False
        return True

    def _leave(self) -> int:
        """Wait for the ranks of the host, or for the first one to find a mismatch: DONE, WAITING or MISMATCH."""
        status = self._meeting.leave()
        return MISMATCH if status == WAITING and not self._sends and self._meeting.disagrees(_FIRST) else status

    def _prepare(self) -> None:
        """Prepare the exchange between the tensors that were announced."""
        signature = self._meeting.signature()
        if signature != self._request.signature:  # tensors of others may be shorter
            self._sendrecv = self._across.channel.prepare(signature, self._across.channel.transfers())
        elif self._meeting.look() or self._sendrecv is None:
            rows, results = (
                [array_at(int(address), (width,), self._request.dtype) for address in addresses]
                for addresses, width in zip(self._meeting.addresses, self._widths, strict=True)
            )
            self._sendrecv = self._across.prepare(self._request, rows, results, self._stripe)
