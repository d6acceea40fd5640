"""MessagePath: collectives among parties that share no memory: ranks, or hosts, each rank of which sends a part.

An all-reduce of S bytes sends 2 (P - 1)/P x S from each of P parties, a reduce-scatter (P - 1)/P x S, as long as a
party's replicas are one subtree; an all-gather, a broadcast and an all-to-all send each byte once to each receiver.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from gcl.core.groups import Group
from gcl.core.prepared_call import DONE, PreparedCall
from gcl.core.request import REDUCING, Collective, Request
from gcl.errors import ArgumentError, CollectiveMismatch, reason_of
from gcl.transport.messages.copy_collectives import all_gather, all_to_all, broadcast
from gcl.transport.messages.endpoints import Endpoints, GroupView, Stripe
from gcl.transport.messages.message_channel import MessageChannel
from gcl.transport.messages.persistent_sendrecv import Sendrecv, SendrecvPair, Transfers
from gcl.transport.messages.point_to_point import PointToPoint
from gcl.transport.messages.reduce_collectives import Reduction, Rows
from gcl.transport.paths.path_state import BreakablePath, PathState

_WHOLE = Stripe(0, 1)
_Work = Callable[[Request, GroupView, Rows, Rows, Stripe], None]
#: An all-reduce takes one exchange if the bytes for all other parties total no more than this, else two. With one
#: other party the limit is higher, because one exchange sends no more than two, and only adds twice as much.
_IN_ONE_BYTES, _IN_ONE_WITH_ONE = 1 << 20, 1 << 22
#: What arrives to be combined needs memory until then: if it is more than this, it goes in chunks.
_ARRIVING_BYTES = 1 << 24


@dataclass(frozen=True, kw_only=True)
class _SendrecvCall(PreparedCall):
    """A call whose messages are prepared."""

    sendrecv: Sendrecv


class MessagePath(BreakablePath):
    """Runs collectives for one rank over ``messages``."""

    def __init__(self, messages: PointToPoint, endpoints: Endpoints, group: Group, timeout: float) -> None:
        self.name = messages.name
        self.channel = MessageChannel(messages, endpoints, timeout)
        self._groups = [GroupView(members, endpoints) for members in group.all_members()]
        self._local = len(endpoints.rows)
        self._state = PathState(self._leave)
        self.prepared = self._state.prepared
        self._reduction = reduction = Reduction(self.channel)
        self._chunked: dict[Collective | None, _Work] = {
            None: _nothing,
            Collective.ALL_REDUCE: reduction.all_reduce,
            Collective.REDUCE_SCATTER: reduction.reduce_scatter,
            Collective.ALL_GATHER: partial(all_gather, self.channel),
            Collective.BROADCAST: partial(broadcast, self.channel),
            Collective.ALL_TO_ALL: partial(all_to_all, self.channel),
        }
        self._at_once: dict[
            Collective | None, Callable[[Transfers, Request, GroupView, Rows, Rows, Stripe], None]
        ] = {
            None: _nothing_at_once,
            Collective.ALL_REDUCE: reduction.all_reduce_at_once,
            Collective.REDUCE_SCATTER: reduction.reduce_scatter_at_once,
            Collective.ALL_GATHER: all_gather,
            Collective.BROADCAST: broadcast,
            Collective.ALL_TO_ALL: all_to_all,
        }

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray:
        """A zeroed tensor; messages are equally fast from any memory."""
        return np.zeros(shape, dtype)

    def shared(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray:
        """A zeroed private tensor: without shared memory, every rank has its own."""
        return np.zeros(shape, dtype)

    def run(self, request: Request, x: np.ndarray, out: np.ndarray) -> None:
        """Run ``request`` from ``x`` to ``out`` (C-contiguous, leading axis the local replicas)."""
        self._state.check()
        call = self._prepare(request, x, out) if self.is_at_once(request) else None
        try:
            if call is not None:
                self.prepared[request.key(x, out)] = call
                self.finish(call, call.run())
                return
            if not self.channel.agree(request, request.signature):
                raise self.mismatch(request)
            results = [out.reshape(-1)] * self._local if request.shared else list(out.reshape(self._local, -1))
            self.work(request, list(x.reshape(self._local, -1)), results)
        except BaseException as error:
            self.fail(error)
            raise

    def work(self, request: Request, rows: Rows, results: Rows, stripe: Stripe = _WHOLE) -> None:
        """Run ``request`` on ``stripe``, from and to one flat array per replica of the party."""
        work = self._chunked[request.collective]
        for view in self._groups:
            if view.rows:
                work(request, view, rows, results, stripe)

    def finish(self, call: PreparedCall, status: int) -> None:
        """Complete a call whose messages are prepared; the caller passes an error of this method to ``fail``."""
        assert isinstance(call, _SendrecvCall)
        tensors = call.x(), call.out()
        if status != DONE and not self.channel.finish(call.request, call.sendrecv, status, tensors):
            raise self.mismatch(call.request)

    def is_at_once(self, request: Request) -> bool:
        """Whether ``request`` is prepared as one or two exchanges; the answer is the same on all ranks."""
        if request.shared or request.collective not in self._at_once or self.channel.has_refused:
            return False
        if request.collective not in REDUCING:
            return True
        others, nbytes = self.channel.messages.ranks - 1, request.count * request.dtype.itemsize
        return nbytes * others // (1 + others) <= _ARRIVING_BYTES

    def prepare(self, request: Request, rows: Rows, results: Rows, stripe: Stripe = _WHOLE) -> Sendrecv:
        """Prepare ``stripe`` of ``request``, from and to one flat array per replica of the party."""
        others, nbytes = self.channel.messages.ranks - 1, request.count * request.dtype.itemsize
        most = _IN_ONE_WITH_ONE if others == 1 else _IN_ONE_BYTES
        in_two = request.collective is Collective.ALL_REDUCE and nbytes * others > most
        transfers, add = self.channel.transfers(), self._at_once[request.collective]
        returns = Transfers(transfers.memory)
        for view in self._groups:
            if view.rows and in_two:
                self._reduction.all_reduce_in_two((transfers, returns), request, view, rows, results, stripe)
            elif view.rows:
                add(transfers, request, view, rows, results, stripe)
        first = self.channel.prepare(request.signature, transfers)
        return SendrecvPair(first, self.channel.prepare(request.signature, returns)) if in_two else first

    def _prepare(self, request: Request, x: np.ndarray, out: np.ndarray) -> _SendrecvCall:
        sendrecv = self.prepare(request, list(x.reshape(self._local, -1)), list(out.reshape(self._local, -1)))
        return _SendrecvCall.of(self.prepared, sendrecv.run, request, x, out, sendrecv=sendrecv)

    def mismatch(self, request: Request) -> CollectiveMismatch:
        """Exchange descriptions of each party's call and call site; all parties build the same error."""
        texts = self.channel.exchange_text(request, request.with_call_site())
        return CollectiveMismatch.between(list(zip(self.channel.endpoints.names, texts, strict=True)))

    def refuse(self, error: ArgumentError) -> None:
        """Notify the others, which may wait for this rank, that its call was refused."""
        if self._state.fault is None:
            self.prepared.clear()  # a prepared call does not check for refusals
            self.channel.refuse(str(error))

    def _leave(self, error: BaseException | None) -> None:
        self.channel.leave(reason_of(error))


def _nothing(request: Request, view: GroupView, rows: Rows, results: Rows, stripe: Stripe) -> None:
    """A barrier sends no data: the agreement before it suffices."""


def _nothing_at_once(
    transfers: Transfers, request: Request, view: GroupView, rows: Rows, results: Rows, stripe: Stripe
) -> None:
    """A barrier sends no data: the headers of the exchange suffice."""
