"""Cast: the elements of a tensor in another type."""

from __future__ import annotations

from functools import partial

import numpy as np

from ipu_emu.graph.dtype import dtype_numbered
from ipu_emu.ops.core import Adjoint, BoundOp, Call, Node, OpDef, OutputTypes, Value, copy_cost
from ipu_emu.ops.core.formulas import Formula


def _cast_shape(node: Node) -> OutputTypes:
    return [(dtype_numbered(node.attribute("to", 1)), node.input(0).shape)]


def _cast_grad(d: Adjoint) -> Value:
    return d.g.op("Cast", to=d.x.tensor.dtype.onnx)


def _cast_like(node: Node) -> OutputTypes:
    return [(node.input(1).dtype, node.input(0).shape)]


def _copy(bound: BoundOp) -> Call:
    return partial(np.copyto, bound.outputs[0], bound.input(0), casting="unsafe")


OPS = [
    OpDef("Cast", (1, 1), _cast_shape, _copy, copy_cost, _cast_grad, formula=Formula(lambda x: x)),
    OpDef("CastLike", (2, 2), _cast_like, _copy, copy_cost, lambda d: [_cast_grad(d)]),
]
