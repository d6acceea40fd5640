"""Exchanges between all replicas."""

from __future__ import annotations

from typing import Any

from tensorflow.python.ops import array_ops, math_ops

from ipu_emu.tensorflow.api.ops.replication_ops import replication_index
from ipu_emu.tensorflow.trace.collectives import cross_replica_sum

__all__ = ["all_gather", "all_to_all"]


def all_gather(x: Any, replication_factor: int, name: str | None = None) -> Any:
    """The tensors of all replicas, stacked along a new first axis."""
    numbers = array_ops.reshape(math_ops.range(replication_factor), [replication_factor] + [1] * len(x.shape))
    own = math_ops.equal(numbers, replication_index())
    spread = array_ops.expand_dims(x, 0)
    return cross_replica_sum(array_ops.where_v2(own, spread, array_ops.zeros_like(spread)), name=name)


def all_to_all(
    x: Any, split_dimension: int, concat_dimension: int, number_of_replicas: int, name: str | None = None
) -> Any:
    """Send part i of ``x`` along one axis to replica i; join the received parts along another."""
    cut = array_ops.split(x, number_of_replicas, split_dimension)
    parts = array_ops.concat([array_ops.expand_dims(part, 0) for part in cut], 0)
    everything = all_gather(parts, number_of_replicas, name)
    mine = array_ops.gather(everything, replication_index(), axis=1)
    return array_ops.concat([mine[number] for number in range(number_of_replicas)], concat_dimension)
