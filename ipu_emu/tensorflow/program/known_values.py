"""Known values: tensors of a trace whose value follows from constants and from arguments of the current call."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ipu_emu.tensorflow.importer.folding import fold
from ipu_emu.tensorflow.tracing.trace import FunctionTrace, is_resource

__all__ = ["known_value"]


def known_value(trace: FunctionTrace, tensor: Any) -> NDArray[Any] | None:
    """The value of ``tensor`` while the program is traced, None where the device computes it.

    The names of the arguments that the value depends on are added to ``trace.settled``.
    """
    captured = {inner.name: outer for outer, inner in trace.captures()}
    found: dict[str, list[Any] | None] = {}

    def outputs(op: Any) -> list[Any] | None:
        if op.name not in found:
            found[op.name] = _outputs(op)
        return found[op.name]

    def _outputs(op: Any) -> list[Any] | None:
        if op.type == "Placeholder":
            return _given(trace, captured, op.outputs[0])
        if op.op_def.is_stateful or op.graph is not trace.graph or op.name in trace.markers:
            return None
        inputs = []
        for one in op.inputs:
            made = outputs(one.op)
            if made is None:
                return None
            inputs.append(made[one.value_index])
        try:
            return fold(op, inputs)
        except Exception:  # an op without a kernel for eager execution
            return None

    made = outputs(tensor.op)
    return None if made is None else np.asarray(made[tensor.value_index])


def _given(trace: FunctionTrace, captured: dict[str, Any], tensor: Any) -> list[Any] | None:
    """The value of an argument of the current call, or of a tensor of the host."""
    if tensor.name in trace.given:
        trace.settled.add(tensor.name)
        return [trace.given[tensor.name]]
    outer = captured.get(tensor.name)
    if outer is None or is_resource(outer) or not hasattr(outer, "numpy"):
        return None
    return [outer.numpy()]
