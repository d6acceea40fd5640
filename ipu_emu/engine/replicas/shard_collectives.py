"""Shard collectives: reduce-scatters or all-gathers of several sharded tensors as one call, in a shared workspace.

workspace of a replica, for tensors a and b in 2 shards      | a0 b0 | a1 b1 | own a, own b |

A reduce-scatter copies gradients in and shards out, an all-gather shards in and whole weights out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ipu_emu.engine.replicas.local_replicas import Replicas
from ipu_emu.graph import Op, Shards
from ipu_emu.ops import Call
from ipu_emu.ops.communication.collective_ops import SCATTER_GRADIENT, operator_of
from ipu_emu.ops.communication.shard_ops import CROSS_DOMAIN, copy_shard_in, copy_shard_out, shards_of
from ipu_emu.ops.core.op_definition import call_chain

_Array = NDArray[Any]


@dataclass(frozen=True)
class CollectiveMember:
    """An op with one input and one output for each local replica."""

    op: Op
    inputs: Sequence[_Array]
    outputs: Sequence[_Array]

    @property
    def shards(self) -> Shards:
        return shards_of(self.op)


def shard_collective_call(
    replicas: Replicas, members: Sequence[CollectiveMember], workspace: NDArray[np.uint8]
) -> Call:
    """The prepared call of collectives of one kind, element type and domain."""
    first = members[0]
    domain, size = first.shards.domain, sum(member.shards.size for member in members)
    communicator, local = replicas.within(domain), len(first.inputs)
    free = workspace.reshape(-1).view(first.inputs[0].dtype)
    buffer = free[: local * domain[1] * size].reshape(local, domain[1], size)
    own = free[buffer.size : buffer.size + local * size].reshape(local, size)
    if first.op.type == SCATTER_GRADIENT:
        operator, between = operator_of(first.op), first.op.attributes.get(CROSS_DOMAIN)
        calls = [partial(communicator.reduce_scatter, buffer.reshape(local, -1), operator, out=own)]
        if between is not None:
            calls.append(partial(replicas.within(tuple(between)).all_reduce, own, operator, out=own))
        return call_chain(*_cuts(members, buffer), *calls, *_taken(members, own))
    return call_chain(
        *_given(members, own), partial(communicator.all_gather, own, out=buffer), *_pastes(members, buffer)
    )


def _columns(members: Sequence[CollectiveMember]) -> Iterator[tuple[CollectiveMember, slice]]:
    """The columns of each member's shards in a row of the workspace."""
    start = 0
    for member in members:
        yield member, slice(start, start + member.shards.size)
        start += member.shards.size


def _cuts(members: Sequence[CollectiveMember], buffer: _Array) -> Iterator[Call]:
    for member, columns in _columns(members):
        for x, row in zip(member.inputs, buffer, strict=True):
            straight = np.ascontiguousarray(x)
            if straight is not x:
                yield partial(np.copyto, straight, x)
            for index, shard in enumerate(row[:, columns]):
                yield copy_shard_out(member.shards, index, straight, shard)


def _pastes(members: Sequence[CollectiveMember], buffer: _Array) -> Iterator[Call]:
    for member, columns in _columns(members):
        for y, row in zip(member.outputs, buffer, strict=True):
            straight = y if y.flags.c_contiguous else np.empty(y.shape, y.dtype)
            for index, shard in enumerate(row[:, columns]):
                yield copy_shard_in(member.shards, index, shard, straight)
            if straight is not y:
                yield partial(np.copyto, y, straight)


def _given(members: Sequence[CollectiveMember], own: _Array) -> Iterator[Call]:
    for member, columns in _columns(members):
        for x, row in zip(member.inputs, own, strict=True):
            yield partial(np.copyto, row[columns], x)


def _taken(members: Sequence[CollectiveMember], own: _Array) -> Iterator[Call]:
    for member, columns in _columns(members):
        for y, row in zip(member.outputs, own, strict=True):
            yield partial(np.copyto, y, row[columns])
