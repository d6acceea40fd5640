"""Outlining: repeated sequences of ops become calls of a subgraph, as PopART's outlining makes them.

Two sequences are equal if their ops have the same types, attributes and shapes, and read each other's results in the
same way. A sequence is worth the sum of its ops; convolutions and products are worth most. Long sequences come first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ipu_emu.graph import StepPhase
from ipu_emu.popart.ir.ir_graph import IrGraph, IrOp

_HIGH = frozenset({
    "BatchNormGrad", "BatchNormalization", "Conv", "ConvWeightsGrad", "ConvTranspose", "GRU", "GRUGrad",
    "GroupNormalization", "GroupNormalizationGrad", "InstanceNormalization", "LSTM", "LSTMGrad", "MatMul", "MaxPool",
    "MaxPoolGrad", "AveragePool", "AveragePoolGrad", "MultiConv", "RNN", "RNNGrad", "Softmax", "Gather", "GatherGrad",
    "NllGrad", "TopK",
})  # fmt: skip
_HIGH_VALUE, _LOW_VALUE = 1000.0, 0.1
#: Larger graphs are not outlined, because the search takes quadratic time.
_MOST = 600
_LONGEST = 24
#: Ops that are never outlined.
_BARRIERS = frozenset({"IpuCopy", "Stash", "Restore", "RestoreInplace", "HostLoadInplace", "HostStore", "Call"})
_UNCOMPARED = ("__debug_info_id", "__inplace_op_names", "__inplace_op_priorities")


def outlined(graph: IrGraph, threshold: float) -> dict[str, list[IrOp]]:
    """Replace repeated sequences by calls; return the ops of each subgraph."""
    subgraphs: dict[str, list[IrOp]] = {}
    if len(graph.ops) > _MOST:
        return subgraphs
    for length in range(min(_LONGEST, len(graph.ops) // 2), 0, -1):
        while starts := _repeated(graph, length, threshold):
            name = f"_subgraph({len(subgraphs)})"
            subgraphs[name] = [replace(op, context="Subgraph") for op in graph.ops[starts[0] : starts[0] + length]]
            for start in reversed(starts):
                graph.ops[start : start + length] = [_call(graph.ops[start : start + length], graph, name)]
    return subgraphs


def _repeated(graph: IrGraph, length: int, threshold: float) -> list[int]:
    """Return the starts of the first sequence of this length that is worth outlining, without overlaps."""
    places: dict[Any, list[int]] = {}
    for start in range(len(graph.ops) - length + 1):
        window = graph.ops[start : start + length]
        key = _key(graph, window, threshold)
        if key is not None and (key not in places or start >= places[key][-1] + length):
            places.setdefault(key, []).append(start)
    return next((starts for starts in places.values() if len(starts) > 1), [])


def _key(graph: IrGraph, window: Sequence[IrOp], threshold: float) -> Any:
    first = window[0]
    if any(op.type in _BARRIERS or op.phase is StepPhase.UPDATE for op in window):
        return None
    if any((op.ipu, op.stage, op.phase) != (first.ipu, first.stage, first.phase) for op in window):
        return None
    if sum(_HIGH_VALUE if op.type in _HIGH else _LOW_VALUE for op in window) <= max(threshold, 0.0):
        return None
    names: dict[str, int] = {}
    rows = []
    for op in window:
        inputs = tuple((names.setdefault(id, len(names)), _kind(graph, id)) for id in op.inputs)
        outputs = tuple((names.setdefault(id, len(names)), _kind(graph, id)) for id in op.outputs)
        attributes = repr(sorted((k, repr(v)) for k, v in op.attributes.items() if k not in _UNCOMPARED))
        rows.append((op.type, attributes, inputs, outputs, op.recompute))
    return first.ipu, first.stage, first.phase, tuple(rows)


def _kind(graph: IrGraph, id: str) -> Any:
    tensor = graph.tensors.get(id)
    return tensor and (tensor.dtype.name, tensor.shape)


def _call(ops: Sequence[IrOp], graph: IrGraph, name: str) -> IrOp:
    computed = {id for op in ops for id in op.outputs}
    inputs = list(dict.fromkeys(id for op in ops for id in op.inputs if id and id not in computed))
    inside = {id(op) for op in ops}
    read = {input for op in graph.ops if id(op) not in inside for input in op.inputs} | graph.anchors
    outputs = [output for op in ops for output in op.outputs if output in read] or ops[-1].outputs
    return replace(ops[0].like("Call", inputs, outputs, callee=name), name="")
