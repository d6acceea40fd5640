"""Optimizers that wrap another: sums over mini-batches, means over replicas, changed gradients."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tensorflow.python.framework import dtypes
from tensorflow.python.ops import gradients_impl
from tensorflow.python.training import optimizer

from ipu_emu.tensorflow.api.gradient_accumulation import GradientAccumulationReductionMethod
from ipu_emu.tensorflow.patches import dense
from ipu_emu.tensorflow.tracing.collectives import cross_replica_mean, trace_of
from ipu_emu.tensorflow.tracing.trace import Trace

__all__ = [
    "CrossReplicaGradientAccumulationOptimizer",
    "CrossReplicaGradientAccumulationOptimizerV2",
    "CrossReplicaOptimizer",
    "GradientAccumulationOptimizer",
    "GradientAccumulationOptimizerV2",
    "GradientAccumulationReductionMethod",
    "IpuOptimizer",
    "MapGradientOptimizer",
    "ShardedOptimizer",
]


class IpuOptimizer(optimizer.Optimizer):  # type: ignore[misc]
    """Base of optimizers that wrap another, of TensorFlow's first version or of Keras."""

    def __init__(self, opt: Any, name: str) -> None:
        super().__init__(False, name)
        self._opt = opt

    def compute_gradients(self, loss: Any, var_list: Any = None, **options: Any) -> Any:
        """The gradients of the wrapped optimizer."""
        return compute_gradients(self._opt, loss, var_list, **options)

    def apply_gradients(self, grads_and_vars: Any, global_step: Any = None, name: str | None = None) -> Any:
        """Update the variables by the wrapped optimizer."""
        return apply_gradients(self._opt, grads_and_vars, global_step, name)

    def get_slot(self, *arguments: Any, **named: Any) -> Any:
        return self._opt.get_slot(*arguments, **named)

    def get_slot_names(self, *arguments: Any, **named: Any) -> Any:
        return self._opt.get_slot_names(*arguments, **named)

    def variables(self) -> Any:
        found = self._opt.variables
        return found() if callable(found) else found


def is_keras(opt: Any) -> bool:
    """Whether ``opt`` is an optimizer of Keras."""
    return not isinstance(opt, optimizer.Optimizer)


def compute_gradients(opt: Any, loss: Any, var_list: Any = None, **options: Any) -> Any:
    """Pairs of gradient and variable, for optimizers of either kind."""
    if not is_keras(opt):
        return opt.compute_gradients(loss, var_list, **options)
    variables = list(var_list) if var_list is not None else _trainable(trace_of("compute_gradients"))
    return list(zip(gradients_impl.gradients(loss, variables), variables, strict=True))


def _trainable(trace: Trace) -> list[Any]:
    """The trainable variables that the program uses."""
    from tensorflow.python.ops import variables as tf_variables

    used = {id(outer) for outer, _ in trace.captures()}
    return [one for one in tf_variables.trainable_variables() if id(one.handle) in used]


def apply_gradients(opt: Any, pairs: Any, global_step: Any = None, name: str | None = None) -> Any:
    """Update the variables, by an optimizer of either kind; return an op."""
    if is_keras(opt):
        return opt.apply_gradients(pairs)
    return opt.apply_gradients(pairs, global_step=global_step, name=name)


def totals(trace: Trace, pairs: Any, dtype: Callable[[Any], Any] = lambda variable: None) -> list[tuple[Any, Any]]:
    """Mark the gradients as those of a mini-batch whose sum a weight update gets."""
    return [
        (gradient if gradient is None else total(trace, gradient, dtype(variable)), variable)
        for gradient, variable in pairs
    ]


def total(trace: Trace, gradient: Any, dtype: Any = None) -> Any:
    """``gradient`` as the sum over mini-batches; a gradient that is one already stays."""
    given = dense(gradient)
    marker = trace.markers.get(given.op.name)
    if marker is not None and marker.kind == "total":
        return given
    if dtype is None or dtypes.as_dtype(dtype) == given.dtype:
        return trace.mark(given, "total", None, "gradient")
    from tensorflow.python.ops import math_ops

    kind = dtypes.as_dtype(dtype)
    return trace.mark(math_ops.cast(given, kind), "total", kind.as_numpy_dtype, "gradient")


class CrossReplicaOptimizer(IpuOptimizer):
    """Takes the mean of every gradient over all replicas."""

    def __init__(self, opt: Any, name: str = "CrossReplicaOptimizer") -> None:
        super().__init__(opt, name)

    def apply_gradients(self, grads_and_vars: Any, global_step: Any = None, name: str | None = None) -> Any:
        trace = trace_of("CrossReplicaOptimizer")
        marked = totals(trace, grads_and_vars)
        with trace.updating():
            pairs = [(None if g is None else cross_replica_mean(g), variable) for g, variable in marked]
            return apply_gradients(self._opt, pairs, global_step, name)


class GradientAccumulationOptimizerV2(IpuOptimizer):
    """Updates once for every ``num_mini_batches`` iterations of a loop, by their combined gradients."""

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
        marked = totals(trace, grads_and_vars, self._type_of)
        with trace.updating():
            return apply_gradients(self._opt, marked, global_step, name)

    def _type_of(self, variable: Any) -> Any:
        return self._dtype(variable) if callable(self._dtype) and not _is_type(self._dtype) else self._dtype


def _is_type(value: Any) -> bool:
    return isinstance(value, type | dtypes.DType)


class GradientAccumulationOptimizer(GradientAccumulationOptimizerV2):
    """The same, by the name of early releases."""

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

    def __init__(
        self,
        opt: Any,
        num_mini_batches: int,
        offload_weight_update_variables: bool | None = None,
        replicated_optimizer_state_sharding: bool = False,
        dtype: Any = None,
        reduction_method: Any = GradientAccumulationReductionMethod.SUM,
        name: str = "CrossReplicaGradientAccumulationOptimizerV2",
    ) -> None:
        super().__init__(
            CrossReplicaOptimizer(opt),
            num_mini_batches,
            offload_weight_update_variables,
            replicated_optimizer_state_sharding,
            dtype,
            reduction_method,
            name,
        )


class CrossReplicaGradientAccumulationOptimizer(CrossReplicaGradientAccumulationOptimizerV2):
    """The same, by the name of early releases."""

    def __init__(
        self,
        opt: Any,
        num_mini_batches: int,
        verify_usage: bool = True,
        name: str = "CrossReplicaGradientAccumulationOptimizer",
    ) -> None:
        super().__init__(opt, num_mini_batches, name=name)


class MapGradientOptimizer(IpuOptimizer):
    """Changes every gradient by a function of gradient and variable."""

    def __init__(
        self, wrapped_optimizer: Any, gradient_mapping_function: Callable[[Any, Any], Any],
        name: str = "MapGradientOptimizer",
    ) -> None:  # fmt: skip
        super().__init__(wrapped_optimizer, name)
        self._function = gradient_mapping_function

    def compute_gradients(self, *arguments: Any, **options: Any) -> Any:
        pairs: Sequence[Any] = super().compute_gradients(*arguments, **options)
        return [(None if g is None else self._function(dense(g), variable), variable) for g, variable in pairs]


class ShardedOptimizer(IpuOptimizer):
    """Keeps every gradient on the shard of its forward op, as all gradients here are."""

    def __init__(self, optimizer: Any) -> None:
        super().__init__(optimizer, "ShardedOptimizer")
