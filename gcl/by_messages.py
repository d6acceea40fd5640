"""ByMessages: collectives among ranks that share no memory.

    every rank   combines its own replicas as far as the tree lets it (whole subtrees)
                 sends each owner its slice of those subtrees
    owner        combines the subtrees of all ranks, in tree order, and returns the result

An all-reduce of S bytes sends 2 (P - 1)/P x S from every rank, as long as its replicas are one subtree. It goes in
chunks, of which three are under way at a time, so that combining overlaps with sending:

    chunk   0        1        2        3
            send     .        .        .        combine own subtrees, send them to the owners of the slices
            reduce   send     .        .        combine what came for the own slice, send the result
            deliver  reduce   send     .        wait for the others' results
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from gcl.calls import Kind, Request
from gcl.dtypes import sum_dtype, witness
from gcl.errors import CollectiveMismatch, CollectiveTimeout, GclError, PeerLost
from gcl.groups import Group
from gcl.operators import CODES, Operator
from gcl.ready import ReadyCall
from gcl.reduction import WORK_WORDS, new_scratch, reduce_range, subtrees
from gcl.transport.messages import Messages
from gcl.world import World

__all__ = ["ByMessages"]

#: One flat array per local replica.
Rows = list[np.ndarray]

_TEXT_BYTES = 1024
_CHUNK_BYTES = 1 << 20  # of one rank's slice


class ByMessages:
    """Runs collectives for one rank over ``messages``."""

    def __init__(self, messages: Messages, world: World, group: Group, timeout: float) -> None:
        self.name = messages.name
        self.messages, self._world, self._timeout = messages, world, timeout
        self._groups = [_GroupView(members, world) for members in group.all_members()]
        self._fault: GclError | None = None
        self.ready: dict[tuple[object, ...], ReadyCall] = {}

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray:
        """A zeroed tensor; messages carry any memory equally fast."""
        return np.zeros(shape, dtype)

    def shared(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray:
        """A zeroed tensor of this rank's own: without shared memory there is one for each."""
        return np.zeros(shape, dtype)

    def run(self, request: Request, x: np.ndarray, out: np.ndarray) -> None:
        """Run ``request`` from ``x`` to ``out`` (C-contiguous, leading axis the local replicas)."""
        if self._fault is not None:
            raise self._fault
        local = self._world.local
        shared = request.kind is Kind.ALL_GATHER_SHARED
        results = [out.reshape(-1)] * local if shared else list(out.reshape(local, -1))
        try:
            if not self.agree(request, request.signature):
                raise self.mismatch(request)
            self.work(request, list(x.reshape(local, -1)), results)
        except BaseException as error:
            self.fail(error)
            raise

    def work(self, request: Request, rows: Rows, results: Rows) -> None:
        """The messages of ``request``, from one flat array per local replica to another."""
        work = {
            Kind.BARRIER: self._nothing,
            Kind.ALL_REDUCE: self._all_reduce,
            Kind.REDUCE_SCATTER: self._reduce_scatter,
            Kind.ALL_GATHER: self._all_gather,
            Kind.BROADCAST: self._broadcast,
            Kind.ALL_TO_ALL: self._all_to_all,
            Kind.ALL_GATHER_SHARED: self._all_gather,
        }[request.kind]
        for view in self._groups:
            if self._world.rank in view.ranges:
                work(request, view, rows, results)

    def finish(self, call: ReadyCall, status: int) -> None:
        """Nothing: messages have no ready calls."""

    def fail(self, error: BaseException) -> None:
        """Raise the same at every later call (or say that it was interrupted), and tell ranks that still wait."""
        interrupted = GclError("an earlier collective was interrupted, so the ranks are out of step; connect again")
        self._leave(error if isinstance(error, GclError) else interrupted)

    def close(self) -> None:
        """Leave: ranks that still wait for this one are told."""
        self._leave(GclError("the communicator is closed; connect again"))

    def _leave(self, fault: GclError) -> None:
        self._fault = self._fault or fault
        self.messages.close()

    def agree(self, request: Request, signature: int) -> bool:
        """Exchange what is called: a barrier, and the check that every rank calls the same."""
        return len(set(self._exchange(request, np.array([signature], np.int64))[:, 0].tolist())) == 1

    def mismatch(self, request: Request) -> CollectiveMismatch:
        """Exchange in words what each rank called, and where; all build the same error."""
        mine = np.zeros(_TEXT_BYTES, np.uint8)
        text = request.with_call_site().encode()[:_TEXT_BYTES]
        mine[: len(text)] = np.frombuffer(text, np.uint8)
        texts = [bytes(row).rstrip(b"\0").decode(errors="replace") for row in self._exchange(request, mine)]
        return CollectiveMismatch.between([(self._world.describe(rank), text) for rank, text in enumerate(texts)])

    def _exchange(self, request: Request, mine: np.ndarray) -> np.ndarray:
        """Everyone's ``mine``: [ranks, ...]."""
        everyone = np.empty((self.messages.ranks, *mine.shape), mine.dtype)
        everyone[self.messages.rank] = mine
        others = [rank for rank in range(self.messages.ranks) if rank != self.messages.rank]
        receives = [self.messages.receive(rank, everyone[rank]) for rank in others]
        self.wait(request, receives + [self.messages.send(rank, mine) for rank in others])
        return everyone

    def wait(self, request: Request, pending: list[Any]) -> None:
        """Complete messages of ``request``; raise PeerLost or CollectiveTimeout if a rank does not answer."""
        late = self.messages.wait(pending, timeout=self._timeout)
        for rank in late:
            if self.messages.left(rank):
                raise PeerLost(
                    f"{request} waits for {self._world.describe(rank)}, which has left; "
                    "call it on all ranks, or on none, and look at why that rank stopped"
                )
        if late:
            names = ", ".join(map(self._world.describe, late))
            raise CollectiveTimeout(
                f"{request} waited {self._timeout:g} s for {names}; look at what they do, or raise timeout"
            )

    def _nothing(self, request: Request, view: _GroupView, rows: Rows, results: Rows) -> None:
        """A barrier is the agreement that came before."""

    def _all_reduce(self, request: Request, view: _GroupView, rows: Rows, results: Rows) -> None:
        step = max(1, _CHUNK_BYTES * len(view.ranges) // request.dtype.itemsize)
        starts = range(0, request.count, step)
        slices: dict[int, _Slice] = {}
        deliveries: dict[int, list[Any]] = {}
        for turn in range(len(starts) + 2):
            if turn < len(starts):
                start = starts[turn]
                bounds = _even_bounds(view, start, min(request.count, start + step))
                slices[turn] = self._send_slices(request, view, rows, bounds)
            if 0 <= turn - 1 < len(starts):
                deliveries[turn - 1] = self._return_result(request, view, slices.pop(turn - 1), results[view.rows[0]])
            if turn >= 2:
                self.wait(request, deliveries.pop(turn - 2))
        for row in view.rows[1:]:
            results[row][...] = results[view.rows[0]]

    def _return_result(self, request: Request, view: _GroupView, own: _Slice, result: np.ndarray) -> list[Any]:
        """Send the own slice of the result to all, and begin to receive theirs."""
        mine = self._reduce_slice(request, view, own)
        low, high = own.bounds[self._world.rank]
        result[low:high] = mine
        pending = [self.messages.receive(rank, result[slice(*own.bounds[rank])]) for rank in view.others]
        return pending + [self.messages.send(rank, result[low:high]) for rank in view.others]

    def _reduce_scatter(self, request: Request, view: _GroupView, rows: Rows, results: Rows) -> None:
        fragment = results[0].size
        bounds = {
            rank: (min(request.count, start * fragment), min(request.count, stop * fragment))
            for rank, (start, stop) in view.ranges.items()
        }
        mine = self._reduce_slice(request, view, self._send_slices(request, view, rows, bounds))
        for i, row in enumerate(view.rows):
            piece = mine[i * fragment : (i + 1) * fragment]
            results[row][: piece.size] = piece
            results[row][piece.size :] = 0

    def _all_gather(self, request: Request, view: _GroupView, rows: Rows, results: Rows) -> None:
        shards = results[view.rows[0]].reshape(view.size, -1)
        pending = []
        for rank in view.others:
            pending += [self.messages.receive(rank, shards[index]) for index in range(*view.ranges[rank])]
            pending += [self.messages.send(rank, rows[row]) for row in view.rows]
        for index, row in zip(range(*view.ranges[self._world.rank]), view.rows, strict=True):
            shards[index] = rows[row]
        self.wait(request, pending)
        if request.kind is Kind.ALL_GATHER:
            for row in view.rows[1:]:
                results[row][...] = results[view.rows[0]]

    def _broadcast(self, request: Request, view: _GroupView, rows: Rows, results: Rows) -> None:
        root = next(rank for rank, (start, stop) in view.ranges.items() if start <= request.root < stop)
        target = results[view.rows[0]]
        if root == self._world.rank:
            target[...] = rows[view.rows[request.root - view.ranges[root][0]]]
            self.wait(request, [self.messages.send(rank, target) for rank in view.others])
        else:
            self.wait(request, [self.messages.receive(root, target)])
        for row in view.rows[1:]:
            results[row][...] = target

    def _all_to_all(self, request: Request, view: _GroupView, rows: Rows, results: Rows) -> None:
        sent = {row: rows[row].reshape(view.size, -1) for row in view.rows}
        kept = {row: results[row].reshape(view.size, -1) for row in view.rows}
        first = view.ranges[self._world.rank][0]
        pending = []
        for rank in view.others:
            theirs = range(*view.ranges[rank])
            pending += [self.messages.receive(rank, kept[row][index]) for row in view.rows for index in theirs]
            pending += [self.messages.send(rank, sent[row][index]) for index in theirs for row in view.rows]
        for i, row in enumerate(view.rows):
            for j, other in enumerate(view.rows):
                kept[row][first + j] = sent[other][first + i]
        self.wait(request, pending)

    def _send_slices(
        self, request: Request, view: _GroupView, rows: Rows, bounds: dict[int, tuple[int, int]]
    ) -> _Slice:
        """Begin to send every rank its slice of this rank's subtrees, and to receive the own one."""
        me, wire = self._world.rank, view.wire_dtype(rows[0].dtype)
        low, high = bounds[me]
        first, last = bounds[next(iter(bounds))][0], bounds[next(reversed(bounds))][1]
        parts = {block: self._subtree(request, view, rows, block, wire, first, last) for block in view.blocks[me]}
        pending, nodes = [], []
        for rank in view.others:
            start, stop = bounds[rank]
            pending += [self.messages.send(rank, part[start - first : stop - first]) for part in parts.values()]
        for rank in view.ranges:
            for block in view.blocks[rank]:
                own = rank == me
                node = parts[block][low - first : high - first] if own else np.empty(high - low, wire)
                nodes.append((node, block[1]))
                if not own:
                    pending.append(self.messages.receive(rank, node))
        return _Slice(bounds, nodes, pending)

    def _reduce_slice(self, request: Request, view: _GroupView, own: _Slice) -> np.ndarray:
        """The reduced elements of this rank's slice."""
        self.wait(request, own.pending)
        return _reduce(own.nodes, request.operator, view.size, request.dtype)

    def _subtree(
        self,
        request: Request,
        view: _GroupView,
        rows: Rows,
        block: tuple[int, int],
        wire: np.dtype[Any],
        start: int,
        stop: int,
    ) -> np.ndarray:
        """Elements [start, stop) of the replicas of ``block`` combined, in the dtype that travels."""
        first = block[0] - view.ranges[self._world.rank][0]
        leaves = [rows[row][start:stop] for row in view.rows[first : first + block[1]]]
        if len(leaves) == 1 and wire == request.dtype:
            return leaves[0]
        # what is done once, to each leaf or to the whole, is left to the owner of the slice
        plain = request.operator is Operator.MEAN or len(leaves) == 1
        partial = Operator.ADD if plain else request.operator
        return _reduce([(leaf, 1) for leaf in leaves], partial, 1, wire)


@dataclass(frozen=True)
class _Slice:
    """A slice on its way: whose is what, the subtrees to combine (with the leaves under them), open messages."""

    bounds: dict[int, tuple[int, int]]
    nodes: list[tuple[np.ndarray, int]]
    pending: list[Any]


class _GroupView:
    """A replica group as the ranks see it."""

    def __init__(self, members: list[int], world: World) -> None:
        owners = [world.owners[replica] for replica in members]
        self.size = len(members)
        #: rank -> [first, last + 1) index in the group of the replicas it owns
        self.ranges = {
            rank: (owners.index(rank), owners.index(rank) + owners.count(rank)) for rank in sorted(set(owners))
        }
        self.blocks = {rank: subtrees(start, stop) for rank, (start, stop) in self.ranges.items()}
        #: local row of each replica that this rank owns
        self.rows = [r - world.offset for r in members if world.owners[r] == world.rank]
        self.others = [rank for rank in self.ranges if rank != world.rank]

    def wire_dtype(self, dtype: np.dtype[Any]) -> np.dtype[Any]:
        """Sums travel unrounded: in their own dtype as soon as any rank sends one."""
        single = all(size == 1 for blocks in self.blocks.values() for _, size in blocks)
        return dtype if single else sum_dtype(dtype)


def _even_bounds(view: _GroupView, start: int, stop: int) -> dict[int, tuple[int, int]]:
    """Each rank's slice of elements [start, stop)."""
    ranks, count = len(view.ranges), stop - start
    return {
        rank: (start + count * position // ranks, start + count * (position + 1) // ranks)
        for position, rank in enumerate(view.ranges)
    }


def _reduce(
    nodes: list[tuple[np.ndarray, int]], operator: Operator, divisor: int, dtype: np.dtype[Any]
) -> np.ndarray:
    """Combine (values, leaves under them) in tree order into a new array of ``dtype``."""
    out = np.empty(nodes[0][0].size, dtype)
    reduce_range(
        np.array([node.ctypes.data for node, _ in nodes], np.int64),
        np.array([leaves for _, leaves in nodes], np.int64),
        len(nodes),
        np.array([out.ctypes.data], np.int64),
        1,
        0,
        out.size,
        CODES[operator],
        divisor,
        witness(nodes[0][0].dtype),
        witness(dtype),
        new_scratch(dtype),
        np.empty(WORK_WORDS, np.int64),
    )
    return out
