"""Reduction: all-reduce and reduce-scatter over messages, in chunks, so that combining overlaps with sending.

    every party   combines its own replicas as far as the tree allows (whole subtrees)
                  sends each owner its part of those subtrees
    owner         combines the subtrees of all parties, in tree order; in an all-reduce it returns the result

Several chunks are in flight at a time; drawn here with one chunk ahead (``_AHEAD`` is the number used):

    chunk   0        1        2        3
            send     .        .        .        combine own subtrees, send them to the owners
            reduce   send     .        .        combine what arrived for the own part, send the result
            deliver  reduce   send     .        wait for the others' results
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from gcl.core.operators import Operator
from gcl.core.request import Request
from gcl.reduce.buffer_pool import BufferPool
from gcl.reduce.encoded_steps import Step, clear, combine, copy
from gcl.reduce.reduction import Subtree, recipe
from gcl.transport.messages.endpoints import GroupView, Stripe, stripe_bounds
from gcl.transport.messages.message_channel import MessageChannel
from gcl.transport.messages.persistent_sendrecv import Transfers
from gcl.transport.mpi.mpi_requests import Message

#: One flat array per replica of the party.
Rows = list[np.ndarray]
#: party -> the elements [start, stop) that it owns, of one chunk
Ranges = dict[int, list[tuple[int, int]]]

#: Bytes that a party receives in a chunk, at the most and at the least.
_CHUNK_BYTES, _LEAST_BYTES = 1 << 22, 1 << 18
_AHEAD = 2  # chunks on their way to their owners, while an earlier one is reduced


class _Node(NamedTuple):
    """The combined values of a subtree, by the index of its first leaf."""

    first: int
    values: np.ndarray
    leaves: int


@dataclass(frozen=True)
class _ChunkInFlight:
    """A chunk in flight: for each own range, subtrees to combine (with their numbers of leaves); pending messages."""

    ranges: Ranges
    nodes: list[list[tuple[np.ndarray, int]]]
    pending: list[Message]


class Reduction:
    """Reduces over one group at a time, in buffers that are kept from call to call."""

    def __init__(self, channel: MessageChannel) -> None:
        self._channel = channel
        self._buffers = tuple(BufferPool() for _ in range(_AHEAD + 1))

    def all_reduce(self, request: Request, view: GroupView, rows: Rows, results: Rows, stripe: Stripe) -> None:
        """Combine the ``stripe`` of ``rows`` over the group, into all ``results``."""
        low, high = stripe_bounds(request.count, request.dtype.itemsize, stripe)
        step = _elements(request, _chunk_bytes(view) * len(view.indices))
        chunks = [_even(view, start, min(high, start + step)) for start in range(low, high, step)]
        targets = [results[row] for row in view.rows]
        flights: dict[int, _ChunkInFlight] = {}
        deliveries: dict[int, list[Message]] = {}
        for turn in range(len(chunks) + 2 * _AHEAD):
            if turn < len(chunks):
                flights[turn] = self._begin(request, view, rows, chunks[turn], turn)
            if turn - _AHEAD in flights:
                flight = flights.pop(turn - _AHEAD)
                mine = flight.ranges[view.me]
                self._combine_arrived(request, view, flight, [[target[a:b] for target in targets] for a, b in mine])
                deliveries[turn - _AHEAD] = self._return_results(view, flight.ranges, targets[0])
            if turn - 2 * _AHEAD in deliveries:
                self._channel.wait(request, deliveries.pop(turn - 2 * _AHEAD))
                self._copy_results(view, chunks[turn - 2 * _AHEAD], targets)

    def reduce_scatter(self, request: Request, view: GroupView, rows: Rows, results: Rows, stripe: Stripe) -> None:
        """Combine the ``stripe`` of each fragment; each own result is the fragment of its index, then zeros."""
        fragment, count = results[0].size, request.count
        low, high = stripe_bounds(fragment, request.dtype.itemsize, stripe)
        most = max(len(indices) for indices in view.indices.values())
        step = _elements(request, _chunk_bytes(view) // most)
        starts = range(low, high, step)
        flights: dict[int, _ChunkInFlight] = {}
        for turn in range(len(starts) + _AHEAD):
            if turn < len(starts):
                bounds = starts[turn], min(high, starts[turn] + step)
                chunk = {
                    party: [_clipped(i, fragment, bounds, count) for i in view.indices[party]]
                    for party in view.indices
                }
                flights[turn] = self._begin(request, view, rows, chunk, turn)
            if turn - _AHEAD in flights:
                flight = flights.pop(turn - _AHEAD)
                self._combine_arrived(request, view, flight, _parts(view, flight.ranges[view.me], results))
        _clear(self._channel, request, view, results, (low, high))

    def reduce_scatter_at_once(
        self, transfers: Transfers, request: Request, view: GroupView, rows: Rows, results: Rows, stripe: Stripe
    ) -> None:
        """Add to ``transfers`` a reduce-scatter in one exchange."""
        fragment, bounds = results[0].size, stripe_bounds(results[0].size, request.dtype.itemsize, stripe)
        ranges = {
            party: [_clipped(i, fragment, bounds, request.count) for i in indices]
            for party, indices in view.indices.items()
        }
        flight = self._exchange_subtrees(transfers, request, view, rows, ranges, transfers)
        for nodes, to in zip(flight.nodes, _parts(view, ranges[view.me], results), strict=True):
            transfers.then(_combination(nodes, request.operator, view.size, to))
        _clear(transfers, request, view, results, bounds)

    def _begin(self, request: Request, view: GroupView, rows: Rows, ranges: Ranges, turn: int) -> _ChunkInFlight:
        memory = self._buffers[turn % len(self._buffers)]
        memory.clear()
        return self._exchange_subtrees(self._channel, request, view, rows, ranges, memory)

    def _exchange_subtrees(
        self,
        channel: MessageChannel | Transfers,
        request: Request,
        view: GroupView,
        rows: Rows,
        ranges: Ranges,
        memory: BufferPool | Transfers,
    ) -> _ChunkInFlight:
        """Start to send every owner its part of the own subtrees, and to receive others' for the own ranges."""
        wire, pending = view.wire_dtype(request.dtype), list[Message]()
        for party in view.others:
            for start, stop in ranges[party]:
                for subtree in view.subtrees[view.me]:
                    node = self._subtree(channel, request, view, rows, subtree, (start, stop), wire, memory)
                    pending.append(channel.send(party, node))
        nodes: list[list[_Node]] = [[] for _ in ranges[view.me]]
        for party in view.others:
            for range_nodes, (start, stop) in zip(nodes, ranges[view.me], strict=True):
                for subtree in view.subtrees[party]:
                    node = memory.take(stop - start, wire)
                    pending.append(channel.receive(party, node))
                    range_nodes.append(_Node(subtree.first, node, subtree.leaves))
        for range_nodes, (start, stop) in zip(nodes, ranges[view.me], strict=True):
            for subtree in view.subtrees[view.me]:
                if wire == request.dtype:
                    range_nodes += self._leaves(view, rows, subtree, (start, stop))
                    continue
                node = self._subtree(channel, request, view, rows, subtree, (start, stop), wire, memory)
                range_nodes.append(_Node(subtree.first, node, subtree.leaves))
        return _ChunkInFlight(ranges, [_in_tree_order(range_nodes) for range_nodes in nodes], pending)

    def _leaves(self, view: GroupView, rows: Rows, subtree: Subtree, bounds: tuple[int, int]) -> list[_Node]:
        """The leaves of an own subtree as nodes, if they need not be widened."""
        return [_Node(subtree.first + i, rows[row][slice(*bounds)], 1) for i, row in enumerate(view.rows_of(subtree))]

    def _subtree(
        self,
        channel: MessageChannel | Transfers,
        request: Request,
        view: GroupView,
        rows: Rows,
        subtree: Subtree,
        bounds: tuple[int, int],
        wire: np.dtype[Any],
        memory: BufferPool | Transfers,
    ) -> np.ndarray:
        """Elements ``bounds`` of the replicas of ``subtree`` combined, in the dtype of messages."""
        leaves = [rows[row][bounds[0] : bounds[1]] for row in view.rows_of(subtree)]
        if len(leaves) == 1 and wire == request.dtype:
            return leaves[0]
        combined = memory.take(bounds[1] - bounds[0], wire)
        channel.first(_combination([(leaf, 1) for leaf in leaves], _partial(request, leaves), 1, [combined]))
        return combined

    def _combine_arrived(
        self, request: Request, view: GroupView, flight: _ChunkInFlight, targets: list[list[np.ndarray]]
    ) -> None:
        """Combine what arrived for each own range into all of its targets."""
        self._channel.wait(request, flight.pending)
        for nodes, to in zip(flight.nodes, targets, strict=True):
            self._channel.then(_combination(nodes, request.operator, view.size, to))

    def _return_results(self, view: GroupView, ranges: Ranges, result: np.ndarray) -> list[Message]:
        """Send the own part of the result to all, and start to receive theirs."""
        channel = self._channel
        pending = [channel.send(party, result[a:b]) for party in view.others for a, b in ranges[view.me]]
        return pending + [channel.receive(party, result[a:b]) for party in view.others for a, b in ranges[party]]

    def _copy_results(self, view: GroupView, ranges: Ranges, targets: list[np.ndarray]) -> None:
        """Copy the parts that others returned to the remaining own results."""
        for target in targets[1:]:
            for party in view.others:
                for start, stop in ranges[party]:
                    target[start:stop] = targets[0][start:stop]

    def all_reduce_at_once(
        self, transfers: Transfers, request: Request, view: GroupView, rows: Rows, results: Rows, stripe: Stripe
    ) -> None:
        """Add to ``transfers`` an all-reduce in which everyone sends its subtrees to all, and combines all."""
        low, high = bounds = stripe_bounds(request.count, request.dtype.itemsize, stripe)
        wire, own = view.wire_dtype(request.dtype), list[_Node]()
        for subtree in view.subtrees[view.me]:
            node = self._subtree(transfers, request, view, rows, subtree, bounds, wire, transfers)
            transfers.sends.extend((party, node) for party in view.others)
            if wire != request.dtype:
                own.append(_Node(subtree.first, node, subtree.leaves))
            else:
                own += self._leaves(view, rows, subtree, bounds)
        for party in view.others:
            for subtree in view.subtrees[party]:
                node = transfers.take(high - low, wire)
                transfers.receive(party, node)
                own.append(_Node(subtree.first, node, subtree.leaves))
        nodes = _in_tree_order(own)
        targets = [results[row][low:high] for row in view.rows]
        transfers.then(_combination(nodes, request.operator, view.size, targets))

    def all_reduce_in_two(
        self,
        transfers: tuple[Transfers, Transfers],
        request: Request,
        view: GroupView,
        rows: Rows,
        results: Rows,
        stripe: Stripe,
    ) -> None:
        """Add to ``transfers`` an all-reduce in two exchanges: everyone combines its share, then returns it."""
        first, second = transfers
        ranges = _even(view, *stripe_bounds(request.count, request.dtype.itemsize, stripe))
        flight = self._exchange_subtrees(first, request, view, rows, ranges, first)
        targets = [results[row] for row in view.rows]
        for nodes, (start, stop) in zip(flight.nodes, ranges[view.me], strict=True):
            to = [target[start:stop] for target in targets]
            first.then(_combination(nodes, request.operator, view.size, to))
        for party in view.others:
            for start, stop in ranges[view.me]:
                second.send(party, targets[0][start:stop])
            for start, stop in ranges[party]:
                second.receive(party, targets[0][start:stop])
                for target in targets[1:]:
                    second.then(copy(target[start:stop], targets[0][start:stop]))


def _in_tree_order(nodes: list[_Node]) -> list[tuple[np.ndarray, int]]:
    """The values of ``nodes``, and how many leaves are under them."""
    return [(node.values, node.leaves) for node in sorted(nodes, key=lambda node: node.first)]


def _combination(
    nodes: list[tuple[np.ndarray, int]], operator: Operator, divisor: int, targets: list[np.ndarray]
) -> Step:
    """The step that combines (values, leaves under them) in tree order into each of ``targets``."""
    how = recipe(operator, tuple(leaves for _, leaves in nodes), nodes[0][0].dtype, targets[0].dtype, divisor)
    return combine(how, [values for values, _ in nodes], targets)


def _partial(request: Request, leaves: Rows) -> Operator:
    """The operator of a subtree: steps applied once, per leaf or to the total, are left to the final combination."""
    return Operator.ADD if request.operator is Operator.MEAN or len(leaves) == 1 else request.operator


def _chunk_bytes(view: GroupView) -> int:
    """Bytes of a chunk that one party owns, and receives from each of the others."""
    return max(_LEAST_BYTES, _CHUNK_BYTES // max(1, len(view.others)))


def _elements(request: Request, nbytes: int) -> int:
    """Number of elements in about ``nbytes``, at least 64."""
    return max(64, nbytes // request.dtype.itemsize)


def _even(view: GroupView, start: int, stop: int) -> Ranges:
    """Each party's share of elements [start, stop)."""
    parties, count = len(view.indices), stop - start
    return {
        party: [(start + count * i // parties, start + count * (i + 1) // parties)]
        for i, party in enumerate(view.indices)
    }


def _parts(view: GroupView, ranges: list[tuple[int, int]], results: Rows) -> list[list[np.ndarray]]:
    """The part of each own result, which is a fragment, that each own range fills."""
    return [
        [results[row][start - index * results[row].size : stop - index * results[row].size]]
        for (start, stop), index, row in zip(ranges, view.indices[view.me], view.rows, strict=True)
    ]


def _clear(
    channel: MessageChannel | Transfers, request: Request, view: GroupView, results: Rows, bounds: tuple[int, int]
) -> None:
    """Zero the padding at the end of each own fragment, within ``bounds``."""
    low, high = bounds
    for index, row in zip(view.indices[view.me], view.rows, strict=True):
        fragment = results[row]
        end = min(fragment.size, max(0, request.count - index * fragment.size))
        rest = fragment[max(low, end) : high]
        if rest.size:
            channel.then(clear(rest))


def _clipped(index: int, fragment: int, bounds: tuple[int, int], count: int) -> tuple[int, int]:
    """Elements ``bounds`` of the fragment of ``index``, limited to the ``count`` elements of the tensor."""
    low, high = (min(count, index * fragment + bound) for bound in bounds)
    return low, high
