"""Moving slices: a Slice whose bounds are computed, but always as far from each other, is a slice of known size.

    end = Add(i, 2), y = Slice(x, Unsqueeze(i), Unsqueeze(end))    ->    y = DynamicSlice(x, Unsqueeze(i)), 2 long

Loops slice so by the number of their iteration.
"""

from __future__ import annotations

from dataclasses import replace

from ipu_emu.graph import Graph, Op, Role
from ipu_emu.graph.dtype import INT64
from ipu_emu.graph.op import GRAPHCORE

__all__ = ["of_known_size"]

#: Ops that hand one number on.
_SAME = ("Identity", "Unsqueeze", "Squeeze", "Reshape")


def of_known_size(graph: Graph, op: Op) -> Op:
    """The op that stands for a moving slice of one axis; any other ``op`` itself."""
    if op.type != "Slice" or op.domain or len(op.inputs) < 3 or op.inputs[1] in graph.data:
        return op
    more = [id for id in op.inputs[3:] if id]
    start, end = (_origin(graph, id) for id in op.inputs[1:3])
    size = end[1] - start[1]
    if start[0] != end[0] or size <= 0 or graph.tensor(op.inputs[1]).nelms != 1 or len(more) > 1:
        return op
    if more and op.inputs[3] not in graph.data:
        return op
    axes = graph.data[op.inputs[3]].reshape(-1).tolist() if more else [0]
    rank = graph.tensor(op.inputs[0]).rank
    attributes = {"axes": [axis % max(rank, 1) for axis in axes], "sizes": [size]}
    return replace(op, type="DynamicSlice", domain=GRAPHCORE, inputs=op.inputs[:2], attributes=attributes, version=1)


def _origin(graph: Graph, id: str) -> tuple[str, int]:
    """The number that ``id`` is computed from, and how far it lies above that."""
    above, makers = 0, {output: op for op in graph.ops for output in op.outputs}
    while id in makers:
        op = makers[id]
        known = [other for other in op.inputs if _is_known(graph, other)]
        if op.type in _SAME:
            id = op.inputs[0]
        elif op.type == "Add" and len(known) == 1:
            above += int(graph.data[known[0]].item())
            id = next(other for other in op.inputs if other != known[0])
        else:
            break
    return id, above


def _is_known(graph: Graph, id: str) -> bool:
    """Whether ``id`` is one number that nothing changes."""
    tensor = graph.tensor(id)
    fixed = tensor.role is Role.CONSTANT or tensor.dtype is INT64
    return fixed and id in graph.data and tensor.nelms == 1
