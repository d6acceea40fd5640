"""Cross-replica optimiser: updates by the means of gradients over all replicas."""

from __future__ import annotations

from typing import Any

from ipu_emu.tensorflow.api.optimizers.ipu_optimizer import IpuOptimizer, apply_gradients, totals
from ipu_emu.tensorflow.trace.collectives import cross_replica_mean, trace_of

__all__ = ["CrossReplicaOptimizer"]


class CrossReplicaOptimizer(IpuOptimizer):
    """Takes the mean of every gradient over all replicas."""

    def __init__(self, opt: Any, name: str = "CrossReplicaOptimizer") -> None:
        super().__init__(opt, name)

    def apply_gradients(self, grads_and_vars: Any, global_step: Any = None, name: str | None = None) -> Any:
        """Update the variables by the means of their gradients over all replicas; return an op."""
        trace = trace_of("CrossReplicaOptimizer")
        marked = totals(trace, grads_and_vars)
        with trace.updating():
            pairs = [(None if g is None else cross_replica_mean(g), variable) for g, variable in marked]
            return apply_gradients(self._opt, pairs, global_step, name)
