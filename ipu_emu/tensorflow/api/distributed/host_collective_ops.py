"""Host collectives: host values combined over all instances."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from tensorflow.python.eager import context
from tensorflow.python.framework import ops, tensor_shape

import popdist_py
from ipu_emu.tensorflow.api.distributed.named_collectives import NamedCollectives
from ipu_emu.tensorflow.run.host_calls import host_call
from ipu_emu.tensorflow.trace.frontend_state import frontend_state

__all__ = ["allgather", "allreduce", "broadcast"]


def allreduce(value: Any, op: Any = "sum", tensor_name: str | None = None) -> Any:
    """Combine a tensor over all instances by sum or mean."""
    name = str(getattr(op, "value", op)).lower()
    if name not in ("sum", "mean"):
        raise ValueError(f"Unsupported reduce op: {op}")
    return _host(value, lambda array: popdist_py.allReduce(array, name).astype(array.dtype), tensor_name)


def allgather(value: Any, tensor_name: str | None = None) -> Any:
    """The tensors of all instances, along a new first axis."""
    tensor = ops.convert_to_tensor(value)
    shape = tensor_shape.TensorShape([popdist_py.getNumInstances()]).concatenate(tensor.shape)
    return _host(tensor, popdist_py.allGather, tensor_name, shape)


def broadcast(value: Any, root: int = 0, tensor_name: str | None = None) -> Any:
    """The tensor of instance ``root``."""
    return _host(value, lambda array: np.asarray(popdist_py.broadcast(array, root), array.dtype), tensor_name)


def _host(value: Any, function: Callable[[Any], Any], tensor_name: str | None, shape: Any = None) -> Any:
    """``function`` of the value on the host: at once, or when a session runs it.

    Instances match the collectives of a session by name, or without names by their order in the graph.
    """
    popdist_py.init()
    tensor = ops.convert_to_tensor(value)
    if context.executing_eagerly():
        return ops.convert_to_tensor(function(tensor.numpy()))
    graph = ops.get_default_graph()
    name = graph.unique_name("host_collective") if tensor_name is None else tensor_name
    if popdist_py.getNumInstances() == 1 or getattr(graph, "building_function", False):
        result = host_call(lambda array: function(np.asarray(array)), [tensor], tensor.dtype, "host_collective")
    else:
        state = frontend_state()
        state.collectives = state.collectives or NamedCollectives()
        result = state.collectives.tensor(name, function, tensor)
    result.set_shape(tensor.shape if shape is None else shape)
    return result
