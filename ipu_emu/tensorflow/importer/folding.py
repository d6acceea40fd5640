"""Folding: ops whose inputs are known are computed by TensorFlow's own kernels when the graph is built."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tensorflow.python.eager import context, execute
from tensorflow.python.framework import constant_op, dtypes, ops, tensor_util

__all__ = ["attributes_of", "fold"]


def fold(op: Any, inputs: Sequence[NDArray[Any]]) -> list[NDArray[Any]]:
    """Return the outputs of a stateless ``op`` for the values of its inputs."""
    if op.type == "Const":
        return [tensor_util.MakeNdarray(op.get_attr("value"))]
    with ops.init_scope(), context.eager_mode(), ops.device("CPU:0"):
        tensors = [constant_op.constant(array) for array in inputs]
        made = execute.execute(
            op.type.encode(), len(op.outputs), inputs=tensors, attrs=attributes_of(op), ctx=context.context()
        )
        return [np.asarray(tensor.numpy()) for tensor in (made if isinstance(made, list) else [made])]


def attributes_of(op: Any) -> tuple[Any, ...]:
    """Return the attributes of ``op`` as eager execution takes them: names and values in turn."""
    made: list[Any] = []
    for entry in op.op_def.attr:
        value = op.get_attr(entry.name)
        made += [entry.name, _plain(value)]
    return tuple(made)


def _plain(value: Any) -> Any:
    if isinstance(value, dtypes.DType):
        return value.as_datatype_enum
    if isinstance(value, list):
        return [_plain(one) for one in value]
    return value
