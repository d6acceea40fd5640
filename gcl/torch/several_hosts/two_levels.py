"""Several hosts: collectives in two levels, gcl within each host and PyTorch's gloo between hosts.

    all-reduce   within each host, each rank combines one stripe of the tensors of its host
                 the ranks with the same stripe exchange their sums, and combine them in the order of the hosts
                 within each host, each rank copies the stripes of the others
    broadcast    to one rank of each host, then within each host

The tree in which contributions are combined is that of one host, and sums travel unrounded, so that the result has
the same bits. That takes hosts of equally many ranks, a power of two, in order; else each tensor travels to
every rank. Collectives that only move bytes, and messages, are gloo's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import numpy as np
import torch
from torch.distributed.distributed_c10d import (
    AllgatherOptions,
    AllToAllOptions,
    BroadcastOptions,
    GatherOptions,
    ScatterOptions,
)

from gcl.core.operators import Operator
from gcl.errors import ArgumentError, PeerLost
from gcl.kernels.dtypes import sum_dtype
from gcl.reduce.reduction import new_scratch, recipe, reduce_range
from gcl.torch.one_host.host_group import HostGroup
from gcl.torch.tensors import array_of
from gcl.torch.work import GclWork

__all__ = ["SeveralHosts"]

_BYTE = np.dtype(np.uint8)


class SeveralHosts:
    """Rank ``rank`` of all ranks of ``hosts``, joined to those of its host by ``inner`` and to all by ``everyone``.

    ``column`` joins one rank of each host, that at the position of this one; None if the hosts differ.
    """

    def __init__(self, rank: int, hosts: list[list[int]], inner: HostGroup, everyone: Any, column: Any) -> None:
        self.rank, self.ranks, self._hosts = rank, sum(map(len, hosts)), hosts
        self.inner, self._everyone, self._column = inner, everyone, column
        self.refusals = inner.refusals
        self.messages = _GlooMessages(everyone)
        self._scratch = new_scratch()

    @property
    def timeout(self) -> float:
        """Seconds that a wait takes at most."""
        return self.inner.timeout

    @timeout.setter
    def timeout(self, seconds: float) -> None:
        self.inner.timeout = seconds
        for group in (self._everyone, self._column):
            if group is not None:
                group._set_default_timeout(timedelta(seconds=seconds))

    def refuse(self, error: ArgumentError) -> None:
        """Tell the ranks of this host of a call that is not made."""
        self.inner.refuse(error)

    def room(self, nbytes: int) -> np.ndarray:
        """Bytes that the ranks of this host share."""
        return self.inner.room(nbytes)

    def stored(self, number: int, tensor: torch.Tensor) -> np.ndarray:
        """The elements of ``tensor``, which stays where it is."""
        return array_of(tensor)

    def has_core(self) -> bool:
        """A collective starts when it is begun: nothing tells whether a rank of another host waits for it."""
        return True

    def is_awaited(self) -> bool:
        """Whether a rank of this host waits for this one."""
        return self.inner.is_awaited()

    def close(self) -> None:
        """Leave."""
        self.inner.close()

    def abort(self) -> None:
        """Leave at once."""
        self.inner.abort()

    def monitored_barrier(self, seconds: float, *, all_ranks: bool) -> None:
        """That of gloo."""
        self._everyone.monitored_barrier(timedelta(seconds=seconds), all_ranks)

    def all_reduce(self, x: np.ndarray, op: Operator) -> None:
        """Combine ``x`` [1, n] of all ranks in place."""
        wide = sum_dtype(x.dtype)
        summing = Operator.ADD if op is Operator.MEAN else op
        if self._column is None:
            total = self._of_all(x.astype(wide), summing)
        else:
            total = self._in_stripes(x.astype(wide), summing)
        if op is Operator.MEAN:
            total = total / self.ranks if total.dtype.kind == "f" else np.trunc(total / self.ranks)
        x[...] = total.astype(x.dtype)

    def reduce_scatter(self, x: np.ndarray, out: np.ndarray, op: Operator) -> None:
        """Combine ``x`` [1, ranks * n]; rank i gets part i."""
        whole = x.copy()
        self.all_reduce(whole, op)
        out[...] = whole.reshape(self.ranks, -1)[self.rank]

    def reduce_parts(self, parts: Sequence[np.ndarray], out: np.ndarray, op: Operator) -> None:
        """Combine part i of all ranks on rank i."""
        whole = np.concatenate(parts)[None]
        self.all_reduce(whole, op)
        start = sum(part.size for part in parts[: self.rank])
        out[...] = whole[0, start : start + out.size]

    def all_gather(self, x: np.ndarray, out: np.ndarray, what: str) -> None:
        """Copy the bytes ``x`` of rank i to part i of ``out``."""
        self.all_gather_list(x, np.split(out, self.ranks), what)

    def all_gather_list(self, x: np.ndarray, outs: Sequence[np.ndarray], what: str) -> None:
        """Copy the bytes ``x`` of rank i to ``outs[i]``."""
        with _told(f"all_gather({what})"):
            self._everyone.allgather([[_tensor(out) for out in outs]], [_tensor(x)], AllgatherOptions()).wait()

    def broadcast(self, x: np.ndarray, root: int, what: str) -> None:
        """Copy the bytes ``x`` of rank ``root`` to those of all ranks."""
        options = BroadcastOptions()
        if self._column is None:
            options.rootRank = root
            with _told(f"broadcast({what})"):
                self._everyone.broadcast([_tensor(x)], options).wait()
            return
        host, position = self._place(root)
        if self.inner.rank == position:
            options.rootRank = host
            with _told(f"broadcast({what})"):
                self._column.broadcast([_tensor(x)], options).wait()
        self.inner.broadcast(x, position, what)

    def all_to_all_even(self, x: np.ndarray, out: np.ndarray, what: str) -> None:
        """Copy part j of the bytes ``x`` of rank i to part i of ``out`` of rank j."""
        self.all_to_all(np.split(x, self.ranks), np.split(out, self.ranks), what)

    def all_to_all(self, parts: Sequence[np.ndarray], outs: Sequence[np.ndarray], what: str) -> None:
        """Copy the bytes ``parts[j]`` of rank i to ``outs[i]`` of rank j."""
        sent, received = np.concatenate(parts), np.empty(sum(out.size for out in outs), _BYTE)
        sizes, places = [part.size for part in parts], [out.size for out in outs]
        with _told(f"all_to_all({what})"):
            self._everyone.alltoall_base(_tensor(received), _tensor(sent), places, sizes, AllToAllOptions()).wait()
        for out, part in zip(outs, np.split(received, np.cumsum(places)[:-1]), strict=True):
            out[...] = part

    def gather(self, x: np.ndarray, outs: Sequence[np.ndarray], root: int, what: str) -> None:
        """Copy the bytes ``x`` of rank i to ``outs[i]`` of rank ``root``."""
        options = GatherOptions()
        options.rootRank = root
        with _told(f"gather({what})"):
            self._everyone.gather([list(map(_tensor, outs))] if outs else [], [_tensor(x)], options).wait()

    def scatter(self, parts: Sequence[np.ndarray], out: np.ndarray, root: int, what: str) -> None:
        """Copy the bytes ``parts[i]`` of rank ``root`` to ``out`` of rank i."""
        options = ScatterOptions()
        options.rootRank = root
        with _told(f"scatter({what})"):
            self._everyone.scatter([_tensor(out)], [list(map(_tensor, parts))] if parts else [], options).wait()

    def barrier(self) -> None:
        """Wait for all ranks."""
        with _told("barrier"):
            self._everyone.barrier().wait()

    def _place(self, rank: int) -> tuple[int, int]:
        """The number of a rank's host, and its position there."""
        return next((host, ranks.index(rank)) for host, ranks in enumerate(self._hosts) if rank in ranks)

    def _in_stripes(self, x: np.ndarray, op: Operator) -> np.ndarray:
        width = -(-x.size // self.inner.ranks)
        padded = np.zeros((1, width * self.inner.ranks), x.dtype)
        padded[0, : x.size] = x
        stripe = np.empty((1, width), x.dtype)
        self.inner.reduce_scatter(padded, stripe, op)
        sums = np.empty((len(self._hosts), width), x.dtype)
        with _told(f"all_reduce({op}, {x.size} x {x.dtype})"):
            rows = [_tensor(row.view(_BYTE)) for row in sums]
            self._column.allgather([rows], [_tensor(stripe[0].view(_BYTE))], AllgatherOptions()).wait()
        mine = self._combined(sums, op, self.inner.ranks)
        self.inner.all_gather(mine.view(_BYTE), padded[0].view(_BYTE), f"stripes of {x.size} x {x.dtype}")
        return padded[:, : x.size]

    def _of_all(self, x: np.ndarray, op: Operator) -> np.ndarray:
        rows = np.empty((self.ranks, x.size), x.dtype)
        self.all_gather_list(x[0].view(_BYTE), [row.view(_BYTE) for row in rows], f"{op}, {x.size} x {x.dtype}")
        return self._combined(rows, op, 1)[None]

    def _combined(self, rows: np.ndarray, op: Operator, leaves: int) -> np.ndarray:
        """The ``rows``, each the combination of ``leaves`` ranks, combined in a balanced tree."""
        total = np.empty(rows.shape[1], rows.dtype)
        made = recipe(op, (leaves,) * len(rows), rows.dtype, rows.dtype, self.ranks)
        nodes = np.array([row.ctypes.data for row in rows], np.int64)
        outs = np.array([total.ctypes.data], np.int64)
        reduce_range(made, nodes, outs, 1, 0, total.size, self._scratch)
        return total


class _GlooMessages:
    """The sends and receives of gloo."""

    def __init__(self, group: Any) -> None:
        self._group = group

    def send(self, data: np.ndarray, target: int, tag: int) -> GclWork:
        """Begin to send the bytes ``data``."""
        work = self._group.send([_tensor(data)], target, tag)
        return _wrapped(work, f"send to rank {target}", data, _nothing, lambda: -1)

    def receive(self, out: np.ndarray, source: int | None, tag: int, then: Callable[[], None]) -> GclWork:
        """Begin to receive into the bytes ``out``; at the end do ``then``."""
        work = (
            self._group.recv_anysource([_tensor(out)], tag)
            if source is None
            else self._group.recv([_tensor(out)], source, tag)
        )
        return _wrapped(work, "receive", out, then, work._source_rank)


def _wrapped(gloos: Any, what: str, kept: np.ndarray, then: Callable[[], None], source: Callable[[], int]) -> GclWork:
    work = GclWork([], what=what)

    def waits(seconds: float | None) -> bool:
        if seconds == 0:
            return bool(gloos.is_completed())
        try:
            with _told(what):
                gloos.wait(*([] if seconds is None else [timedelta(seconds=seconds)]))
            then()
        except PeerLost as error:
            work.settle(error)
        else:
            work.settle(source=source())
        return kept is not None

    work.waits_with(waits)
    return work


@contextmanager
def _told(what: str) -> Iterator[None]:
    """Turn what gloo raises into an error that names the call."""
    try:
        yield
    except RuntimeError as error:
        text = f"{what} between hosts failed: {str(error).splitlines()[0]}"
        raise PeerLost(text, text) from error


def _tensor(data: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(data)


def _nothing() -> None:
    """There is nothing to do after a send."""
