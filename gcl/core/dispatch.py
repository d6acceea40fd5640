"""Dispatch: passes the calls of a communicator to its data path; repeated calls are looked up, not checked again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeVar

import numpy as np

from gcl.core import coalescing
from gcl.core.data_path import DataPath
from gcl.core.groups import Group
from gcl.core.handle import Handle, Runner
from gcl.core.operators import Operator
from gcl.core.prepared_call import DONE
from gcl.core.request import REDUCING, Collective, Request, begun_here
from gcl.core.tensor_checks import Refusals, check_flat, check_output, check_slices, check_tensor
from gcl.core.world import World

R = TypeVar("R")

#: The operator of collectives that do not reduce.
ADD = str(Operator.ADD)
_MAX_REQUESTS = 1024  # kept; a bound for programs that never repeat a call


class ShardLayout(Protocol):
    """How a reduce-scatter cuts a tensor into one shard per member of a group."""

    def fragment(self, elements: int, dtype: np.dtype[Any], op: str) -> int:
        """Elements that one member owns after a reduce-scatter of ``elements`` of ``dtype``, padding included."""

    def packs(self, widths: list[int], dtype: np.dtype[Any], op: str) -> bool:
        """Whether tensors with fragments of ``widths`` elements can be reduce-scattered in one transfer."""

    def keep_own(self, x: np.ndarray, out: np.ndarray) -> None:
        """Copy each local replica's own fragment of ``x`` to ``out``: the reduce-scatter of operator LOCAL."""


class EvenShards:
    """Shards of equal size, in the order of the tensor, zero where padded."""

    def __init__(self, world: World, group: Group) -> None:
        self._world, self._group = world, group

    def fragment(self, elements: int, dtype: np.dtype[Any], op: str) -> int:
        """``elements`` divided by the size of the group, rounded up."""
        return -(-elements // self._group.size)

    def packs(self, widths: list[int], dtype: np.dtype[Any], op: str) -> bool:
        """Always."""
        return True

    def keep_own(self, x: np.ndarray, out: np.ndarray) -> None:
        """Copy the fragments, and clear the padding."""
        width = out.shape[1]
        for row in range(self._world.local):
            start = self._group.index(self._world.offset + row) * width
            own = x[row, start : start + width]
            out[row, : own.size], out[row, own.size :] = own, 0


class Dispatch:
    """Makes the calls of one communicator over ``path``; ``shards`` (default: even) determines how tensors are cut.

    ``refusals`` is the context manager for the checks of a call; ``shared`` maps the id of each tensor that all ranks
    of a host share to the tensor.
    """

    def __init__(self, path: DataPath, world: World, group: Group, shards: ShardLayout | None = None) -> None:
        self.path, self.world, self.group = path, world, group
        self._shards = shards or EvenShards(world, group)
        self.refusals = Refusals(path.refuse, path.fail)
        self.shared: dict[int, np.ndarray] = {}
        self.nothing = path.empty((world.local, 0), np.dtype(np.float32))
        self._prepared = path.prepared
        self._requests: dict[tuple[object, ...], Request] = {}
        self._runner: Runner | None = None

    def begin(self, collective: Callable[[], R]) -> Handle[R]:
        """Run ``collective`` in the background, after all that were begun earlier."""
        if self._runner is None or not self._runner.works:
            self._runner = Runner()
        return self._runner.begin(begun_here(collective))

    def drain(self) -> None:
        """Wait for all collectives that were begun."""
        if self._runner is not None:
            self._runner.drain()

    def close(self) -> None:
        """Close the path; collectives that are still running complete, or raise at ``wait``."""
        self.path.close()
        if self._runner is not None:
            self._runner.stop()
            self._runner = None

    def repeat(self, code: int, op: str, x: object, out: object, root: int = 0) -> bool:
        """Repeat the call if the same call was prepared on the same two arrays; return whether it was."""
        if self._runner is not None:
            self._runner.drain()
        try:
            call = self._prepared.get((code, op, root, id(x), id(out)))
        except TypeError:  # unhashable, so no valid operator or root
            return False
        if call is None:
            return False
        known, known_out = call.x(), call.out()
        if (
            known is None
            or known_out is None
            or known is not x
            or known_out is not out
            or known.shape != call.shape
            or known.dtype is not call.dtype
            or (known_out is not known and (known_out.shape != call.out_shape or known_out.dtype is not call.dtype))
            or not known_out.flags.writeable
        ):
            return False
        try:
            status = call.run()
            if status != DONE:
                self.path.finish(call, status)
        except BaseException as error:
            self.path.fail(error)
            raise
        return True

    def run(
        self,
        collective: Collective | None,
        op: str,
        x: np.ndarray,
        out: np.ndarray,
        root: int = 0,
        detail: str | None = None,
        *,
        shared: bool = False,
    ) -> None:
        """Make a call on checked tensors; ``detail`` (default: the shape) becomes part of the request."""
        self.drain()
        request = self._request(collective, op, x, root, detail, shared)
        if collective is not None and request.operator is Operator.LOCAL:
            agreed = Request(None, Operator.LOCAL, self.nothing.dtype, 0, detail=str(request))
            self.path.run(agreed, self.nothing, self.nothing)
            if collective is Collective.ALL_REDUCE:
                out[...] = x
            else:
                self._shards.keep_own(x, out)
        else:
            self.path.run(request, x, out)

    def coalesced(self, collective: Collective, op: str = ADD, root: int = 0) -> coalescing.Transfer:
        """The collective as a function of the packed tensor of a list."""

        def run(x: np.ndarray, detail: str) -> np.ndarray:
            out = x
            if collective is Collective.REDUCE_SCATTER:
                out = self.path.empty((len(x), self.width(x, op)), x.dtype)
            elif collective is Collective.ALL_GATHER:
                out = self.path.empty((len(x), self.group.size, x.shape[1]), x.dtype)
            elif collective is Collective.ALL_TO_ALL:
                out = self.path.empty(x.shape, x.dtype)
            self.run(collective, op, x, out, root, detail)
            return out

        return run

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray:
        """A zeroed tensor [local replicas, *shape] in memory that the path can use without copies."""
        return self.path.empty((self.world.local, *shape), dtype)

    def scatter_list(self, x: list[np.ndarray], op: str, out: list[np.ndarray] | None) -> list[np.ndarray]:
        """Reduce-scatter a list of tensors, in one transfer where ``shards`` can pack them."""
        widths = [self.width(tensor, op) for tensor in x]
        if not self._shards.packs(widths, x[0].dtype, op):
            return coalescing.one_by_one(x, out, lambda tensor: self._scatter(tensor, op))
        transfer = self.coalesced(Collective.REDUCE_SCATTER, op)
        return coalescing.scattered(
            x, out, widths, self.group.size, lambda n, dtype: self.empty((n,), dtype), transfer
        )

    def width(self, x: np.ndarray, op: str) -> int:
        """Elements of ``x`` [local replicas, n] that one member owns after a reduce-scatter, padding included."""
        return self._shards.fragment(x.shape[1], x.dtype, op)

    def _scatter(self, x: np.ndarray, op: str) -> np.ndarray:
        fragment = self.path.empty((len(x), self.width(x, op)), x.dtype)
        self.run(Collective.REDUCE_SCATTER, op, x, fragment)
        return fragment

    def check(self, x: np.ndarray) -> None:
        """Raise ArgumentError unless ``x`` is a tensor [local replicas, ...]."""
        check_tensor(x, self.world.local)

    def check_slices(self, x: np.ndarray) -> None:
        """Raise ArgumentError unless ``x`` is a tensor [local replicas, group size, ...]."""
        self.check(x)
        check_slices(x, self.group.size)

    def check_flat(self, x: np.ndarray) -> None:
        """Raise ArgumentError unless ``x`` is a tensor [local replicas, n]."""
        check_flat(x, self.world.local)

    def output(
        self, out: np.ndarray | None, shape: tuple[int, ...], x: np.ndarray, *, in_place: bool = False
    ) -> np.ndarray:
        """``out`` if it fits a result of ``shape``, else ArgumentError; a new tensor if it is None."""
        if out is None:
            return self.path.empty(shape, x.dtype)
        check_output(out, shape, x, in_place=in_place, alone=self.group.size == 1)
        return out

    def _request(
        self, collective: Collective | None, op: str, x: np.ndarray, root: int, detail: str | None, shared: bool
    ) -> Request:
        shape = x.shape if detail is None else detail
        key = (collective, str(op), x.dtype, shape, root, shared)
        request = self._requests.get(key)
        if request is None:
            name = Operator.parse(op, x.dtype) if collective in REDUCING else Operator.ADD
            if detail is None:
                detail = "" if x.ndim == 2 else str(list(x.shape[1:]))
            if len(self._requests) >= _MAX_REQUESTS:
                self._requests.clear()
            request = Request(collective, name, x.dtype, x.size // self.world.local, root, detail, shared)
            self._requests[key] = request
        return request
