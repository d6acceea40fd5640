"""Two levels: collectives of a group on several hosts, gcl within each host and a transport between them.

    all-reduce   within each host, each rank combines one stripe of the tensors of its host
                 the ranks with the same stripe exchange their sums, and combine them in the order of the hosts
                 within each host, each rank copies the stripes of the others
    broadcast    to one rank of each host, then within each host

Contributions are combined in the same tree as on one host, and sums are sent unrounded, so that the result has the
same bits. This requires hosts of equally many ranks, a power of two, in order; otherwise each tensor is sent to every
rank. Other collectives, which only move bytes, and messages use the transport between hosts directly.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from gcl.core.operators import Operator
from gcl.errors import ArgumentError
from gcl.kernels.dtypes import sum_dtype
from gcl.reduce.reduction import new_scratch, recipe, reduce_range
from gcl.torch.one_host.host_group import HostGroup
from gcl.torch.several_hosts.host_transport import HostTransport
from gcl.torch.several_hosts.traced_messages import messages_of
from gcl.torch.tensors import array_of

_BYTE = np.dtype(np.uint8)


class SeveralHosts:
    """Rank ``rank`` of all ranks of ``hosts``, joined to those of its host by ``inner`` and to all by ``everyone``.

    ``column`` joins the ranks at the same position of each host; None if the hosts differ in size.
    """

    def __init__(
        self,
        rank: int,
        hosts: list[list[int]],
        inner: HostGroup,
        everyone: HostTransport,
        column: HostTransport | None,
    ) -> None:
        self.rank, self.ranks, self._hosts = rank, sum(map(len, hosts)), hosts
        self.inner, self._everyone, self._column = inner, everyone, column
        self.refusals = inner.refusals
        self.messages = messages_of(everyone, rank, hosts)
        self._scratch = new_scratch()

    #: The method of collectives, and how bytes move between ranks.
    method, transport = "two_levels", "shared_memory and messages"

    @property
    def timeout(self) -> float:
        """The longest wait, in seconds."""
        return self.inner.timeout

    @timeout.setter
    def timeout(self, seconds: float) -> None:
        self.inner.timeout = seconds
        for transport in (self._everyone, self._column):
            if transport is not None:
                transport.timeout = seconds

    def refuse(self, error: ArgumentError) -> None:
        """Notify the ranks of this host of a refused call."""
        self.inner.refuse(error)

    def room(self, nbytes: int) -> np.ndarray:
        """Bytes that the ranks of this host share."""
        return self.inner.room(nbytes)

    def stored(self, number: int, tensor: torch.Tensor) -> np.ndarray:
        """The elements of ``tensor``, which is not moved."""
        return array_of(tensor)

    def has_core(self) -> bool:
        """True: collectives start immediately, as it is unknown whether ranks of other hosts wait."""
        return True

    def is_awaited(self) -> bool:
        """Whether a rank of this host waits for this one."""
        return self.inner.is_awaited()

    def close(self) -> None:
        """Leave."""
        self.inner.close()

    def abort(self) -> None:
        """Leave immediately."""
        self.inner.abort()

    def monitored_barrier(self, seconds: float, *, all_ranks: bool) -> None:
        """Wait for all ranks; rank 0 names the first, or all, that do not come."""
        self._everyone.monitored_barrier(seconds, all_ranks=all_ranks)

    def all_reduce(self, x: np.ndarray, op: Operator) -> None:
        """Combine ``x`` [1, n] of all ranks in place."""
        wide = sum_dtype(x.dtype)
        summing = Operator.ADD if op is Operator.MEAN else op
        if self._column is None:
            total = self._of_all(x.astype(wide), summing)
        else:
            total = self._in_stripes(x.astype(wide), summing, self._column)
        if op is Operator.MEAN:
            total = total / self.ranks if total.dtype.kind == "f" else np.trunc(total / self.ranks)
        x[...] = total.astype(x.dtype)

    def reduce_scatter(self, x: np.ndarray, out: np.ndarray, op: Operator) -> None:
        """Combine ``x`` [1, ranks * n]; rank i gets part i."""
        self.reduce_parts(np.split(x[0], self.ranks), out[0], op)

    def reduce_parts(self, parts: Sequence[np.ndarray], out: np.ndarray, op: Operator) -> None:
        """Combine part i of all ranks on rank i."""
        total = np.concatenate(parts)[None]
        self.all_reduce(total, op)
        start = sum(part.size for part in parts[: self.rank])
        out[...] = total[0, start : start + out.size]

    def all_gather(self, x: np.ndarray, out: np.ndarray, what: str) -> None:
        """Copy the bytes ``x`` of rank i to part i of ``out``."""
        self.all_gather_list(x, np.split(out, self.ranks), what)

    def all_gather_list(self, x: np.ndarray, outs: Sequence[np.ndarray], what: str) -> None:
        """Copy the bytes ``x`` of rank i to ``outs[i]``."""
        self._everyone.all_gather(x, outs, f"all_gather({what})")

    def broadcast(self, x: np.ndarray, root: int, what: str) -> None:
        """Copy the bytes ``x`` of rank ``root`` to those of all ranks."""
        if self._column is None:
            self._everyone.broadcast(x, root, f"broadcast({what})")
            return
        host, position = self._place(root)
        if self.inner.rank == position:
            self._column.broadcast(x, host, f"broadcast({what})")
        self.inner.broadcast(x, position, what)

    def all_to_all_even(self, x: np.ndarray, out: np.ndarray, what: str) -> None:
        """Copy part j of the bytes ``x`` of rank i to part i of ``out`` of rank j."""
        self.all_to_all(np.split(x, self.ranks), np.split(out, self.ranks), what)

    def all_to_all(self, parts: Sequence[np.ndarray], outs: Sequence[np.ndarray], what: str) -> None:
        """Copy the bytes ``parts[j]`` of rank i to ``outs[i]`` of rank j."""
        self._everyone.all_to_all(parts, outs, f"all_to_all({what})")

    def gather(self, x: np.ndarray, outs: Sequence[np.ndarray], root: int, what: str) -> None:
        """Copy the bytes ``x`` of rank i to ``outs[i]`` of rank ``root``."""
        self._everyone.gather(x, outs, root, f"gather({what})")

    def scatter(self, parts: Sequence[np.ndarray], out: np.ndarray, root: int, what: str) -> None:
        """Copy the bytes ``parts[i]`` of rank ``root`` to ``out`` of rank i."""
        self._everyone.scatter(parts, out, root, f"scatter({what})")

    def barrier(self) -> None:
        """Wait for all ranks."""
        self._everyone.barrier()

    @property
    def host_transport(self) -> str:
        """The name of the transport between hosts."""
        return self._everyone.name

    def _place(self, rank: int) -> tuple[int, int]:
        """The number of a rank's host, and its position there."""
        return next((host, ranks.index(rank)) for host, ranks in enumerate(self._hosts) if rank in ranks)

    def _in_stripes(self, x: np.ndarray, op: Operator, column: HostTransport) -> np.ndarray:
        width = -(-x.size // self.inner.ranks)
        padded = np.zeros((1, width * self.inner.ranks), x.dtype)
        padded[0, : x.size] = x
        stripe = np.empty((1, width), x.dtype)
        self.inner.reduce_scatter(padded, stripe, op)
        sums = np.empty((len(self._hosts), width), x.dtype)
        rows = [row.view(_BYTE) for row in sums]
        column.all_gather(stripe[0].view(_BYTE), rows, f"all_reduce({op}, {x.size} x {x.dtype})")
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
        reduction = recipe(op, (leaves,) * len(rows), rows.dtype, rows.dtype, self.ranks)
        nodes = np.array([row.ctypes.data for row in rows], np.int64)
        outs = np.array([total.ctypes.data], np.int64)
        reduce_range(reduction, nodes, outs, 1, 0, total.size, self._scratch)
        return total
