"""Replication: the index of a replica, and the number of replicas."""

from __future__ import annotations

from typing import Any

from tensorflow.python.framework import dtypes
from tensorflow.python.ops import array_ops

from ipu_emu.tensorflow.trace.collectives import trace_of

__all__ = ["replication_factor", "replication_index"]


def replication_index(name: str | None = None) -> Any:
    """The index of the replica that evaluates the op."""
    return trace_of("replication_index").placeholder(dtypes.int32, [], "replication_index", None, name)


def replication_factor(name: str | None = None) -> Any:
    """The number of replicas."""
    placeholder = trace_of("replication_factor").placeholder(dtypes.int32, [], "replication_factor", None, name)
    return array_ops.identity(placeholder)
