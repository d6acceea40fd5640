"""Communicator: the collectives of one process, for its local replicas, among all replicas of their groups.

Tensors carry the local replicas as their leading axis: [local replicas, ...]. Tensors made by ``empty`` lie where the
other processes of the host can read them, so that a collective copies nothing; any other array works too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import DTypeLike

from gcl import packing
from gcl.calls import Kind, Request, begun_here
from gcl.checks import Refusals, check_flat, check_output, check_slices, check_tensor, dims_of, dtype_of
from gcl.errors import ArgumentError
from gcl.groups import Group
from gcl.handle import Handle, Runner
from gcl.methods.method import method_chain
from gcl.operators import Operator, operator
from gcl.path import Path
from gcl.ready import DONE
from gcl.world import World

__all__ = ["Communicator", "Tensors"]

#: One tensor [local replicas, ...], or a list of them that travel together.
Tensors = TypeVar("Tensors", np.ndarray, list[np.ndarray])
R = TypeVar("R")

_ALL_REDUCE, _REDUCE_SCATTER, _ALL_GATHER, _BROADCAST, _ALL_TO_ALL, _ALL_GATHER_SHARED = map(int, list(Kind)[1:])
_ADD = str(Operator.ADD)
_REQUESTS = 1024  # kept; programs that never repeat themselves must not grow


class Communicator:
    """Collectives over ``group`` (default: all replicas); made by ``gcl.connect``.

    Every rank must make the same calls in the same order. Reductions combine contributions in one fixed balanced
    tree over the index in the group, half precision in float32 with one rounding, so the result has the same bits
    however replicas are spread over processes.

    Each collective also takes a list of tensors of one dtype, which travel packed into one transfer, and has an
    ``..._async`` form that returns a Handle at once: ``handle.wait(timeout)`` gives the result. ``method`` of a call
    takes the place of the communicator's own (``gcl.connect``); it must be the same on all ranks.
    """

    def __init__(self, path: Path, world: World, group: Group, by_method: Callable[[str], Communicator]) -> None:
        self._path, self._world, self.group = path, world, group
        self._by_method, self._siblings = by_method, dict[str, Communicator]()
        self._ready = path.ready
        self._requests: dict[tuple[object, ...], Request] = {}
        self._runner: Runner | None = None
        self._told = Refusals(path.refuse, path.fail)
        self._shared: dict[int, np.ndarray] = {}
        self._nothing = path.empty((world.local, 0), np.dtype(np.float32))
        self.local_replicas: int = world.local
        self.global_offset: int = world.offset
        self.global_replicas: int = world.replicas

    @property
    def transport(self) -> str:
        """inprocess, shared_memory, hosts (memory within, messages between), tcp or mpi."""
        return self._path.name

    def empty(self, shape: int | Sequence[int], dtype: DTypeLike = np.float32) -> np.ndarray:
        """A zeroed tensor [local replicas, *shape] in the shared segment."""
        return self._path.empty((self.local_replicas, *dims_of(shape)), dtype_of(dtype))

    def shared(self, shape: int | Sequence[int], dtype: DTypeLike = np.float32) -> np.ndarray:
        """A zeroed tensor [*shape] that all ranks of a host see, for ``all_gather(x, out=...)``; all must call it.

        It lives as long as the communicator. Where no memory is shared, each rank has its own.
        """
        made = self._path.shared(dims_of(shape), dtype_of(dtype))
        self._shared[id(made)] = made
        return made

    def all_reduce(
        self, x: Tensors, op: str = Operator.ADD, *, out: Tensors | None = None, method: str | None = None
    ) -> Tensors:
        """Combine ``x`` [local replicas, ...] over the group; every replica gets the result.

        ``out`` (default: a new tensor) may be ``x`` itself. Returns ``out``.
        """
        if method is not None:
            return self._by(method).all_reduce(x, op, out=out)
        if out is not None and self._again(_ALL_REDUCE, op, x, out):
            return out
        with self._told:
            if isinstance(x, list):
                packing.checked(x, out, self._check, np.shape)
                together = self._together(Kind.ALL_REDUCE, op)
                return packing.elementwise(x, out, self.empty, together)
            self._check(x)
            out = self._output(out, x.shape, x, in_place=True)
            self._run(Kind.ALL_REDUCE, op, x, out)
            return out

    def reduce_scatter(
        self, x: Tensors, op: str = Operator.ADD, *, out: Tensors | None = None, method: str | None = None
    ) -> Tensors:
        """Combine ``x`` [local replicas, n]; member i gets fragment i: [local replicas, ceil(n / group size)].

        The end is padded with zeros.
        """
        if method is not None:
            return self._by(method).reduce_scatter(x, op, out=out)
        if out is not None and self._again(_REDUCE_SCATTER, op, x, out):
            return out
        with self._told:
            if isinstance(x, list):
                packing.checked(x, out, self._check_flat, lambda one: (len(one), self._width(one, op)))
                return self._scatter_list(x, op, out)
            self._check_flat(x)
            out = self._output(out, (x.shape[0], self._width(x, op)), x)
            self._run(Kind.REDUCE_SCATTER, op, x, out)
            return out

    def all_gather(self, x: Tensors, *, out: Tensors | None = None, method: str | None = None) -> Tensors:
        """Join the shards ``x`` [local replicas, ...] in group order: [local replicas, group size, ...].

        Into a tensor made by ``shared((group size, ...))`` each shard is written once per host, not once per replica;
        the group must be all replicas. A shard that is a slice of it already is not even copied.
        """
        if method is not None:
            return self._by(method).all_gather(x, out=out)
        kind = _ALL_GATHER_SHARED if id(out) in self._shared else _ALL_GATHER
        if out is not None and self._again(kind, _ADD, x, out):
            return out
        with self._told:
            if isinstance(x, list):
                size = self.group.size
                packing.checked(x, out, self._check, lambda one: (len(one), size, *one.shape[1:]))
                return packing.all_gathered(x, out, size, self.empty, self._together(Kind.ALL_GATHER))
            self._check(x)
            if kind == _ALL_GATHER_SHARED:
                return self._all_gather_shared(x, out)
            out = self._output(out, (x.shape[0], self.group.size, *x.shape[1:]), x)
            self._run(Kind.ALL_GATHER, Operator.ADD, x, out)
            return out

    def broadcast(self, x: Tensors, root: int = 0, *, out: Tensors | None = None) -> Tensors:
        """Give every replica the tensor of the group member with index ``root``; ``out`` may be ``x``."""
        if out is not None and self._again(_BROADCAST, _ADD, x, out, root):
            return out
        with self._told:
            if isinstance(root, bool) or not isinstance(root, int | np.integer) or not 0 <= root < self.group.size:
                raise ArgumentError(f"root {root!r} was asked for; group members are 0 to {self.group.size - 1}")
            root = int(root)
            if isinstance(x, list):
                packing.checked(x, out, self._check, np.shape)
                return packing.elementwise(x, out, self.empty, self._together(Kind.BROADCAST, root=root))
            self._check(x)
            out = self._output(out, x.shape, x, in_place=True)
            self._run(Kind.BROADCAST, Operator.ADD, x, out, root)
            return out

    def all_to_all(self, x: Tensors, *, out: Tensors | None = None) -> Tensors:
        """Send slice j of ``x`` [local replicas, group size, ...] to member j; slot i comes from member i."""
        if out is not None and self._again(_ALL_TO_ALL, _ADD, x, out):
            return out
        with self._told:
            if isinstance(x, list):
                packing.checked(x, out, self._check_slices, np.shape)
                return packing.all_to_all(x, out, self.group.size, self.empty, self._together(Kind.ALL_TO_ALL))
            self._check_slices(x)
            out = self._output(out, x.shape, x)
            self._run(Kind.ALL_TO_ALL, Operator.ADD, x, out)
            return out

    def all_reduce_async(
        self, x: Tensors, op: str = Operator.ADD, *, out: Tensors | None = None, method: str | None = None
    ) -> Handle[Tensors]:
        """Begin an all-reduce."""
        return self._begin(lambda: self.all_reduce(x, op, out=out, method=method))

    def reduce_scatter_async(
        self, x: Tensors, op: str = Operator.ADD, *, out: Tensors | None = None, method: str | None = None
    ) -> Handle[Tensors]:
        """Begin a reduce-scatter."""
        return self._begin(lambda: self.reduce_scatter(x, op, out=out, method=method))

    def all_gather_async(
        self, x: Tensors, *, out: Tensors | None = None, method: str | None = None
    ) -> Handle[Tensors]:
        """Begin an all-gather."""
        return self._begin(lambda: self.all_gather(x, out=out, method=method))

    def broadcast_async(self, x: Tensors, root: int = 0, *, out: Tensors | None = None) -> Handle[Tensors]:
        """Begin a broadcast."""
        return self._begin(lambda: self.broadcast(x, root, out=out))

    def all_to_all_async(self, x: Tensors, *, out: Tensors | None = None) -> Handle[Tensors]:
        """Begin an all-to-all."""
        return self._begin(lambda: self.all_to_all(x, out=out))

    def barrier(self) -> None:
        """Wait until every rank is here."""
        if not self._again(Kind.BARRIER, _ADD, self._nothing, self._nothing):
            self._run(Kind.BARRIER, Operator.ADD, self._nothing, self._nothing)

    def close(self) -> None:
        """Leave the communicator; ranks that still wait for this one are told."""
        self._path.close()
        if self._runner is not None:
            self._runner.stop()

    def __enter__(self) -> Communicator:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _all_gather_shared(self, x: np.ndarray, out: np.ndarray | None) -> np.ndarray:
        shape = (self.group.size, *x.shape[1:])
        if out is None or out.shape != shape or out.dtype != x.dtype or self.group.count > 1:
            raise ArgumentError(
                f"an all-gather of {x.dtype} {list(x.shape)} into a shared tensor was asked for; it needs "
                f"shared({list(shape)}, {x.dtype}) and one group of all replicas"
            )
        self._run(Kind.ALL_GATHER_SHARED, Operator.ADD, x, out)
        return out

    def _by(self, method: str) -> Communicator:
        """The communicator of the same ranks and paths whose collectives go by ``method``."""
        if self._runner is not None:
            self._runner.drain()
        with self._told:
            name = ",".join(method_chain(method))
            if name not in self._siblings:
                self._siblings[name] = self._by_method(name)
                self._siblings[name]._shared = self._shared
            return self._siblings[name]

    def _begin(self, collective: Callable[[], R]) -> Handle[R]:
        if self._runner is None:
            self._runner = Runner()
        return self._runner.begin(begun_here(collective))

    def _again(self, kind: int, op: str, x: object, out: object, root: int = 0) -> bool:
        """Make the call again if these very tensors were checked and described before."""
        if self._runner is not None:
            self._runner.drain()
        call = self._ready.get((kind, op, root, id(x), id(out)))
        if call is None:
            return False
        known = call.x()
        if (
            known is None
            or known is not x
            or (out is not x and call.out() is not out)
            or known.dtype is not call.dtype
        ):
            return False
        try:
            status = call.run()
            if status != DONE:
                self._path.finish(call, status)
        except BaseException as error:
            self._path.fail(error)
            raise
        return True

    def _run(
        self, kind: Kind, op: str, x: np.ndarray, out: np.ndarray, root: int = 0, division: str | None = None
    ) -> None:
        if self._runner is not None:
            self._runner.drain()
        request = self._request(kind, op, x, root, division)
        if request.operator is Operator.LOCAL:
            agreed = Request(Kind.BARRIER, Operator.LOCAL, self._nothing.dtype, 0, detail=str(request))
            self._path.run(agreed, self._nothing, self._nothing)
            self._keep_own(kind, x, out)
        else:
            self._path.run(request, x, out)

    def _request(self, kind: Kind, op: str, x: np.ndarray, root: int, division: str | None) -> Request:
        shape = x.shape if division is None else division
        key = (kind, str(op), x.dtype, shape, root)
        request = self._requests.get(key)
        if request is None:
            name = operator(op, x.dtype) if kind in (_ALL_REDUCE, _REDUCE_SCATTER) else Operator.ADD
            if division is None:
                division = "" if x.ndim == 2 else str(list(x.shape[1:]))
            if len(self._requests) >= _REQUESTS:
                self._requests.clear()
            count = x.size // self.local_replicas
            request = self._requests[key] = Request(kind, name, x.dtype, count, root, division)
        return request

    def _together(self, kind: Kind, op: str = _ADD, root: int = 0) -> packing.Collective:
        """The collective on one tensor that stands for a list."""

        def run(x: np.ndarray, division: str) -> np.ndarray:
            out = x
            if kind is Kind.REDUCE_SCATTER:
                out = self._path.empty((len(x), self._width(x, op)), x.dtype)
            elif kind is Kind.ALL_GATHER:
                out = self._path.empty((len(x), self.group.size, x.shape[1]), x.dtype)
            elif kind is Kind.ALL_TO_ALL:
                out = self._path.empty(x.shape, x.dtype)
            self._run(kind, op, x, out, root, division)
            return out

        return run

    def _scatter_list(self, x: list[np.ndarray], op: str, out: list[np.ndarray] | None) -> list[np.ndarray]:
        widths = [self._width(one, op) for one in x]
        together = self._together(Kind.REDUCE_SCATTER, op)
        return packing.scattered(x, out, widths, self.group.size, self.empty, together)

    def _width(self, x: np.ndarray, op: str) -> int:
        return self._shard(x.shape[1], x.dtype, op)

    def _shard(self, elements: int, dtype: np.dtype[Any], op: str) -> int:
        """How many of ``elements`` one member owns after a reduce-scatter, padding included."""
        return -(-elements // self.group.size)

    def _keep_own(self, kind: Kind, x: np.ndarray, out: np.ndarray) -> None:
        """LOCAL moves nothing: an all-reduce keeps the tensor, a reduce-scatter the replica's own fragment."""
        if kind is Kind.ALL_REDUCE:
            out[...] = x
            return
        width = out.shape[1]
        for row in range(self.local_replicas):
            start = self.group.index(self.global_offset + row) * width
            own = x[row, start : start + width]
            out[row, : own.size], out[row, own.size :] = own, 0

    def _check(self, x: np.ndarray) -> None:
        check_tensor(x, self.local_replicas)

    def _check_slices(self, x: np.ndarray) -> None:
        self._check(x)
        check_slices(x, self.group.size)

    def _check_flat(self, x: np.ndarray) -> None:
        check_flat(x, self.local_replicas)

    def _output(
        self, out: np.ndarray | None, shape: tuple[int, ...], x: np.ndarray, *, in_place: bool = False
    ) -> np.ndarray:
        if out is None:
            return self._path.empty(shape, x.dtype)
        check_output(out, shape, x, in_place=in_place, alone=self.group.size == 1)
        return out
