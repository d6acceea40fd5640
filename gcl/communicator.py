"""Communicator: the collectives of one process, for its local replicas, among all replicas of their groups.

Tensors carry the local replicas as their leading axis: [local replicas, ...]. Tensors from ``empty`` are in memory
that the other processes of the host can read, so that a collective copies nothing; any other array works too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import DTypeLike

from gcl.core import coalescing
from gcl.core.dispatch import ADD, Dispatch
from gcl.core.groups import Group
from gcl.core.handle import Handle
from gcl.core.operators import Operator
from gcl.core.request import Collective, CollectiveCode
from gcl.core.tensor_checks import Tensors, check_place, dims_of, dtype_of
from gcl.errors import ArgumentError
from gcl.scheduling.methods.method import method_chain

# looked up here: an attribute of an enumeration takes 0.1 us of a call of 0.9 us
_BARRIER = CollectiveCode.BARRIER
_ALL_REDUCE = CollectiveCode.ALL_REDUCE
_REDUCE_SCATTER = CollectiveCode.REDUCE_SCATTER
_ALL_GATHER = CollectiveCode.ALL_GATHER
_BROADCAST = CollectiveCode.BROADCAST
_ALL_TO_ALL = CollectiveCode.ALL_TO_ALL
_SHARED_ALL_GATHER = CollectiveCode.SHARED_ALL_GATHER


class Communicator:
    """Collectives over ``group`` (default: all replicas); returned by ``gcl.connect``.

    Every rank must make the same calls in the same order. Reductions combine contributions in one fixed balanced
    tree over the index in the group, half precision in float32 with one rounding, so the result has the same bits
    however replicas are spread over processes.

    Each collective also takes a list of tensors of one dtype, which are packed into one transfer, and has an
    ``..._async`` form that returns a Handle at once: ``handle.wait(timeout)`` returns the result. ``method`` replaces
    that of the communicator (``gcl.connect``) for one call; it must be the same on all ranks.
    """

    def __init__(self, dispatch: Dispatch, by_method: Callable[[str], Communicator]) -> None:
        self.group: Group = dispatch.group
        self.local_replicas: int = dispatch.world.local
        self.global_offset: int = dispatch.world.offset
        self.global_replicas: int = dispatch.world.replicas
        #: the number of processes
        self.ranks: int = dispatch.world.ranks
        self._dispatch, self._repeat = dispatch, dispatch.repeat
        self._by_method, self._siblings = by_method, dict[str, Communicator]()

    def __repr__(self) -> str:
        last = self.global_offset + self.local_replicas - 1
        return (
            f"Communicator(replicas {self.global_offset} to {last} of {self.global_replicas}, {self.group}, "
            f"transport {self.transport!r})"
        )

    @property
    def transport(self) -> str:
        """inprocess, shared_memory, hosts (memory within, messages between) or mpi."""
        return self._dispatch.path.name

    def empty(self, shape: int | Sequence[int], dtype: DTypeLike = np.float32) -> np.ndarray:
        """A zeroed tensor [local replicas, *shape] in the shared segment."""
        return self._dispatch.empty(dims_of(shape), dtype_of(dtype))

    def shared(self, shape: int | Sequence[int], dtype: DTypeLike = np.float32) -> np.ndarray:
        """A zeroed tensor [*shape] that all ranks of a host share, for ``all_gather(x, out=...)``; all must call it.

        It lives as long as the communicator. Where no memory is shared, each rank has its own.
        """
        tensor = self._dispatch.path.shared(dims_of(shape), dtype_of(dtype))
        self._dispatch.shared[id(tensor)] = tensor
        return tensor

    def all_reduce(
        self, x: Tensors, op: str = Operator.ADD, *, out: Tensors | None = None, method: str | None = None
    ) -> Tensors:
        """Combine ``x`` [local replicas, ...] over the group; every replica gets the result.

        ``out`` (default: a new tensor) may be ``x`` itself. Returns ``out``.
        """
        if method is not None:
            return self._by(method).all_reduce(x, op, out=out)
        if out is not None and self._repeat(_ALL_REDUCE, op, x, out):
            return out
        with self._dispatch.refusals:
            if isinstance(x, list | tuple):
                coalescing.checked(x, out, self._dispatch.check, np.shape)
                transfer = self._dispatch.coalesced(Collective.ALL_REDUCE, op)
                return coalescing.same_shapes(x, out, self.empty, transfer)
            self._dispatch.check(x)
            out = self._dispatch.output(out, x.shape, x, in_place=True)
            self._dispatch.run(Collective.ALL_REDUCE, op, x, out)
            return out

    def reduce_scatter(
        self, x: Tensors, op: str = Operator.ADD, *, out: Tensors | None = None, method: str | None = None
    ) -> Tensors:
        """Combine ``x`` [local replicas, n]; member i receives fragment i: [local replicas, ceil(n / group size)].

        The end is padded with zeros.
        """
        if method is not None:
            return self._by(method).reduce_scatter(x, op, out=out)
        if out is not None and self._repeat(_REDUCE_SCATTER, op, x, out):
            return out
        with self._dispatch.refusals:
            if isinstance(x, list | tuple):
                coalescing.checked(x, out, self._dispatch.check_flat, lambda t: (len(t), self._dispatch.width(t, op)))
                return self._dispatch.scatter_list(x, op, out)
            self._dispatch.check_flat(x)
            out = self._dispatch.output(out, (x.shape[0], self._dispatch.width(x, op)), x)
            self._dispatch.run(Collective.REDUCE_SCATTER, op, x, out)
            return out

    def all_gather(self, x: Tensors, *, out: Tensors | None = None, method: str | None = None) -> Tensors:
        """Join the shards ``x`` [local replicas, ...] in group order: [local replicas, group size, ...].

        Into a tensor from ``shared((group size, ...))`` each shard is written once per host, not once per replica;
        the group must be all replicas. A shard that is already a slice of that tensor is not copied.
        """
        if method is not None:
            return self._by(method).all_gather(x, out=out)
        shared = id(out) in self._dispatch.shared
        code = _SHARED_ALL_GATHER if shared else _ALL_GATHER
        if out is not None and self._repeat(code, ADD, x, out):
            return out
        with self._dispatch.refusals:
            if isinstance(x, list | tuple):
                size = self.group.size
                coalescing.checked(x, out, self._dispatch.check, lambda t: (len(t), size, *t.shape[1:]))
                return coalescing.all_gathered(
                    x, out, size, self.empty, self._dispatch.coalesced(Collective.ALL_GATHER)
                )
            self._dispatch.check(x)
            if shared:
                return self._all_gather_shared(x, out)
            out = self._dispatch.output(out, (x.shape[0], self.group.size, *x.shape[1:]), x)
            self._dispatch.run(Collective.ALL_GATHER, Operator.ADD, x, out)
            return out

    def broadcast(self, x: Tensors, root: int = 0, *, out: Tensors | None = None) -> Tensors:
        """Give every replica the tensor of the group member with index ``root``; ``out`` may be ``x``."""
        if out is not None and self._repeat(_BROADCAST, ADD, x, out, root):
            return out
        with self._dispatch.refusals:
            if isinstance(root, bool) or not isinstance(root, int | np.integer) or not 0 <= root < self.group.size:
                raise ArgumentError(f"root {root!r} is not a member of the group; use 0 to {self.group.size - 1}")
            root = int(root)
            if isinstance(x, list | tuple):
                coalescing.checked(x, out, self._dispatch.check, np.shape)
                transfer = self._dispatch.coalesced(Collective.BROADCAST, root=root)
                return coalescing.same_shapes(x, out, self.empty, transfer)
            self._dispatch.check(x)
            out = self._dispatch.output(out, x.shape, x, in_place=True)
            self._dispatch.run(Collective.BROADCAST, Operator.ADD, x, out, root)
            return out

    def all_to_all(self, x: Tensors, *, out: Tensors | None = None) -> Tensors:
        """Send slice j of ``x`` [local replicas, group size, ...] to member j; slot i comes from member i."""
        if out is not None and self._repeat(_ALL_TO_ALL, ADD, x, out):
            return out
        with self._dispatch.refusals:
            if isinstance(x, list | tuple):
                coalescing.checked(x, out, self._dispatch.check_slices, np.shape)
                transfer = self._dispatch.coalesced(Collective.ALL_TO_ALL)
                return coalescing.same_shapes(x, out, self.empty, transfer, self.group.size)
            self._dispatch.check_slices(x)
            out = self._dispatch.output(out, x.shape, x)
            self._dispatch.run(Collective.ALL_TO_ALL, Operator.ADD, x, out)
            return out

    def all_reduce_async(
        self, x: Tensors, op: str = Operator.ADD, *, out: Tensors | None = None, method: str | None = None
    ) -> Handle[Tensors]:
        """Begin an all-reduce."""
        return self._dispatch.begin(lambda: self.all_reduce(x, op, out=out, method=method))

    def reduce_scatter_async(
        self, x: Tensors, op: str = Operator.ADD, *, out: Tensors | None = None, method: str | None = None
    ) -> Handle[Tensors]:
        """Begin a reduce-scatter."""
        return self._dispatch.begin(lambda: self.reduce_scatter(x, op, out=out, method=method))

    def all_gather_async(
        self, x: Tensors, *, out: Tensors | None = None, method: str | None = None
    ) -> Handle[Tensors]:
        """Begin an all-gather."""
        return self._dispatch.begin(lambda: self.all_gather(x, out=out, method=method))

    def broadcast_async(self, x: Tensors, root: int = 0, *, out: Tensors | None = None) -> Handle[Tensors]:
        """Begin a broadcast."""
        return self._dispatch.begin(lambda: self.broadcast(x, root, out=out))

    def all_to_all_async(self, x: Tensors, *, out: Tensors | None = None) -> Handle[Tensors]:
        """Begin an all-to-all."""
        return self._dispatch.begin(lambda: self.all_to_all(x, out=out))

    def barrier(self) -> None:
        """Wait until every rank has made this call."""
        if not self._repeat(_BARRIER, ADD, self._dispatch.nothing, self._dispatch.nothing):
            self._dispatch.run(None, Operator.ADD, self._dispatch.nothing, self._dispatch.nothing)

    def close(self) -> None:
        """Close the communicator; ranks that still wait for this one raise PeerLost.

        A collective that is still running completes, or raises at ``wait``.
        """
        self._dispatch.close()

    def __enter__(self) -> Communicator:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _all_gather_shared(self, x: np.ndarray, out: np.ndarray | None) -> np.ndarray:
        shape = (self.group.size, *x.shape[1:])
        if out is None or out.shape != shape or out.dtype != x.dtype or self.group.count > 1:
            raise ArgumentError(
                f"an all-gather of {x.dtype} {list(x.shape)} into a shared tensor needs "
                f"shared({list(shape)}, {x.dtype}) and one group of all replicas"
            )
        check_place(x, out[self.global_offset : self.global_offset + self.local_replicas], out)
        self._dispatch.run(Collective.ALL_GATHER, Operator.ADD, x, out, shared=True)
        return out

    def _by(self, method: str) -> Communicator:
        """The communicator of the same ranks and paths whose collectives use ``method``."""
        self._dispatch.drain()
        with self._dispatch.refusals:
            name = ",".join(method_chain(method))
            if name not in self._siblings:
                self._siblings[name] = self._by_method(name)
                self._siblings[name]._dispatch.shared = self._dispatch.shared
            return self._siblings[name]
