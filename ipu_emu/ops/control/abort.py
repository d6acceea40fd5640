"""Abort: ends the step with an error, always or where its input is not 0 (aiGraphcore)."""

from __future__ import annotations

from ipu_emu.errors import ApplicationRuntimeError
from ipu_emu.graph.dtype import BOOL
from ipu_emu.graph.op import GRAPHCORE
from ipu_emu.ops.core.cost import copy_cost
from ipu_emu.ops.core.node import Node, OutputTypes
from ipu_emu.ops.core.op_definition import BoundOp, Call, OpDef

__all__ = ["ABORT", "OPS"]

ABORT = "Abort"


def _shape(node: Node) -> OutputTypes:
    if node.has_input(0) and node.input(0).nelms != 1:
        raise node.fail(f"one number is needed, found {node.input(0)}")
    return [(BOOL, ())]


def _abort(bound: BoundOp) -> Call:
    test = bound.input(0) if bound.inputs else None
    op, done = bound.node.op, bound.outputs[0]

    def run() -> None:
        done[()] = test is None or bool(test.any())
        if done:
            raise ApplicationRuntimeError(f"The program was aborted by Op {op.type} ({op.outputs[0]})")

    return run


#: What it is given may be known, but it must not run before the step.
OPS = [OpDef(ABORT, (0, 1), _shape, _abort, copy_cost, domain=GRAPHCORE, random=True)]
