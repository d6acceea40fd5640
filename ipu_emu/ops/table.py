"""The table of all ops, and how an op enters a graph."""

from __future__ import annotations

from ipu_emu.errors import EmulatorError
from ipu_emu.graph import Graph, Op, Role, Tensor
from ipu_emu.ops import (
    adam,
    adaptive,
    clipping,
    collectives,
    convolution,
    elementwise,
    linear,
    losses,
    movement,
    pooling,
    reduction,
    softmax,
    update,
)
from ipu_emu.ops.node import Node
from ipu_emu.ops.registry import Registry

__all__ = ["TABLE", "append", "node_of"]

TABLE = Registry(
    family.OPS
    for family in (
        elementwise,
        movement,
        reduction,
        linear,
        convolution,
        pooling,
        softmax,
        losses,
        update,
        adam,
        adaptive,
        clipping,
        collectives,
    )
)


def append(graph: Graph, op: Op) -> list[Tensor]:
    """Infer what ``op`` makes and add both to ``graph``; raise EmulatorError where its inputs do not fit."""
    entry = TABLE[op]
    least, most = entry.inputs
    if len(op.inputs) < least or (most is not None and len(op.inputs) > most):
        bounds = f"{least}..{'inf' if most is None else most}"
        raise EmulatorError(f"{op.type} has invalid number of inputs {len(op.inputs)}. Must be between {bounds}")
    made = entry.shape(_node(graph, op))
    role = Role.CONSTANT if entry.kernel is None else Role.COMPUTED
    tensors = [Tensor(id, dtype, shape, role) for id, (dtype, shape) in zip(op.outputs, made, strict=True) if id]
    graph.append(op, tensors)
    if role is Role.CONSTANT:
        graph.data[op.outputs[0]] = op.attributes["value"]
    return tensors


def node_of(graph: Graph, op: Op) -> Node:
    """``op`` of ``graph`` with all its tensors."""
    node = _node(graph, op)
    return Node(op, node.inputs, node.values, tuple(graph.tensor(id) for id in op.outputs))


def _node(graph: Graph, op: Op) -> Node:
    inputs = tuple(graph.tensor(id) if id else None for id in op.inputs)
    return Node(op, inputs, tuple(graph.data.get(id) for id in op.inputs))
