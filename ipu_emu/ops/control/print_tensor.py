"""PrintTensor: passes a tensor on and writes it to the standard error, and its gradient in the backward pass."""

from __future__ import annotations

import sys

import numpy as np

from ipu_emu.graph.op import GRAPHCORE
from ipu_emu.ops.core.adjoint import Adjoint, Value
from ipu_emu.ops.core.cost import copy_cost
from ipu_emu.ops.core.op_definition import BoundOp, Call, OpDef
from ipu_emu.ops.core.shape_rules import same

__all__ = ["OPS"]

#: Prints what it is given; stands for the gradient of a PrintTensor.
_PRINTED = "PrintedGradient"


def _print(bound: BoundOp) -> Call:
    node, x, y = bound.node, bound.input(0), bound.outputs[0]
    title = str(node.attribute("title", "")) or node.op.inputs[0]
    separator = node.attribute("separator", None) or " "

    def run() -> None:
        np.copyto(y, x)
        text = np.array2string(
            x,
            threshold=int(node.attribute("summariseThreshold", 1000)),
            edgeitems=int(node.attribute("edgeItems", 3)),
            max_line_width=int(node.attribute("maxLineWidth", 75)),
            precision=int(node.attribute("digits", 8)),
            separator=str(separator),
        )
        sys.stderr.write(f"{title}: {text}\n")

    return run


def _grad(d: Adjoint) -> Value:
    if not d.attribute("print_gradient", 1):
        return d.g
    title = d.attribute("title", "") or d.node.op.inputs[0]
    return d.g.op(_PRINTED, **{**d.node.op.attributes, "title": f"Gradient___{title}"})


def _entry(type: str, domain: str = "") -> OpDef:
    """An op that is not computed beforehand, even if its input is known."""
    grad = _grad if domain else None
    return OpDef(type, (1, 1), same, _print, copy_cost, grad, elementwise=True, domain=domain, random=True)


OPS = [_entry("PrintTensor", GRAPHCORE), _entry(_PRINTED)]
