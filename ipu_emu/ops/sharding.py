"""Sharding: ops of updates that are divided between replicas, each of which updates one shard of a weight.

    TakeShard              (whole, number of the shard) -> shard, padded with zeros
    ReduceScatterGradient  gradients of all replicas -> each gets one shard of what they are together
    AllGatherWeight        (weight, shard) -> the weight, whole again, of the shards of all replicas
    AllGatherShards        shard -> a whole tensor of ``shape``, of the shards of all replicas

All but the first are collectives. The attribute ``domain`` is the (stride, size) of the replicas whose shards make a
whole, ``shard`` the number of elements of a shard.
"""

from __future__ import annotations

from ipu_emu.graph.op import Op
from ipu_emu.ops.collectives import GATHER_SHARDS, GATHER_WEIGHT, SCATTER_GRADIENT
from ipu_emu.ops.cost import moves
from ipu_emu.ops.node import Made, Node
from ipu_emu.ops.registry import Bound, OpDef, Step, always

__all__ = ["OPS", "TAKE_SHARD", "exchanged_bytes", "shares"]

TAKE_SHARD = "TakeShard"


def shares(op: Op) -> bool:
    """Say whether ``op`` is a collective of shards."""
    return op.type in (SCATTER_GRADIENT, GATHER_WEIGHT, GATHER_SHARDS)


def exchanged_bytes(node: Node) -> int:
    """Bytes of a replica that a collective of shards exchanges: the whole, padded, and a shard."""
    _, replicas = node.attribute("domain", (1, 1))
    return (int(replicas) + 1) * _shard_size(node) * node.input(0).dtype.itemsize


def _shard_size(node: Node) -> int:
    return int(node.attribute("shard", 0))


def _shard(node: Node) -> Made:
    return [(node.input(0).dtype, (_shard_size(node),))]


def _whole(node: Node) -> Made:
    return [(node.input(0).dtype, tuple(node.attribute("shape", node.input(0).shape)))]


def _take(bound: Bound) -> Step:
    whole, number, out = bound.input(0), bound.input(1), bound.outputs[0]

    def take() -> None:
        start = int(number[()]) * out.size
        own = whole.reshape(-1)[start : start + out.size]
        out[: own.size], out[own.size :] = own, 0

    return take


def _collective(bound: Bound) -> Step:
    raise AssertionError(f"{bound.node.op} is one of all replicas; no replica runs it alone")


OPS = [
    OpDef(TAKE_SHARD, (2, 2), _shard, _take, moves, halves=always),
    OpDef(SCATTER_GRADIENT, (1, 1), _shard, _collective, moves, halves=always),
    OpDef(GATHER_WEIGHT, (2, 2), _whole, _collective, moves, updates=(0,), halves=always),
    OpDef(GATHER_SHARDS, (1, 1), _whole, _collective, moves, halves=always),
]
