"""Sharding: functions of early releases for the shards of ops."""

from __future__ import annotations

from typing import Any

__all__ = ["get_shard_from_colocation", "has_attr", "propagate_sharding"]


def propagate_sharding(g: Any) -> None:
    """Do nothing: gradients are on the shard of their forward op."""


def get_shard_from_colocation(op: Any) -> Any:
    """Return None: shards are not an attribute of ops."""
    return None


def has_attr(o: Any, attr_name: str) -> bool:
    """Whether an op has an attribute."""
    return any(entry.name == attr_name for entry in o.op_def.attr)
