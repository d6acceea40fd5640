"""HostCall: an exchange of a few bytes between hosts, prepared once: ranks of a host meet, exchange, and meet again.

What a rank exchanges lies in the tensors of all ranks of its host. As long as those stay where they are, a call goes
through compiled code only.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from gcl.core.prepared_call import DONE
from gcl.core.request import Request
from gcl.transport.memory.segment import array_at
from gcl.transport.messages.persistent_sendrecv import Data, Swap
from gcl.transport.messages.stripes import Stripe
from gcl.transport.paths.memory_path import MemoryPath
from gcl.transport.paths.message_path import MessagePath

__all__ = ["HostCall"]

_ENTERING, _EXCHANGING, _LEAVING = range(3)


class HostCall:
    """``request`` from ``x`` to ``out``, tensors of the segment; ``part`` of it is this rank's to exchange."""

    def __init__(
        self, memory: MemoryPath, across: MessagePath, part: Stripe, request: Request, x: np.ndarray, out: np.ndarray
    ) -> None:
        self._memory, self._across, self._part, self._request = memory, across, part, request
        self._meeting = memory.meeting(request, x, out)
        self._widths = request.count, out.size // len(out)
        self._stage = _ENTERING
        self._swap: Swap | None = None
        self._exchange: Callable[[], int] | None = None

    def run(self) -> int:
        """Begin, or go on; DONE, WAITING or MISMATCH."""
        if self._stage == _ENTERING:
            if (status := self._meeting.enter()) != DONE:
                return status
            self._prepare()
        if self._stage == _EXCHANGING:
            assert self._exchange is not None
            if (status := self._exchange()) != DONE:
                return status
            self._stage = _LEAVING
        if (status := self._meeting.leave()) == DONE:
            self._stage = _ENTERING
        return status

    def wait(self, status: int) -> bool:
        """Complete what ``run`` waits for; False if not all hosts called the same."""
        if self._stage == _EXCHANGING:
            assert self._swap is not None
            if not self._across.channel.finish(self._request, self._swap, status):
                return False
            self._stage = _LEAVING
        else:
            self._memory.hold(self._meeting.enter if self._stage == _ENTERING else self._meeting.leave, self._request)
        return True

    def _prepare(self) -> None:
        """The exchange between the tensors that were announced."""
        signature = self._meeting.signature()
        if signature != self._request.signature:  # tensors of others may be shorter
            self._swap = self._across.channel.swap(self._request, Data())
            self._swap.announce(signature)
            self._exchange = self._across.channel.ready(self._swap)
        elif self._meeting.look() or self._swap is None:
            rows, results = (
                [array_at(int(place), (width,), self._request.dtype) for place in places]
                for places, width in zip(self._meeting.places, self._widths, strict=True)
            )
            self._swap = self._across.swap(self._request, rows, results, self._part)
            self._exchange = self._across.channel.ready(self._swap)
        self._stage = _EXCHANGING
