"""MessagePath: collectives among parties that share no memory: ranks, or hosts of which each rank carries a part.

An all-reduce of S bytes sends 2 (P - 1)/P x S from each of P parties, a reduce-scatter (P - 1)/P x S, as long as a
party's replicas are one subtree; an all-gather, a broadcast and an all-to-all send what others need, once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from gcl.core.groups import Group
from gcl.core.prepared_call import DONE, PreparedCall
from gcl.core.request import Collective, Request
from gcl.errors import ArgumentError, CollectiveMismatch, reason_of
from gcl.transport.messages.copy_collectives import all_gather, all_to_all, broadcast
from gcl.transport.messages.endpoints import Endpoints
from gcl.transport.messages.group_view import GroupView
from gcl.transport.messages.message_channel import MessageChannel
from gcl.transport.messages.persistent_sendrecv import Data, Swap
from gcl.transport.messages.point_to_point import PointToPoint
from gcl.transport.messages.reduce_collectives import Reduction, Rows
from gcl.transport.messages.stripes import Stripe
from gcl.transport.paths.path_state import Breakable
from gcl.transport.tcp.tcp_messages import TcpMessages

__all__ = ["MessagePath"]

_TEXT_BYTES = 1024
_WHOLE: Stripe = (0, 1)
#: Tensors that are no more than this for all others together go in one exchange; an all-reduce with one other may be
#: more, since that takes no more bytes than a reduce-scatter and an all-gather.
_SWAPPED_BYTES, _SWAPPED_WITH_ONE = 1 << 20, 1 << 22


@dataclass(frozen=True, kw_only=True)
class _SwapCall(PreparedCall):
    """A call in one exchange."""

    swap: Swap


class MessagePath(Breakable):
    """Runs collectives for one rank over ``messages``."""

    def __init__(self, messages: PointToPoint, parties: Endpoints, group: Group, timeout: float) -> None:
        self.name = messages.name
        self.channel = MessageChannel(messages, parties, timeout)
        self._groups = [GroupView(members, parties) for members in group.all_members()]
        self._local = len(parties.rows)
        self.prepared: dict[tuple[object, ...], PreparedCall] = {}
        self._swaps = isinstance(messages, TcpMessages)
        self._reduction = reduction = Reduction(self.channel)
        self._kinds: dict[Collective | None, Callable[[Request, GroupView, Rows, Rows, Stripe], None]] = {
            None: _nothing,
            Collective.ALL_REDUCE: reduction.all_reduce,
            Collective.REDUCE_SCATTER: reduction.reduce_scatter,
            Collective.ALL_GATHER: partial(all_gather, self.channel),
            Collective.BROADCAST: partial(broadcast, self.channel),
            Collective.ALL_TO_ALL: partial(all_to_all, self.channel),
        }
        self._at_once: dict[Collective | None, Callable[[Data, Request, GroupView, Rows, Rows, Stripe], None]] = {
            None: _nothing_at_once,
            Collective.ALL_REDUCE: reduction.reduce_at_once,
            Collective.REDUCE_SCATTER: reduction.scatter_at_once,
            Collective.ALL_GATHER: all_gather,
            Collective.BROADCAST: broadcast,
            Collective.ALL_TO_ALL: all_to_all,
        }

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray:
        """A zeroed tensor; messages carry any memory equally fast."""
        return np.zeros(shape, dtype)

    def shared(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray:
        """A zeroed tensor of this rank's own: without shared memory there is one for each."""
        return np.zeros(shape, dtype)

    def run(self, request: Request, x: np.ndarray, out: np.ndarray) -> None:
        """Run ``request`` from ``x`` to ``out`` (C-contiguous, leading axis the local replicas)."""
        self.check()
        call = self._prepare(request, x, out) if self.swaps(request) else None
        if call is not None:
            self.prepared[request.key(x, out)] = call
            try:
                self.finish(call, call.run())
            except BaseException as error:
                self.fail(error)
                raise
            return
        shared = request.shared
        results = [out.reshape(-1)] * self._local if shared else list(out.reshape(self._local, -1))
        try:
            if not self.channel.agree(request, request.signature):
                raise self.mismatch(request)
            self.work(request, list(x.reshape(self._local, -1)), results)
        except BaseException as error:
            self.fail(error)
            raise

    def work(self, request: Request, rows: Rows, results: Rows, part: Stripe = _WHOLE) -> None:
        """The messages of ``part`` of ``request``, from one flat array per replica of the party to another."""
        work = self._kinds[request.collective]
        with self.channel.data_of(request):
            for view in self._groups:
                if view.rows:
                    work(request, view, rows, results, part)

    def finish(self, call: PreparedCall, status: int) -> None:
        """Complete a call that was made in one exchange; what this raises goes to ``fail``."""
        assert isinstance(call, _SwapCall)
        if status != DONE and not self.channel.finish(call.request, call.swap, status):
            raise self.mismatch(call.request)

    def swaps(self, request: Request) -> bool:
        """Say whether ``request`` goes in one exchange: all ranks come to the same answer."""
        if not self._swaps or request.shared or request.collective not in self._at_once or self.channel.has_refused:
            return False
        others, nbytes = self.channel.messages.ranks - 1, request.count * request.dtype.itemsize
        most = _SWAPPED_WITH_ONE if others == 1 and request.collective is Collective.ALL_REDUCE else _SWAPPED_BYTES
        return nbytes * others <= most

    def swap(self, request: Request, rows: Rows, results: Rows, part: Stripe = _WHOLE) -> Swap:
        """``part`` of ``request`` in one exchange, from one flat array per replica of the party to another."""
        data, add = Data(), self._at_once[request.collective]
        for view in self._groups:
            if view.rows:
                add(data, request, view, rows, results, part)
        return self.channel.swap(request, data)

    def _prepare(self, request: Request, x: np.ndarray, out: np.ndarray) -> _SwapCall:
        swap = self.swap(request, list(x.reshape(self._local, -1)), list(out.reshape(self._local, -1)))
        return _SwapCall.of(self.prepared, self.channel.ready(swap), request, x, out, swap=swap)

    def mismatch(self, request: Request) -> CollectiveMismatch:
        """Exchange in words what each party called, and where; all build the same error."""
        mine = np.zeros(_TEXT_BYTES, np.uint8)
        text = request.with_call_site().encode()[:_TEXT_BYTES]
        mine[: len(text)] = np.frombuffer(text, np.uint8)
        texts = [bytes(row).rstrip(b"\0").decode(errors="replace") for row in self.channel.exchange(request, mine)]
        return CollectiveMismatch.between(list(zip(self.channel.parties.names, texts, strict=True)))

    def refuse(self, error: ArgumentError) -> None:
        """Tell the others that they wait for this rank in vain."""
        if self._fault is None:
            self.prepared.clear()  # a prepared call does not look for what others refused
            self.channel.refuse(str(error))

    def _depart(self, error: BaseException | None) -> None:
        self.prepared.clear()  # a prepared call does not look for faults
        self.channel.leave(reason_of(error))


def _nothing(request: Request, view: GroupView, rows: Rows, results: Rows, part: Stripe) -> None:
    """A barrier is the agreement that comes before."""


def _nothing_at_once(data: Data, request: Request, view: GroupView, rows: Rows, results: Rows, part: Stripe) -> None:
    """It is the exchange itself."""
