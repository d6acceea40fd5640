"""Abort and PrintTensor: ops that end the step with an error, or print a tensor and its gradient (aiGraphcore)."""

from __future__ import annotations

import sys

import numpy as np

from ipu_emu.errors import ApplicationRuntimeError
from ipu_emu.graph.dtype import BOOL
from ipu_emu.graph.op import GRAPHCORE
from ipu_emu.ops.control.print_style import PrintStyle
from ipu_emu.ops.core.adjoint import Adjoint, Value
from ipu_emu.ops.core.cost import copy_cost
from ipu_emu.ops.core.node import Node, OutputTypes
from ipu_emu.ops.core.op_definition import BoundOp, Call, OpDef
from ipu_emu.ops.core.shape_rules import same

__all__ = ["ABORT", "KEPT", "OPS"]

ABORT = "Abort"
#: Ops that run although nothing reads their results.
KEPT = frozenset({ABORT, "PrintTensor", "PrintedGradient"})


def _abort_shape(node: Node) -> OutputTypes:
    if node.has_input(0) and node.input(0).nelms != 1:
        raise node.fail(f"the input must be a scalar, found {node.input(0)}")
    return [(BOOL, ())]


def _abort(bound: BoundOp) -> Call:
    test = bound.input(0) if bound.inputs else None
    op, done = bound.node.op, bound.outputs[0]

    def run() -> None:
        done[()] = test is None or bool(test.any())
        if done:
            raise ApplicationRuntimeError(f"The program was aborted by Op {op.type} ({op.outputs[0]})")

    return run


# PrintTensor


#: Prints the gradient of a PrintTensor.
_PRINTED = "PrintedGradient"


def _print(bound: BoundOp) -> Call:
    node, x, y = bound.node, bound.input(0), bound.outputs[0]
    title = str(node.attribute("title", "")) or node.op.inputs[0]
    style = PrintStyle.of(node)

    def run() -> None:
        np.copyto(y, x)
        sys.stderr.write(f"{title}: {style.text(x)}\n")

    return run


def _grad(d: Adjoint) -> Value:
    if not d.attribute("print_gradient", 1):
        return d.g
    title = d.attribute("title", "") or d.node.op.inputs[0]
    own = d.attribute("gradient_title", "") or f"Gradient___{title}"
    return d.g.op(_PRINTED, **{**d.node.op.attributes, "title": own})


def _entry(type: str, domain: str = "") -> OpDef:
    """An op that is never folded: it must run in every step, even if its input is constant."""
    grad = _grad if domain else None
    return OpDef(type, (1, 1), same, _print, copy_cost, grad, elementwise=True, domain=domain, random=True)


OPS = [
    # ``random`` prevents folding: the input may be constant, but the op must run in the step.
    OpDef(ABORT, (0, 1), _abort_shape, _abort, copy_cost, domain=GRAPHCORE, random=True),
    _entry("PrintTensor", GRAPHCORE),
    _entry(_PRINTED),
]
