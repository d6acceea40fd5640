"""Collectives: functions that combine tensors of replicas, as marked ops."""

from __future__ import annotations

from typing import Any

from tensorflow.python.framework import ops
from tensorflow.python.ops import array_ops, custom_gradient
from tensorflow.python.util import nest

from ipu_emu.session.options.without_effect import without_effect
from ipu_emu.tensorflow.trace.function_trace import FunctionTrace, current_trace


def cross_replica_sum(x: Any, replica_group_size: int | None = None, name: str | None = None) -> Any:
    """The sum over all replicas, or over groups of consecutive ones; its gradient is the same sum."""
    return _reduced(x, False, replica_group_size, name or "cross_replica_sum")


def cross_replica_mean(x: Any, replica_group_size: int | None = None, name: str | None = None) -> Any:
    """The mean over all replicas, or over groups of consecutive ones; its gradient is the same mean."""
    return _reduced(x, True, replica_group_size, name or "cross_replica_mean")


def _reduced(x: Any, mean: bool, size: int | None, name: str) -> Any:
    trace = trace_of(name)
    if size is not None and size < 1:
        raise ValueError(f"replica_group_size must be at least 1, not {size}")

    def reduce(value: Any) -> Any:
        reduced = trace.mark(value, "cross_replica", (mean, size), name)

        def gradient(upstream: Any) -> Any:
            return trace.mark(upstream, "cross_replica", (mean, size), name)

        return reduced, gradient

    return custom_gradient.custom_gradient(reduce)(ops.convert_to_tensor(x))


@without_effect("inplace")
def assume_equal_across_replicas(tensors: Any, inplace: bool = False) -> Any:
    """Return ``tensors``, which the program guarantees to be equal on all replicas."""
    return nest.map_structure(array_ops.identity, tensors)


def trace_of(name: str) -> FunctionTrace:
    """The trace of the program that is being compiled; raise ValueError outside one."""
    trace = current_trace()
    if trace is None:
        raise ValueError(f"{name} must be called in a program that is compiled for the IPU")
    return trace
