"""Optimisers that wrap another: sums over mini-batches, means over replicas, changed gradients."""

from ipu_emu.tensorflow.api.gradient_accumulation import GradientAccumulationReductionMethod
from ipu_emu.tensorflow.api.optimizers.cross_replica_optimizer import CrossReplicaOptimizer
from ipu_emu.tensorflow.api.optimizers.gradient_accumulation_optimizer import (
    CrossReplicaGradientAccumulationOptimizer,
    CrossReplicaGradientAccumulationOptimizerV2,
    GradientAccumulationOptimizer,
    GradientAccumulationOptimizerV2,
)
from ipu_emu.tensorflow.api.optimizers.ipu_optimizer import IpuOptimizer
from ipu_emu.tensorflow.api.optimizers.map_gradient_optimizer import MapGradientOptimizer
from ipu_emu.tensorflow.api.optimizers.sharded_optimizer import ShardedOptimizer

__all__ = [
    "CrossReplicaGradientAccumulationOptimizer", "CrossReplicaGradientAccumulationOptimizerV2",
    "CrossReplicaOptimizer", "GradientAccumulationOptimizer", "GradientAccumulationOptimizerV2",
    "GradientAccumulationReductionMethod", "IpuOptimizer", "MapGradientOptimizer", "ShardedOptimizer",
]  # fmt: skip
