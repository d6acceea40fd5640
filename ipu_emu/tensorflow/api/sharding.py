"""Sharding: functions of early releases that pass on the shard of an op."""

from __future__ import annotations

from typing import Any

__all__ = ["get_shard_from_colocation", "has_attr", "propagate_sharding"]


def propagate_sharding(g: Any) -> None:
    """Do nothing: gradients are on the shard of their forward op."""


def get_shard_from_colocation(op: Any) -> Any:
    """Return None: shards are no attribute of an op."""
    return None


def has_attr(o: Any, attr_name: str) -> bool:
    """Whether an op has an attribute."""
    return any(entry.name == attr_name for entry in o.op_def.attr)
