"""Strategies: the strategy of the enclosing scope, and whether it sums gradients over all replicas."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

from tensorflow.python.framework import indexed_slices, ops

from ipu_emu.tensorflow.trace.collectives import cross_replica_sum
from ipu_emu.tensorflow.trace.frontend_state import frontend_state, pushed
from ipu_emu.tensorflow.trace.function_trace import FunctionTrace


def in_strategy(strategy: Any) -> AbstractContextManager[None]:
    """Make ``strategy`` the current one in a ``with`` block."""
    return pushed(frontend_state().strategies, strategy)


def current_strategy() -> Any:
    """The strategy of the innermost scope, None outside of scopes."""
    strategies = frontend_state().strategies
    return strategies[-1] if strategies else None


def reducing_gradients(active: bool) -> AbstractContextManager[None]:
    """Sum gradients over replicas in a ``with`` block, if ``active``."""
    return pushed(frontend_state().reducing, active)


def reduced_gradient(trace: FunctionTrace, gradient: Any) -> Any:
    """The gradient for an optimiser to apply: summed over replicas, once, if a strategy requires it."""
    if gradient is None or not any(frontend_state().reducing[-1:]):
        return gradient
    marker = trace.markers.get(gradient.op.name)
    if marker is not None and marker.kind == "cross_replica":
        return gradient
    if marker is None or marker.kind != "total":
        gradient = trace.mark(gradient, "total", None, "gradient")
    return cross_replica_sum(gradient)


def dense(gradient: Any) -> Any:
    """Convert a sparse gradient of some rows of a table to a gradient of the whole table."""
    if isinstance(gradient, indexed_slices.IndexedSlices):
        return ops.convert_to_tensor(gradient)
    return gradient
