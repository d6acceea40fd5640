"""Sharded optimiser: places gradients on the shards of their forward ops."""

from __future__ import annotations

from typing import Any

from ipu_emu.tensorflow.api.optimizers.ipu_optimizer import IpuOptimizer

__all__ = ["ShardedOptimizer"]


class ShardedOptimizer(IpuOptimizer):
    """Places every gradient on the shard of its forward op, which is always the case here."""

    def __init__(self, optimizer: Any) -> None:
        super().__init__(optimizer, "ShardedOptimizer")
