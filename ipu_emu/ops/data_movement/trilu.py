"""Trilu: the part of a matrix on one side of a diagonal, with 0 on the other side."""

from __future__ import annotations

import numpy as np

from ipu_emu.graph import Graph, Op
from ipu_emu.ops.core.cost import copy_cost
from ipu_emu.ops.core.node import Node, OutputTypes, input_node
from ipu_emu.ops.core.op_definition import OpDef, replaced_before_run
from ipu_emu.ops.core.rewrite import Rewrite

__all__ = ["OPS"]


def _shape(node: Node) -> OutputTypes:
    x = node.input(0)
    if x.rank < 2:
        raise node.fail(f"the input must be matrices [..., rows, columns], found {x}")
    return [(x.dtype, x.shape)]


def _expand(graph: Graph, op: Op) -> list[Op]:
    """The diagonal may be computed in the step."""
    node, rewrite = input_node(graph, op), Rewrite(graph, op)
    x, upper = node.input(0), bool(node.attribute("upper", 1))
    rows, columns = np.indices(x.shape[-2:])
    zero = rewrite.constant(np.zeros((), x.dtype.numpy))
    if node.has_input(1) and node.values[1] is None:
        k = rewrite.op("ReshapeTo", op.inputs[1], shape=[])
        distance = rewrite.constant((columns - rows).astype(node.input(1).dtype.numpy))
        outside = rewrite.op("Less" if upper else "Greater", distance, k)
        rewrite.op("Where", outside, zero, op.inputs[0], into=op.outputs[0])
        return rewrite.ops
    k0 = int(np.asarray(node.values[1]).reshape(())) if node.has_input(1) else 0
    kept = columns - rows >= k0 if upper else columns - rows <= k0
    rewrite.op("Where", rewrite.constant(kept), op.inputs[0], zero, into=op.outputs[0])
    return rewrite.ops


OPS = [OpDef("Trilu", (1, 2), _shape, replaced_before_run, copy_cost, expand=_expand)]
