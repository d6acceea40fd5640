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
    node, rewrite = input_node(graph, op), Rewrite(graph, op)
    x, k = node.input(0), int(np.asarray(node.attribute_or_constant("k", 1, 0)).reshape(()))
    rows, columns = np.indices(x.shape[-2:])
    kept = columns - rows >= k if node.attribute("upper", 1) else columns - rows <= k
    zero = rewrite.constant(np.zeros((), x.dtype.numpy))
    rewrite.op("Where", rewrite.constant(kept), op.inputs[0], zero, into=op.outputs[0])
    return rewrite.ops


OPS = [OpDef("Trilu", (1, 2), _shape, replaced_before_run, copy_cost, expand=_expand, constant_inputs={1: "k"})]
