"""Horovod: the functions of Horovod that programs for several instances call, based on PopDist."""

from __future__ import annotations

from typing import Any

import popdist_py
from ipu_emu.tensorflow.api.distributed import host_collective_ops, popdist_strategy
from ipu_emu.tensorflow.api.distributed import popdist_strategy as ipu_multi_replica_strategy
from ipu_emu.tensorflow.api.distributed.host_collective_ops import broadcast

__all__ = [
    "Average", "Sum", "allgather", "allreduce", "broadcast", "init", "ipu_multi_replica_strategy", "local_rank",
    "popdist_strategy", "rank", "shutdown", "size",
]  # fmt: skip

Sum, Average = "sum", "mean"


def init() -> None:
    """Join the job."""
    popdist_py.init()


def shutdown() -> None:
    """Do nothing: the instance leaves the job when it ends."""


def size() -> int:
    """The number of instances."""
    return popdist_py.getNumInstances()


def rank() -> int:
    """The index of this instance."""
    return popdist_py.getInstanceIndex()


def local_rank() -> int:
    """The index of this instance on its host."""
    return popdist_py.getLocalInstanceIndex()


def allreduce(tensor: Any, op: str = Average, name: str | None = None) -> Any:
    """Combine a tensor over all instances, by default by the mean."""
    return host_collective_ops.allreduce(tensor, op, name)


def allgather(tensor: Any, name: str | None = None) -> Any:
    """The tensors of all instances, joined along the first axis."""
    gathered = host_collective_ops.allgather(tensor, name)
    from tensorflow.python.ops import array_ops

    return array_ops.reshape(gathered, [-1, *gathered.shape[2:]])
