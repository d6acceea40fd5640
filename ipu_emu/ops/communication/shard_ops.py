"""Shard ops: updates that are divided between replicas, each of which updates one shard of a weight.

    TakeShard              (whole, number of the shard) -> shard, padded with zeros
    ReduceScatterGradient  gradients of all replicas -> each gets one shard of their reduction
    AllGatherWeight        (weight, shard) -> the whole weight, gathered from the shards of all replicas, in place
    AllGatherShards        shard -> a whole tensor of ``shape``, gathered from the shards of all replicas

All but the first are collectives. The attribute ``shards`` has the replicas that hold the shards and the division of
the tensor; ``between`` has the replicas of other domains, with which a gradient is also reduced.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ipu_emu.graph import Shards
from ipu_emu.graph.op import Op
from ipu_emu.ops.communication.collective_ops import GATHER_SHARDS, GATHER_WEIGHT, SCATTER_GRADIENT
from ipu_emu.ops.core import BoundOp, Call, Node, OpDef, OutputTypes, always, call_chain, copy_cost
from ipu_emu.ops.core.kernel_helpers import with_contiguous_operands

TAKE_SHARD = "TakeShard"
#: The (stride, size) of the replicas that hold one shard in different domains; a gradient is summed over these too.
CROSS_DOMAIN = "between"

_Array = NDArray[Any]


def is_shard_collective(op: Op) -> bool:
    """Whether ``op`` is a collective of shards."""
    return op.type in (SCATTER_GRADIENT, GATHER_WEIGHT, GATHER_SHARDS)


def shards_of(op: Op) -> Shards:
    """The division of the tensor of ``op``."""
    shards: Shards = op.attributes["shards"]
    return shards


def collective_bytes(node: Node) -> int:
    """Bytes that one replica sends and receives in a collective of shards: the padded tensor and a shard."""
    shards = shards_of(node.op)
    return (shards.domain[1] + 1) * shards.size * node.input(0).dtype.itemsize


def copy_shard_out(shards: Shards, index: int, tensor: _Array, shard: _Array) -> Call:
    """The call that copies shard ``index`` out of a whole tensor, which is contiguous, and pads it."""
    flat, runs = tensor.reshape(-1), shards.strided_pieces(index)
    covered = sum(run.count * run.length for run in runs)
    return call_chain(
        *(partial(np.copyto, run.of_shard(shard), run.of_whole(flat)) for run in runs),
        partial(shard[covered:].fill, 0),
    )


def copy_shard_in(shards: Shards, index: int, shard: _Array, tensor: _Array) -> Call:
    """The call that copies shard ``index`` into a whole contiguous tensor."""
    flat = tensor.reshape(-1)
    return call_chain(
        *(partial(np.copyto, run.of_whole(flat), run.of_shard(shard)) for run in shards.strided_pieces(index)),
    )


def _shard(node: Node) -> OutputTypes:
    return [(node.input(0).dtype, (shards_of(node.op).size,))]


def _whole(node: Node) -> OutputTypes:
    return [(node.input(0).dtype, shards_of(node.op).shape)]


def _take(bound: BoundOp) -> Call:
    tensor, number, shards = bound.input(0), bound.input(1), shards_of(bound.node.op)
    cuts = [copy_shard_out(shards, index, tensor, bound.outputs[0]) for index in range(shards.domain[1])]

    def take() -> None:
        cuts[int(number[()])]()

    return take


def _collective(bound: BoundOp) -> Call:
    raise AssertionError(f"{bound.node.op} is one of all replicas; no replica runs it alone")


OPS = [
    OpDef(TAKE_SHARD, (2, 2), _shard, with_contiguous_operands(_take), copy_cost, takes_half=always),
    OpDef(SCATTER_GRADIENT, (1, 1), _shard, _collective, copy_cost, takes_half=always),
    OpDef(GATHER_WEIGHT, (2, 2), _whole, _collective, copy_cost, updates=(0,), takes_half=always),
    OpDef(GATHER_SHARDS, (1, 1), _whole, _collective, copy_cost, takes_half=always),
]
