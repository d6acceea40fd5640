"""Fused: a chain of element-wise ops as one kernel, a single pass over its operands.

FusedUpdate is the same, but its outputs overwrite the first of its inputs.

    body      instructions of ``ops.codegen.row_passes``; operands are the inputs, then the outputs
    columns   the inputs that cover only the last axes, or all but the last one, and the number of columns
    rows      those of them that cover all but the last axis

FLOAT16 values are rounded after each op, as they would be if they were stored, so that fusion changes no bit.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ipu_emu.graph.dtype import dtype_numbered
from ipu_emu.ops.codegen.fused_store import RESULT, FusedStore
from ipu_emu.ops.codegen.row_passes import Operand, RowPass, bound_rows
from ipu_emu.ops.core import BoundOp, Call, Node, OpCost, OpDef, OutputTypes, always
from ipu_emu.ops.core.kernel_helpers import flat, storage

#: The most inputs that a FusedUpdate overwrites.
MOST_UPDATES = 8


def _shape(node: Node) -> OutputTypes:
    kinds, shapes = node.attribute("dtypes", ()), node.attribute("shapes", ())
    return [(dtype_numbered(kind), tuple(shape)) for kind, shape in zip(kinds, shapes, strict=True)]


def _kernel(bound: BoundOp) -> Call:
    columns = bound.node.attribute("columns", {})
    full = [bound.input(i) for i in range(len(bound.inputs)) if _kind(bound.node, i) == "full"]
    flats = iter(flat(*full, *bound.outputs))
    arrays, operands = [], []
    for index, array in enumerate((*bound.inputs, *bound.outputs)):
        assert array is not None
        kind = _kind(bound.node, index)
        arrays.append(next(flats) if kind == "full" else storage(array))
        operands.append(Operand.of(kind, array))
    size = bound.outputs[0].size
    width = max(columns.values(), default=size) or 1
    step: Call = bound_rows(operands, [RowPass(bound.node.attribute("body", ()))], arrays, size // width, width)
    return step


def fused_store(bound: BoundOp, results: Sequence[bool]) -> FusedStore | None:
    """The op as a function that a product applies to its results, which are the inputs for which ``results`` is true.

    None if an operand is not float32, or if it has more than one output.
    """
    node, output = bound.node, bound.outputs[0]
    arrays = [array for array, result in zip(bound.inputs, results, strict=True) if not result]
    body, columns = node.attribute("body", ()), set(node.attribute("columns", {}).values())
    floats = all(a is not None and a.dtype == np.float32 for a in (*bound.inputs, *bound.outputs))
    if not floats or len(bound.outputs) > 1 or columns > {output.shape[-1]}:
        return None
    kinds = [RESULT if result else _kind(node, index) for index, result in enumerate(results)]
    return FusedStore(
        tuple(body), tuple(kinds), tuple(storage(array) for array in arrays if array is not None), output
    )


def _kind(node: Node, index: int) -> str:
    """How operand ``index`` relates to the elements of the outputs."""
    if index >= len(node.inputs):
        return "full"
    if index in node.attribute("columns", {}):
        return "row" if index in node.attribute("rows", ()) else "column"
    return "full" if node.input(index).shape == node.outputs[0].shape else "scalar"


def _cost(node: Node) -> OpCost:
    moved = sum(t.nbytes for t in (*node.inputs, *node.outputs) if t is not None)
    work = sum(1 for function, *_ in node.attribute("body", ()) if function not in ("load", "store", "half"))
    return OpCost(work * node.outputs[0].nelms, moved)


OPS = [
    OpDef("Fused", (1, None), _shape, _kernel, _cost, elementwise=True, takes_half=always),
    OpDef(
        "FusedUpdate",
        (1, None),
        _shape,
        _kernel,
        _cost,
        updates=tuple(range(MOST_UPDATES)),
        elementwise=True,
        takes_half=always,
    ),
]
