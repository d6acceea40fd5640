"""PopDist strategy: data-parallel training on the replicas of all instances of a job."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from tensorflow.python.eager import context, def_function
from tensorflow.python.framework import ops
from tensorflow.python.framework import tensor as tensor_lib
from tensorflow.python.ops import math_ops, variable_scope

import popdist_py
from ipu_emu.session.options.without_effect import say_without_effect, without_effect
from ipu_emu.tensorflow.api.distributed.host_collective_ops import allreduce, broadcast
from ipu_emu.tensorflow.api.ipu_strategy import run_on_device
from ipu_emu.tensorflow.run.function_programs import FunctionPrograms
from ipu_emu.tensorflow.trace.collectives import cross_replica_mean, cross_replica_sum
from ipu_emu.tensorflow.trace.devices import device_number, on_ipu
from ipu_emu.tensorflow.trace.function_trace import current_trace
from ipu_emu.tensorflow.trace.strategies import in_strategy, reducing_gradients

__all__ = ["IPUMultiReplicaStrategyV1", "IPUMultiWorkerStrategyV1", "PopDistStrategy"]


class PopDistStrategy:
    """Variables start with the values of the first instance; gradients are summed over all replicas."""

    @without_effect("enable_dataset_iterators")
    def __init__(
        self,
        ipu_device: str = "/device:IPU:0",
        add_ipu_cross_replica_reductions: bool = True,
        enable_dataset_iterators: bool = True,
        enable_keras_extensions: bool = True,
    ) -> None:
        popdist_py.init()
        self._number, self._reduces = device_number(ipu_device) or 0, add_ipu_cross_replica_reductions
        self.enable_keras_extensions = enable_keras_extensions
        self._programs = FunctionPrograms(self._number)

    @property
    def device_ordinal(self) -> int:
        """The number of the device."""
        return self._number

    def update_ipu_config(self, config: Any) -> None:
        """Set the index of this instance and the number of all instances in an IPUConfig."""
        shared = config.experimental.multi_replica_distribution
        shared.process_count, shared.process_index = popdist_py.getNumInstances(), popdist_py.getInstanceIndex()

    @property
    def num_replicas_in_sync(self) -> int:
        """The number of replicas of all instances."""
        return popdist_py.getNumTotalReplicas()

    @contextmanager
    def scope(self) -> Iterator[PopDistStrategy]:
        """Return the scope in which to build a model that all replicas train."""
        creating = variable_scope.variable_creator_scope(_from_first)
        with on_ipu(self._number), in_strategy(self), creating, self._reducing():
            yield self

    def _reducing(self) -> Any:
        return reducing_gradients(self._reduces)

    def run(self, fn: Callable[..., Any], args: Any = (), kwargs: Any = None, options: Any = None) -> Any:
        """Call ``fn`` as part of the program that is being compiled; in eager mode, compile and run a tf.function."""
        say_without_effect("Arguments of PopDistStrategy.run", ["options"][: options is not None])
        with self._reducing(), variable_scope.variable_creator_scope(_from_first):
            if current_trace() is None and context.executing_eagerly() and isinstance(fn, def_function.Function):
                return run_on_device(self._programs, fn, args, kwargs or {})
            return fn(*args, **(kwargs or {}))

    experimental_run_v2 = run

    def reduce(self, reduce_op: Any, value: Any, axis: Any = None) -> Any:
        """The sum or the mean over all replicas, and over ``axis``; outside a program, over all instances."""
        name = str(getattr(reduce_op, "value", reduce_op)).lower()
        if name not in ("sum", "mean"):
            raise ValueError(f"Unsupported reduce op: {reduce_op}")
        if axis is not None:
            value = (math_ops.reduce_sum if name == "sum" else math_ops.reduce_mean)(value, axis)
        if current_trace() is None:
            return allreduce(value, name)
        return (cross_replica_sum if name == "sum" else cross_replica_mean)(value)


#: The name of early releases.
IPUMultiReplicaStrategyV1 = PopDistStrategy


class IPUMultiWorkerStrategyV1(PopDistStrategy):
    """The strategy of early releases for several instances; the cluster is that of the launcher."""

    @without_effect("cluster_resolver", "variables_on_host")
    def __init__(
        self, cluster_resolver: Any = None, ipu_device: str = "/device:IPU:0", variables_on_host: bool = False
    ) -> None:
        warnings.warn("IPUMultiWorkerStrategyV1 is deprecated. Use PopDistStrategy instead.", stacklevel=2)
        super().__init__(ipu_device)


def _from_first(create: Callable[..., Any], **options: Any) -> Any:
    """Create a variable with the initial value of the first instance."""
    initial_value = options.get("initial_value")
    if initial_value is None or popdist_py.getNumInstances() == 1:
        return create(**options)

    def initial() -> Any:
        value = initial_value() if callable(initial_value) else initial_value
        tensor = value if isinstance(value, tensor_lib.Tensor) else ops.convert_to_tensor(value, options.get("dtype"))
        return broadcast(tensor)

    return create(**{**options, "initial_value": initial})
