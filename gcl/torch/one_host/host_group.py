"""Host group: the ranks of a process group that share memory, and gcl's collectives among them on numpy arrays.

small       input and output are staged in the shared segment, in places kept for the next call of the same size, so
            that a repeated call runs in compiled code
larger      the input is copied into the segment; the others read it there while it is in a cache
large       the same in chunks, of which one is copied in while another is copied out (gcl.transport.memory; parts of
            uneven sizes: the kernel copies out of the memory of the other processes)

Tensors that are in the segment already, such as one of ``gcl.torch.empty``, are read in place.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import torch

from gcl.core.groups import Group
from gcl.core.operators import Operator
from gcl.core.prepared_call import DONE
from gcl.core.request import Collective, Request
from gcl.core.tensor_checks import Refusals
from gcl.core.world import World
from gcl.errors import ArgumentError, PeerLost
from gcl.kernels.copies import copy_array
from gcl.reduce.reduction import new_scratch, recipe, reduce_range
from gcl.torch.one_host.monitored_barrier import monitored_barrier
from gcl.torch.one_host.offers import Offers, Pieces, Wanted, apart
from gcl.torch.one_host.restrictions import shares_memory, warn_of_copies
from gcl.torch.one_host.shared_storage import SharedStorages
from gcl.torch.one_host.traced_messages import messages
from gcl.transport.memory import shared_memory
from gcl.transport.paths.memory_path import MemoryPath

#: Tensors up to this size are staged in the segment.
STAGED_BYTES = 1 << 16
#: Inputs up to this size are copied into the segment, from which the other ranks copy within the caches.
COPIED_BYTES = 1 << 20
#: The number of places that are kept; a bound for programs that never repeat a size.
_MOST_PLACES = 32
_BYTE = np.dtype(np.uint8)
#: Bytes of each contribution that are reduced at once, so that they stay in a cache.
_CHUNK = 1 << 17


class HostGroup:
    """Rank ``rank`` of ``ranks`` processes of this host, called ``names``; ``timeout`` bounds every wait, in seconds.

    ``all_gather`` exchanges byte strings between them once, to connect.
    """

    def __init__(
        self,
        *,
        rank: int,
        names: Sequence[str],
        all_gather: Callable[[bytes], list[bytes]],
        timeout: float,
        segment_bytes: int,
    ) -> None:
        self.rank, self.ranks = rank, len(names)
        with shares_memory():
            domain = shared_memory.domain(
                rank=rank, ranks=self.ranks, all_gather=all_gather, segment_bytes=segment_bytes
            )
        if rank == 0 and self.ranks > 1 and not domain.uses_process_vm:
            warn_of_copies()
        self.cores = domain.cores
        world = World(rank, (1,) * self.ranks, tuple(names))
        self.path = MemoryPath(domain, world, Group.all(self.ranks), timeout, neighbours=self._neighbours())
        #: a ``with`` block around checks, which notifies the other ranks of refused calls
        self.refusals = Refusals(self.path.refuse, self.path.fail)
        self.messages = messages(self.path, tuple(names))
        self._offers = Offers(self.path, os.getpid())
        self._storages = SharedStorages(self.path, self._offers)
        self._places: dict[tuple[object, ...], tuple[np.ndarray, np.ndarray]] = {}
        self._scratch = new_scratch()
        self._nodes, self._outs = np.zeros(self.ranks, np.int64), np.zeros(1, np.int64)

    #: The method of collectives.
    method = "direct"

    @property
    def transport(self) -> str:
        """How bytes move between ranks."""
        return self.path.name

    @property
    def timeout(self) -> float:
        """The longest wait, in seconds."""
        return self.path.timeout

    @timeout.setter
    def timeout(self, seconds: float) -> None:
        self.path.timeout = seconds

    def has_core(self) -> bool:
        """Whether each rank of the host has a core in addition to those on which PyTorch computes."""
        return bool(self.cores >= self._neighbours() * (1 + torch.get_num_threads()))

    def is_awaited(self) -> bool:
        """Whether ranks wait in a collective that this one has not begun, and so leave a core free for it.

        If more ranks compute than there are cores, it would compete with all of them, and end no earlier.
        """
        return self.path.waiting > max(0, self._neighbours() - self.cores)

    def _neighbours(self) -> int:
        """Number of ranks of the host, of this group and of others."""
        return max(self.ranks, int(os.environ.get("LOCAL_WORLD_SIZE", "1")))

    def close(self) -> None:
        """Leave, and notify ranks that still wait for this one."""
        self.messages.close()
        self.path.close()

    def refuse(self, error: ArgumentError) -> None:
        """Notify the other ranks of a refused call."""
        self.path.refuse(error)

    def room(self, nbytes: int) -> np.ndarray:
        """Bytes that the ranks share."""
        return self.path.segment.uninitialised((nbytes,), _BYTE)

    def stored(self, number: int, tensor: torch.Tensor) -> np.ndarray:
        """The elements of ``tensor``, whose memory moves to shared memory (``SharedStorages``)."""
        return self._storages.array(number, tensor)

    def monitored_barrier(self, seconds: float, *, all_ranks: bool) -> None:
        """Wait for all ranks; rank 0 names the first, or all, that do not come."""
        monitored_barrier(self.messages, self.rank, self.ranks, seconds, all_ranks=all_ranks)

    def abort(self) -> None:
        """Leave immediately, also during a call."""
        self.messages.close()
        self.path.fail(PeerLost("the process group was aborted; make another one"))

    def all_reduce(self, x: np.ndarray, op: Operator) -> None:
        """Combine ``x`` [1, n] of all ranks in place."""
        request = _request(Collective.ALL_REDUCE, op, x.dtype, x.size)
        if self._is_near(x) or x.nbytes > STAGED_BYTES:
            self.path.run(request, x, x)
            return
        near, _ = self._place(request, x.size)
        copy_array(near, x)
        self._run(request, near, near)
        copy_array(x, near)

    def reduce_scatter(self, x: np.ndarray, out: np.ndarray, op: Operator) -> None:
        """Combine ``x`` [1, ranks * n]; rank i gets part i in ``out`` [1, n]."""
        request = _request(Collective.REDUCE_SCATTER, op, x.dtype, x.size)
        if x.nbytes <= STAGED_BYTES:
            self._staged(request, x, out)
        elif x.nbytes <= COPIED_BYTES:
            self.path.run(request, self._copied(request, x), out)
        else:
            parts, total = np.split(x.view(_BYTE)[0], self.ranks), out.view(_BYTE)[0]
            self._offers.stream(request, *self._parts(parts, [total] * self.ranks), x.itemsize)

    def reduce_parts(self, parts: Sequence[np.ndarray], out: np.ndarray, op: Operator) -> None:
        """Combine part i of all ranks on rank i, into ``out`` [n]; parts may differ in size."""
        dtype = out.dtype
        sizes = [part.size for part in parts]
        request = Request(Collective.REDUCE_SCATTER, op, dtype, sum(sizes), detail=f"parts of {sizes}")

        def work(pieces: Pieces) -> None:
            reduction = recipe(op, (1,) * self.ranks, dtype, dtype, self.ranks)
            step = max(1, _CHUNK // dtype.itemsize)
            room = np.empty((self.ranks, min(step, out.size)), dtype)
            rows = list(room)
            for low in range(0, out.size, step):
                n = min(step, out.size - low)
                for rank, row in enumerate(rows):
                    self._nodes[rank] = pieces.near(rank, self.rank, row[:n].view(_BYTE), low * dtype.itemsize)
                self._outs[0] = out[low:].__array_interface__["data"][0]
                reduce_range(reduction, self._nodes, self._outs, 1, 0, n, self._scratch)

        self._offers.exchange(request, [part.view(_BYTE) for part in parts], work)

    def all_gather(self, x: np.ndarray, out: np.ndarray, what: str) -> None:
        """Copy the bytes ``x`` of rank i to part i of ``out``; ``what`` describes what must be equal on all ranks."""
        request = _request(Collective.ALL_GATHER, Operator.ADD, _BYTE, x.size, what)
        if out.nbytes <= STAGED_BYTES:
            self._staged(request, x[None], out[None])
        elif x.nbytes <= COPIED_BYTES:
            self.path.run(request, self._copied(request, x[None]), out[None])
        else:
            self.all_gather_list(x, np.split(out, self.ranks), what)

    def all_gather_list(self, x: np.ndarray, outs: Sequence[np.ndarray], what: str) -> None:
        """Copy the bytes ``x`` of rank i to ``outs[i]``."""
        request = self._named(f"all_gather({what})")
        if x.nbytes > COPIED_BYTES:
            wanted = [Wanted(rank, 0, 1, part, x if rank == self.rank else None) for rank, part in enumerate(outs)]
            self._offers.stream(request, [x], wanted)
            return

        def work(pieces: Pieces) -> None:
            for step in range(self.ranks):
                rank = (self.rank + step) % self.ranks
                pieces.copy(rank, 0, outs[rank])

        self._offers.exchange(request, [x], work)

    def broadcast(self, x: np.ndarray, root: int, what: str) -> None:
        """Copy the bytes ``x`` of rank ``root`` to those of all ranks."""
        request = _request(Collective.BROADCAST, Operator.ADD, _BYTE, x.size, what, root)
        if x.nbytes <= COPIED_BYTES:
            near, _ = self._place(request, x.size)
            if self.rank == root:
                copy_array(near, x)
            if x.nbytes <= STAGED_BYTES:
                self._run(request, near, near)
                if self.rank != root:
                    copy_array(x, near)
            else:
                self.path.run(request, near, near if self.rank == root else x[None])
            return

        named = self._named(f"broadcast(root {root}, {what})")
        if self.rank == root:
            self._offers.stream(named, [x], [])
        else:
            self._offers.stream(named, [], [Wanted(root, 0, 1, x)])

    def all_to_all_even(self, x: np.ndarray, out: np.ndarray, what: str) -> None:
        """Copy part j of the bytes ``x`` of rank i to part i of ``out`` of rank j."""
        request = _request(Collective.ALL_TO_ALL, Operator.ADD, _BYTE, x.size, what)
        if x.nbytes <= STAGED_BYTES:
            self._staged(request, x[None], out[None])
        elif x.nbytes <= COPIED_BYTES:
            self.path.run(request, self._copied(request, x[None]), out[None])
        else:
            parts = self._parts(np.split(x, self.ranks), np.split(out, self.ranks))
            self._offers.stream(self._named(f"all_to_all({what})"), *parts)

    def all_to_all(self, parts: Sequence[np.ndarray], outs: Sequence[np.ndarray], what: str) -> None:
        """Copy the bytes ``parts[j]`` of rank i to ``outs[i]`` of rank j; sizes may differ."""

        def work(pieces: Pieces) -> None:
            for step in range(self.ranks):
                rank = (self.rank + step) % self.ranks
                pieces.copy(rank, self.rank, outs[rank])

        self._offers.exchange(self._named(f"all_to_all({what})"), apart(parts, outs), work)

    def gather(self, x: np.ndarray, outs: Sequence[np.ndarray], root: int, what: str) -> None:
        """Copy the bytes ``x`` of rank i to ``outs[i]`` of rank ``root``."""

        def work(pieces: Pieces) -> None:
            for rank, out in enumerate(outs):
                pieces.copy(rank, 0, out)

        self._offers.exchange(self._named(f"gather(root {root}, {what})"), [x], work)

    def scatter(self, parts: Sequence[np.ndarray], out: np.ndarray, root: int, what: str) -> None:
        """Copy the bytes ``parts[i]`` of rank ``root`` to ``out`` of rank i."""

        def work(pieces: Pieces) -> None:
            pieces.copy(root, self.rank, out)

        self._offers.exchange(self._named(f"scatter(root {root}, {what})"), parts, work)

    def barrier(self, what: str = "barrier") -> None:
        """Wait until all ranks have made the same call."""
        request = self._named(what)
        near, _ = self._place(request, 0)
        self._run(request, near, near)

    def _parts(
        self, parts: Sequence[np.ndarray], outs: Sequence[np.ndarray]
    ) -> tuple[list[np.ndarray | None], list[Wanted]]:
        """The pieces that this rank sends, part j to rank j, and those that it wants of rank i in ``outs[i]``."""
        own = parts[self.rank]
        wanted = [
            Wanted(rank, self.rank, self.ranks, out, own if rank == self.rank else None)
            for rank, out in enumerate(outs)
        ]
        return [None if rank == self.rank else part for rank, part in enumerate(parts)], wanted

    def _named(self, what: str) -> Request:
        return _request(None, Operator.ADD, _BYTE, 0, what)

    def _is_near(self, x: np.ndarray) -> bool:
        return self.path.segment.offset_of(x) is not None

    def _staged(self, request: Request, x: np.ndarray, out: np.ndarray) -> None:
        """Run ``request`` on copies in the segment, as a repeatable call."""
        near, result = self._place(request, x.size, out.size)
        copy_array(near, x)
        self._run(request, near, result)
        copy_array(out, result)

    def _copied(self, request: Request, x: np.ndarray) -> np.ndarray:
        """``x``, or a copy of it in the segment."""
        if self._is_near(x):
            return x
        near, _ = self._place(request, x.size)
        copy_array(near, x)
        return near

    def _place(self, request: Request, elements: int, out: int | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Memory in the segment for the input of ``request``, and for its output if that is another tensor."""
        key = (request.code, request.operator, request.dtype, elements, out)
        buffers = self._places.get(key)
        if buffers is None:
            if len(self._places) >= _MOST_PLACES:
                self._places.pop(next(iter(self._places)))
            near = self.path.empty((1, elements), request.dtype)
            buffers = near, near if out is None else self.path.empty((1, out), request.dtype)
            self._places[key] = buffers
        return buffers

    def _run(self, request: Request, x: np.ndarray, out: np.ndarray) -> None:
        call = self.path.prepared.get(request.key(x, out))
        if call is None or call.request is not request:
            self.path.run(request, x, out)
            return
        try:
            status = call.run()
            if status != DONE:
                self.path.finish(call, status)
        except BaseException as error:
            self.path.fail(error)
            raise


@lru_cache(maxsize=4096)
def _request(
    collective: Collective | None, op: Operator, dtype: np.dtype[Any], count: int, detail: str = "", root: int = 0
) -> Request:
    return Request(collective, op, dtype, count, root=root, detail=detail)
