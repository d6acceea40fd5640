"""Fused: a chain of element-wise ops as one kernel, a single pass over its operands.

    body      instructions of ``codegen.rows``; operands are the inputs, then the outputs
    columns   inputs that have one value for each of the last axes, and the number of these elements (else 0)

A FLOAT16 result is rounded after each op, as it would be if it were stored, so that fusion changes no bit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ipu_emu.codegen.rows import Instruction, Operand, Pass, bound_rows
from ipu_emu.graph.dtype import dtype_numbered
from ipu_emu.graph.op import GRAPHCORE
from ipu_emu.ops.arrays import flat, storage
from ipu_emu.ops.cost import Cost
from ipu_emu.ops.node import Made, Node
from ipu_emu.ops.registry import Bound, OpDef, Step, always

__all__ = ["FORMULAS", "OPS", "Body", "Formula"]


class Body:
    """Instructions under construction."""

    def __init__(self) -> None:
        self.instructions: list[Instruction] = []

    def __call__(self, function: str, *values: Any) -> int:
        """Append an instruction; the number of its value."""
        self.instructions.append((function, *values))
        return len(self.instructions) - 1


#: Writes the value of an op into a body, given its attributes and the values of its inputs.
Formula = Callable[[Body, Mapping[str, Any], list[int]], int]


def _plain(function: str) -> Formula:
    return lambda body, attributes, values: body(function, *values)


def _slope(function: str) -> Formula:
    """g times the slope at x."""
    return lambda body, attributes, values: body("mul", values[0], body(function, values[1]))


def _scale(body: Body, attributes: Mapping[str, Any], values: list[int]) -> int:
    return body("mul", values[0], body("number", float(np.float32(attributes.get("scale", 1.0)))))


def _gelu(kind: str) -> Formula:
    def formula(body: Body, attributes: Mapping[str, Any], values: list[int]) -> int:
        form = "tanh" if attributes.get("approximate", "none") == "tanh" else "erf"
        return (_slope if kind else _plain)(f"gelu_{form}{kind}")(body, attributes, values)

    return formula


def _same(body: Body, attributes: Mapping[str, Any], values: list[int]) -> int:
    return values[0]


#: (domain, type) of the ops that can be fused, their operands and results FLOAT or FLOAT16.
FORMULAS: Mapping[tuple[str, str], Formula] = {
    ("", "Add"): _plain("add"),
    ("", "Sub"): _plain("sub"),
    ("", "Mul"): _plain("mul"),
    ("", "Div"): _plain("div"),
    ("", "Neg"): _plain("neg"),
    ("", "Relu"): _plain("relu"),
    ("", "ReluGrad"): _plain("pass"),
    ("", "Sigmoid"): _plain("sigmoid"),
    ("", "Tanh"): _plain("tanh"),
    ("", "Exp"): _plain("exp"),
    ("", "Sqrt"): _plain("sqrt"),
    ("", "Abs"): _plain("abs"),
    ("", "Scale"): _scale,
    (GRAPHCORE, "Scale"): _scale,
    ("", "Cast"): _same,
    ("", "Gelu"): _gelu(""),
    ("", "GeluGrad"): _gelu("_slope"),
    ("", "GraphcoreGeluErfGrad"): _slope("gelu_erf_slope"),
    ("", "GraphcoreGeluGrad"): _slope("gelu_tanh_slope"),
    (GRAPHCORE, "GeluErf"): _plain("gelu_erf"),
    (GRAPHCORE, "Gelu"): _plain("gelu_tanh"),
}


def _shape(node: Node) -> Made:
    kinds, shapes = node.attribute("dtypes", ()), node.attribute("shapes", ())
    return [(dtype_numbered(kind), tuple(shape)) for kind, shape in zip(kinds, shapes, strict=True)]


def _kernel(bound: Bound) -> Step:
    columns = bound.node.attribute("columns", {})
    whole = [bound.input(i) for i in range(len(bound.inputs)) if _kind(bound.node, i) == "full"]
    flats = iter(flat(*whole, *bound.outputs))
    arrays, operands = [], []
    for index, array in enumerate((*bound.inputs, *bound.outputs)):
        assert array is not None
        kind = _kind(bound.node, index)
        arrays.append(next(flats) if kind == "full" else storage(array))
        operands.append(Operand(kind, array.dtype == np.float16))
    size = bound.outputs[0].size
    width = max(columns.values(), default=size) or 1
    step: Step = bound_rows(operands, [Pass(bound.node.attribute("body", ()))], arrays, size // width, width)
    return step


def _kind(node: Node, index: int) -> str:
    """How operand ``index`` relates to the elements of the outputs."""
    if index >= len(node.inputs):
        return "full"
    if index in node.attribute("columns", {}):
        return "column"
    return "full" if node.input(index).shape == node.outputs[0].shape else "scalar"


def _cost(node: Node) -> Cost:
    moved = sum(t.nbytes for t in (*node.inputs, *node.outputs) if t is not None)
    work = sum(1 for function, *_ in node.attribute("body", ()) if function not in ("load", "store", "half"))
    return Cost(work * node.outputs[0].nelms, moved)


OPS = [OpDef("Fused", (1, None), _shape, _kernel, _cost, elementwise=True, halves=always)]
