"""Call and If: subgraphs that are replaced by the ops of their bodies.

Call    the body
If      both branches, of which guards let only one run, and a choice between their results; only the taken branch
        if the condition is constant
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from numpy.typing import NDArray

from ipu_emu.graph import Role
from ipu_emu.graph.dtype import BOOL
from ipu_emu.graph.op import GRAPHCORE
from ipu_emu.ops.control.inlining import Inliner, body_of, body_output_types, check_call, inlined_op
from ipu_emu.ops.core import Node, OutputTypes, Rewrite

_Array = NDArray[Any]


def _call_shape(node: Node) -> OutputTypes:
    body = body_of(node, "callee")
    check_call(node, body)
    return body_output_types(body)


def _call(rewrite: Rewrite, node: Node) -> None:
    inliner = Inliner(rewrite)
    inliner.name(inliner.inline(node.op.attributes["callee"], node.op.inputs))


def _if_shape(node: Node) -> OutputTypes:
    first, second = body_output_types(body_of(node, "then_branch")), body_output_types(body_of(node, "else_branch"))
    known = node.values[0] if node.values else None
    if known is not None and known.size == 1:
        return first if known.all() else second
    if first != second:
        raise node.fail(f"the branches return {_text(first)} and {_text(second)}; their outputs must be equal")
    if node.input(0).nelms != 1:
        raise node.fail(f"the condition must be a BOOL scalar, found {node.input(0)}")
    return first


def _if_known(node: Node) -> list[_Array] | None:
    """The outputs of the taken branch, if the condition and these outputs are constant."""
    condition = node.values[0] if node.values else None
    if condition is None:
        return None
    body = body_of(node, "then_branch" if condition.all() else "else_branch")
    known = [body.data[id] for id in body.outputs if body.tensor(id).role is Role.CONSTANT]
    return known if len(known) == len(body.outputs) else None


def _text(types: OutputTypes) -> str:
    return ", ".join(f"{dtype}{list(shape)}" for dtype, shape in types)


def _if(rewrite: Rewrite, node: Node) -> None:
    inliner, bodies, known = Inliner(rewrite), node.op.attributes, node.values[0]
    if known is not None:
        inliner.name(inliner.inline(bodies["then_branch" if known.all() else "else_branch"], ()))
        return
    condition = rewrite.op("ReshapeTo", node.op.inputs[0], shape=[])
    if node.input(0).dtype is not BOOL:
        condition = rewrite.op("Cast", condition, to=BOOL.onnx)
    first = inliner.inline(bodies["then_branch"], (), inliner.guard(condition))
    second = inliner.inline(bodies["else_branch"], (), inliner.guard(rewrite.op("Not", condition)))
    inliner.name([inliner.choose(condition, a, b) for a, b in zip(first, second, strict=True)])


OPS = [
    inlined_op("Call", (0, None), _call_shape, _call, GRAPHCORE),
    replace(inlined_op("If", (1, 1), _if_shape, _if), folded_outputs=_if_known),
]
