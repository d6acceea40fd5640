"""Gradient accumulation optimisers: one update for the gradients of several iterations of a loop."""

from __future__ import annotations

from typing import Any

from ipu_emu.session.options.without_effect import without_effect
from ipu_emu.tensorflow.api.gradient_accumulation import GradientAccumulationReductionMethod
from ipu_emu.tensorflow.api.optimizers.cross_replica_optimizer import CrossReplicaOptimizer
from ipu_emu.tensorflow.api.optimizers.ipu_optimizer import IpuOptimizer, apply_gradients, totals
from ipu_emu.tensorflow.trace.collectives import trace_of

__all__ = [
    "CrossReplicaGradientAccumulationOptimizer", "CrossReplicaGradientAccumulationOptimizerV2",
    "GradientAccumulationOptimizer", "GradientAccumulationOptimizerV2",
]  # fmt: skip


class GradientAccumulationOptimizerV2(IpuOptimizer):
    """Updates variables once every ``num_mini_batches`` iterations of a loop, by the combined gradients."""

    def __init__(
        self,
        opt: Any,
        num_mini_batches: int,
        offload_weight_update_variables: bool | None = None,
        replicated_optimizer_state_sharding: bool = False,
        dtype: Any = None,
        reduction_method: Any = GradientAccumulationReductionMethod.SUM,
        name: str = "GradientAccumulationOptimizerV2",
    ) -> None:
        super().__init__(opt, name)
        if num_mini_batches < 1:
            raise ValueError(f"num_mini_batches must be a positive number, not {num_mini_batches}")
        if replicated_optimizer_state_sharding and offload_weight_update_variables is False:
            raise ValueError("replicated_optimizer_state_sharding needs offload_weight_update_variables.")
        self._count, self._dtype = num_mini_batches, dtype
        self._offload, self._sharded = offload_weight_update_variables, replicated_optimizer_state_sharding
        self._reduction = GradientAccumulationReductionMethod.parse(reduction_method)

    def apply_gradients(self, grads_and_vars: Any, global_step: Any = None, name: str | None = None) -> Any:
        """Accumulate the gradients; update the variables once every ``num_mini_batches`` iterations; return an op."""
        trace = trace_of("GradientAccumulationOptimizerV2")
        section = trace.section
        if section is None or section.kind != "loop":
            where = "inside a pipeline" if section is not None else "outside of a loop"
            raise ValueError(
                f"GradientAccumulationOptimizerV2 was used {where}; use it in the body of loops.repeat, and give a "
                "pipeline gradient_accumulation_count"
            )
        if section.accumulation not in (1, self._count):
            raise ValueError("All optimizers of a loop must accumulate the same number of mini-batches")
        section.accumulation, section.reduction = self._count, self._reduction.name
        section.offload, section.shard_states = self._offload, self._sharded
        marked = totals(trace, grads_and_vars, self._dtype)
        with trace.updating():
            return apply_gradients(self._opt, marked, global_step, name)


class GradientAccumulationOptimizer(GradientAccumulationOptimizerV2):
    """The same, by the name of early releases."""

    @without_effect("verify_usage")
    def __init__(
        self,
        opt: Any,
        num_mini_batches: int,
        verify_usage: bool = True,
        name: str = "GradientAccumulationOptimizer",
    ) -> None:
        super().__init__(opt, num_mini_batches, name=name)


class CrossReplicaGradientAccumulationOptimizerV2(GradientAccumulationOptimizerV2):
    """Combines the gradients of mini-batches, then takes their mean over replicas."""

    def __init__(self, opt: Any, num_mini_batches: int, *arguments: Any, **options: Any) -> None:
        options.setdefault("name", type(self).__name__)
        super().__init__(CrossReplicaOptimizer(opt), num_mini_batches, *arguments, **options)


class CrossReplicaGradientAccumulationOptimizer(GradientAccumulationOptimizer):
    """The same, by the name of early releases."""

    def __init__(self, opt: Any, num_mini_batches: int, *arguments: Any, **options: Any) -> None:
        options.setdefault("name", type(self).__name__)
        super().__init__(CrossReplicaOptimizer(opt), num_mini_batches, *arguments, **options)
