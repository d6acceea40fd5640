"""Reduce-scatter between all replicas."""

from __future__ import annotations

from math import prod
from typing import Any

from tensorflow.python.ops import array_ops, math_ops

from ipu_emu.tensorflow.api.ops.replication_ops import replication_index
from ipu_emu.tensorflow.trace.collectives import cross_replica_mean, cross_replica_sum

__all__ = ["reduce_scatter"]


def reduce_scatter(x: Any, replication_factor: int, op: str = "COLLECTIVE_OP_ADD", name: str | None = None) -> Any:
    """The replica's part of the sum of ``x`` over all replicas, as a vector; the end is padded with zeros."""
    if isinstance(x, list | tuple):
        return [reduce_scatter(tensor, replication_factor, op, name) for tensor in x]
    kinds = {"COLLECTIVE_OP_ADD": cross_replica_sum, "COLLECTIVE_OP_MEAN": cross_replica_mean}
    if op not in kinds:
        raise ValueError(f"reduce_scatter supports {', '.join(kinds)}, not {op}")
    count = prod(int(dim) for dim in x.shape)
    size = -(-count // replication_factor)
    flat = array_ops.pad(
        array_ops.reshape(kinds[op](x, name=name), [count]), [[0, size * replication_factor - count]]
    )
    start = replication_index() * size
    return array_ops.gather(flat, start + math_ops.range(size))
