"""Normalize image: pixels [..., 3] are scaled and get a fourth channel of zeros (aiGraphcore)."""

from __future__ import annotations

from ipu_emu.graph import Graph, Op
from ipu_emu.graph.op import GRAPHCORE
from ipu_emu.ops.core.cost import per_element
from ipu_emu.ops.core.node import Node, OutputTypes, input_node
from ipu_emu.ops.core.op_definition import OpDef, replaced_before_run
from ipu_emu.ops.core.rewrite import Rewrite

__all__ = ["OPS"]


def _shape(node: Node) -> OutputTypes:
    x, offsets, scales = (node.input(index) for index in range(3))
    if x.rank < 1 or x.shape[-1] != 3 or offsets.shape != (3,) or scales.shape != (3,):
        raise node.fail(f"inputs must be pixels [..., 3], 3 offsets and 3 scales, found {x}, {offsets} and {scales}")
    if offsets.dtype is not scales.dtype or not offsets.dtype.is_float:
        raise node.fail(f"{offsets} and {scales} must have the same floating-point type")
    return [(offsets.dtype, (*x.shape[:-1], 4))]


def _expand(graph: Graph, op: Op) -> list[Op]:
    """(x scale - offsets) scales"""
    node, rewrite = input_node(graph, op), Rewrite(graph, op)
    x = rewrite.op("Cast", op.inputs[0], to=node.input(1).dtype.onnx)
    x = rewrite.op("Scale", x, scale=float(node.attribute("scale", 1.0)))
    x = rewrite.op("Mul", rewrite.op("Sub", x, op.inputs[1]), op.inputs[2])
    before = [0] * node.input(0).rank
    rewrite.op("Pad", x, into=op.outputs[0], pads=[*before, *before[1:], 1], mode="constant", value=0.0)
    return rewrite.ops


OPS = [OpDef("NormalizeImage", (3, 3), _shape, replaced_before_run, per_element(3), expand=_expand, domain=GRAPHCORE)]
