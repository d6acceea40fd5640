"""message_copies: all-gather, broadcast and all-to-all by messages: a byte goes once to whoever needs it."""

from __future__ import annotations

from typing import Any

import numpy as np

from gcl.core.request import Request
from gcl.kernels.copies import copying
from gcl.transport.messages.group_view import GroupView
from gcl.transport.messages.message_channel import MessageChannel
from gcl.transport.messages.persistent_sendrecv import Data
from gcl.transport.messages.reduce_collectives import Rows
from gcl.transport.messages.stripes import Stripe, stripe_of

__all__ = ["all_gather", "all_to_all", "broadcast"]


def all_gather(
    channel: MessageChannel | Data, request: Request, view: GroupView, rows: Rows, results: Rows, part: Stripe
) -> None:
    """Join the ``part`` of each replica's row in every result, in the order of the group."""
    low, high = stripe_of(request.count, request.dtype.itemsize, part)
    shards = results[view.rows[0]].reshape(view.size, -1)
    pending: list[Any] = []
    for party in view.others:
        pending += [channel.receive(party, shards[index, low:high]) for index in view.indices[party]]
        pending += [channel.lend(party, rows[row][low:high]) for row in view.rows]
    for index, row in zip(view.indices[view.me], view.rows, strict=True):
        channel.then(copying(shards[index, low:high], rows[row][low:high]))
    channel.wait(request, pending)
    for target in _others(results, view):
        for own, shard in zip(target.reshape(view.size, -1), shards, strict=True):
            channel.then(copying(own[low:high], shard[low:high]))


def broadcast(
    channel: MessageChannel | Data, request: Request, view: GroupView, rows: Rows, results: Rows, part: Stripe
) -> None:
    """Give every result the ``part`` of the root's row."""
    low, high = stripe_of(request.count, request.dtype.itemsize, part)
    target, root = results[view.rows[0]][low:high], view.owners[request.root]
    if root == view.me:
        channel.first(copying(target, rows[view.rows[view.indices[view.me].index(request.root)]][low:high]))
        channel.wait(request, [channel.lend(party, target) for party in view.others])
    else:
        channel.wait(request, [channel.receive(root, target)])
    for other in _others(results, view):
        channel.then(copying(other[low:high], target))


def all_to_all(
    channel: MessageChannel | Data, request: Request, view: GroupView, rows: Rows, results: Rows, part: Stripe
) -> None:
    """Exchange the ``part`` of each slice: slice j of member i becomes slice i of member j."""
    low, high = stripe_of(request.count // view.size, request.dtype.itemsize, part)
    sent = {row: rows[row].reshape(view.size, -1)[:, low:high] for row in view.rows}
    kept = {row: results[row].reshape(view.size, -1)[:, low:high] for row in view.rows}
    pending: list[Any] = []
    for party in view.others:
        theirs = view.indices[party]
        pending += [channel.receive(party, kept[row][index]) for row in view.rows for index in theirs]
        pending += [channel.lend(party, sent[row][index]) for index in theirs for row in view.rows]
    mine = view.indices[view.me]
    for i, row in zip(mine, view.rows, strict=True):
        for j, other in zip(mine, view.rows, strict=True):
            channel.then(copying(kept[row][j], sent[other][i]))
    channel.wait(request, pending)


def _others(results: Rows, view: GroupView) -> list[np.ndarray]:
    """The own results but the first; where all of them are one tensor, none."""
    first = results[view.rows[0]]
    return [results[row] for row in view.rows[1:] if results[row] is not first]
