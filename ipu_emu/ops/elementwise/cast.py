"""Cast: the elements of a tensor in another type."""

from __future__ import annotations

from ipu_emu.graph.dtype import dtype_numbered
from ipu_emu.ops.core import Adjoint, Node, OpDef, OutputTypes, Value, copy_cost
from ipu_emu.ops.core.formulas import Formula
from ipu_emu.ops.core.kernel_helpers import copy


def _cast_shape(node: Node) -> OutputTypes:
    return [(dtype_numbered(node.attribute("to", 1)), node.input(0).shape)]


def _cast_grad(d: Adjoint) -> Value:
    return d.g.op("Cast", to=d.x.tensor.dtype.onnx)


def _cast_like(node: Node) -> OutputTypes:
    return [(node.input(1).dtype, node.input(0).shape)]


OPS = [
    OpDef("Cast", (1, 1), _cast_shape, copy, copy_cost, _cast_grad, formula=Formula(lambda x: x)),
    OpDef("CastLike", (2, 2), _cast_like, copy, copy_cost, lambda d: [_cast_grad(d)]),
]
