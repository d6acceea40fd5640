"""Iteration bounds: upper bounds of computed numbers of iterations, so that loops can be unrolled for gradients.

M = Min(n, 8)        at most 8          M = Mod(n, 5)       at most 4
M = Clip(n, max=6)   at most 6          M = Cast(UINT8 n)   at most 255
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ipu_emu.graph import Graph, Op, Role

#: The attribute of a Loop with the most iterations that its computed number can be.
MOST_ITERATIONS = "most"

#: Given the bounds of the operands (inf if unknown), the bound of the result.
_Rule = Callable[[Sequence[float]], float]

_SMALL = {"BOOL": 1, "INT8": 127, "UINT8": 255}


def with_bound(graph: Graph, op: Op) -> Op:
    """A Loop with the bound of its iterations as an attribute; any other ``op`` is unchanged."""
    if op.type != "Loop" or op.domain or not op.inputs or not op.inputs[0] or op.inputs[0] in graph.data:
        return op
    bound = _bound(graph, graph.producers(), op.inputs[0])
    if not math.isfinite(bound):
        return op
    return replace(op, attributes={**op.attributes, MOST_ITERATIONS: max(math.floor(bound), 0)})


def _bound(graph: Graph, producers: Mapping[str, Op], id: str) -> float:
    """An upper bound of the elements of ``id``; infinity if unknown."""
    tensor = graph.tensor(id)
    if tensor.role is Role.CONSTANT and id in graph.data:
        return float(graph.data[id].max(initial=0))
    largest = float(_SMALL.get(tensor.dtype.name, math.inf))
    op = producers.get(id)
    if op is None or op.domain:
        return largest
    if op.type in ("ArgMax", "ArgMin"):
        return min(largest, graph.tensor(op.inputs[0]).shape[op.attributes.get("axis", 0)] - 1)
    if op.type == "Clip" and "max" in op.attributes:
        return min(largest, float(op.attributes["max"]))
    if op.type == "Clip" and len(op.inputs) > 2 and op.inputs[2]:
        return min(largest, _bound(graph, producers, op.inputs[2]))
    if op.type in _RULES:
        operands = _OPERANDS.get(op.type, slice(None))
        bounds = [_bound(graph, producers, operand) for operand in op.inputs[operands] if operand]
        return min(largest, _RULES[op.type](bounds))
    return largest


def _first(bounds: Sequence[float]) -> float:
    return bounds[0]


#: The operands that determine the bound, if not all do.
_OPERANDS: dict[str, Any] = {"Where": slice(1, 3), "Mod": slice(1, 2)}

_RULES: dict[str, _Rule] = {
    **dict.fromkeys(("Cast", "Identity", "Reshape", "ReshapeTo", "Squeeze", "Unsqueeze", "Gather"), _first),
    **dict.fromkeys(("Floor", "Clip", "ReduceMax", "ReduceMin"), _first),
    **dict.fromkeys(("Max", "Where"), max),
    **dict.fromkeys(("Add", "Sum"), sum),
    **dict.fromkeys(("Ceil", "Round"), lambda bounds: math.ceil(bounds[0]) if math.isfinite(bounds[0]) else math.inf),
    "Min": min,
    "Mod": lambda bounds: max(bounds[0] - 1, 0),
    "Relu": lambda bounds: max(bounds[0], 0),
}
