"""Copy collectives: all-gather, broadcast and all-to-all over messages; each byte is sent once to each receiver."""

from __future__ import annotations

import numpy as np

from gcl.core.request import Request
from gcl.reduce.encoded_steps import copy
from gcl.transport.messages.endpoints import GroupView, Stripe, stripe_bounds
from gcl.transport.messages.message_channel import MessageChannel
from gcl.transport.messages.persistent_sendrecv import Transfers
from gcl.transport.messages.reduce_collectives import Rows
from gcl.transport.mpi.mpi_requests import Message


def all_gather(
    channel: MessageChannel | Transfers, request: Request, view: GroupView, rows: Rows, results: Rows, stripe: Stripe
) -> None:
    """Concatenate the ``stripe`` of each replica's row into every result, in the order of the group."""
    low, high = stripe_bounds(request.count, request.dtype.itemsize, stripe)
    shards = results[view.rows[0]].reshape(view.size, -1)
    pending: list[Message] = []
    for party in view.others:
        pending += [channel.receive(party, shards[index, low:high]) for index in view.indices[party]]
        pending += [channel.send(party, rows[row][low:high]) for row in view.rows]
    for index, row in zip(view.indices[view.me], view.rows, strict=True):
        channel.then(copy(shards[index, low:high], rows[row][low:high]))
    channel.wait(request, pending)
    for target in _others(results, view):
        for own, shard in zip(target.reshape(view.size, -1), shards, strict=True):
            channel.then(copy(own[low:high], shard[low:high]))


def broadcast(
    channel: MessageChannel | Transfers, request: Request, view: GroupView, rows: Rows, results: Rows, stripe: Stripe
) -> None:
    """Copy the ``stripe`` of the root's row to every result."""
    low, high = stripe_bounds(request.count, request.dtype.itemsize, stripe)
    target, root = results[view.rows[0]][low:high], view.owners[request.root]
    if root == view.me:
        channel.first(copy(target, rows[view.rows[view.indices[view.me].index(request.root)]][low:high]))
        channel.wait(request, [channel.send(party, target) for party in view.others])
    else:
        channel.wait(request, [channel.receive(root, target)])
    for other in _others(results, view):
        channel.then(copy(other[low:high], target))


def all_to_all(
    channel: MessageChannel | Transfers, request: Request, view: GroupView, rows: Rows, results: Rows, stripe: Stripe
) -> None:
    """Exchange the ``stripe`` of each slice: slice j of member i becomes slice i of member j."""
    low, high = stripe_bounds(request.count // view.size, request.dtype.itemsize, stripe)
    sent = {row: rows[row].reshape(view.size, -1)[:, low:high] for row in view.rows}
    received = {row: results[row].reshape(view.size, -1)[:, low:high] for row in view.rows}
    pending: list[Message] = []
    for party in view.others:
        theirs = view.indices[party]
        pending += [channel.receive(party, received[row][index]) for row in view.rows for index in theirs]
        pending += [channel.send(party, sent[row][index]) for index in theirs for row in view.rows]
    mine = view.indices[view.me]
    for i, row in zip(mine, view.rows, strict=True):
        for j, other in zip(mine, view.rows, strict=True):
            channel.then(copy(received[row][j], sent[other][i]))
    channel.wait(request, pending)


def _others(results: Rows, view: GroupView) -> list[np.ndarray]:
    """The results of this party except the first; none if all of them are one tensor."""
    first = results[view.rows[0]]
    return [results[row] for row in view.rows[1:] if results[row] is not first]
