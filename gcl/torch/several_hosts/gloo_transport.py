"""Gloo transport: PyTorch's gloo carries the bytes between hosts, over sockets."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import numpy as np
import torch
from torch.distributed import Store
from torch.distributed.distributed_c10d import (
    AllgatherOptions,
    AllToAllOptions,
    BroadcastOptions,
    GatherOptions,
    ProcessGroupGloo,
    ScatterOptions,
)

from gcl.errors import PeerLost
from gcl.torch.several_hosts.host_transport import ELSEWHERE
from gcl.torch.work import GclWork


class GlooTransport:
    """Rank ``rank`` of ``ranks``, which meet over ``store`` (``several_hosts.host_transport``)."""

    name = "gloo"

    def __init__(self, store: Store, rank: int, ranks: int, timeout: float) -> None:
        self._group = ProcessGroupGloo(store, rank, ranks, timedelta(seconds=timeout))
        self._timeout = timeout

    @property
    def timeout(self) -> float:
        """Seconds that a wait takes at most."""
        return self._timeout

    @timeout.setter
    def timeout(self, seconds: float) -> None:
        self._timeout = seconds
        self._group._set_default_timeout(timedelta(seconds=seconds))

    def all_gather(self, x: np.ndarray, outs: Sequence[np.ndarray], what: str) -> None:
        with _told(what):
            self._group.allgather([list(map(_tensor, outs))], [_tensor(x)], AllgatherOptions()).wait()

    def broadcast(self, x: np.ndarray, root: int, what: str) -> None:
        options = BroadcastOptions()
        options.rootRank = root
        with _told(what):
            self._group.broadcast([_tensor(x)], options).wait()

    def all_to_all(self, parts: Sequence[np.ndarray], outs: Sequence[np.ndarray], what: str) -> None:
        sizes, out_sizes = [part.size for part in parts], [out.size for out in outs]
        sent, received = np.concatenate(parts), np.empty(sum(out_sizes), np.uint8)
        with _told(what):
            self._group.alltoall_base(_tensor(received), _tensor(sent), out_sizes, sizes, AllToAllOptions()).wait()
        for out, part in zip(outs, np.split(received, np.cumsum(out_sizes)[:-1]), strict=True):
            out[...] = part

    def gather(self, x: np.ndarray, outs: Sequence[np.ndarray], root: int, what: str) -> None:
        options = GatherOptions()
        options.rootRank = root
        with _told(what):
            self._group.gather([list(map(_tensor, outs))] if outs else [], [_tensor(x)], options).wait()

    def scatter(self, parts: Sequence[np.ndarray], out: np.ndarray, root: int, what: str) -> None:
        options = ScatterOptions()
        options.rootRank = root
        with _told(what):
            self._group.scatter([_tensor(out)], [list(map(_tensor, parts))] if parts else [], options).wait()

    def barrier(self) -> None:
        with _told("barrier"):
            self._group.barrier().wait()

    def monitored_barrier(self, seconds: float, *, all_ranks: bool) -> None:
        self._group.monitored_barrier(timedelta(seconds=seconds), all_ranks)

    def send(self, data: np.ndarray, target: int, tag: int) -> GclWork:
        work = self._group.send([_message(data)], target, tag)
        return _wrapped(work, f"send to rank {target}", data, lambda: None, lambda: -1)

    def receive(self, out: np.ndarray, source: int | None, tag: int, then: Callable[[], None]) -> GclWork:
        into = [_message(out)]
        work = self._group.recv_anysource(into, tag) if source is None else self._group.recv(into, source, tag)
        return _wrapped(work, "receive", out, then, work._source_rank)


def _wrapped(gloos: Any, what: str, data: np.ndarray, then: Callable[[], None], source: Callable[[], int]) -> GclWork:
    work = GclWork([], what=what)

    def waits(seconds: float | None) -> bool:
        if seconds == 0 and not gloos.is_completed():
            return False
        try:
            with _told(what):
                gloos.wait(*([] if not seconds else [timedelta(seconds=seconds)]))
            then()
        except PeerLost as error:
            work.settle(error)
        else:
            work.settle(source=source())
        return data is not None

    work.waits_with(waits, settles=False)
    return work


@contextmanager
def _told(what: str) -> Iterator[None]:
    """Convert errors of gloo to errors that name the call."""
    try:
        yield
    except RuntimeError as error:
        text = f"{what} between hosts failed: {str(error).splitlines()[0]}"
        raise PeerLost(text, text, ELSEWHERE) from error


def _tensor(data: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(data)


def _message(data: np.ndarray) -> torch.Tensor:
    """``data`` for gloo, or a byte if it is empty: gloo receives no empty message from any source."""
    return _tensor(data) if data.size else torch.zeros(1, dtype=torch.uint8)
