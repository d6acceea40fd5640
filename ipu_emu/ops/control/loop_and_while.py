"""Loop and While: a loop unrolled into ops, or kept as one op that runs its body.

    Loop    unrolled: the body once for each iteration, if their number is constant and not too large; to be
            differentiated also if it is computed but bounded
    While   any other Loop: one op that runs its body until the count or the condition ends it

In an unrolled loop that may stop early, each iteration has a guard, and a choice that keeps the state once the loop
has stopped. A While has no gradient, because the number of states to keep is not known at compile time.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from ipu_emu.errors import EmulatorError
from ipu_emu.graph import Graph, Op, Role
from ipu_emu.graph.dtype import INT32
from ipu_emu.ops.control.inlining import (
    MAX_INLINED_OPS,
    Inliner,
    body_of,
    body_output_types,
    check_inputs,
    inlined_op,
    stacked,
)
from ipu_emu.ops.control.iteration_bounds import MOST_ITERATIONS
from ipu_emu.ops.core import Adjoint, Node, OutputTypes, Rewrite, Value, copy_cost
from ipu_emu.ops.core.op_definition import OpDef, always, replaced_before_run
from ipu_emu.ops.core.shape_rules import same

WHILE, _GRADIENT = "While", "WhileGrad"
#: The attribute of a While with the memory plan of its body.
BODY_MEMORY_PLAN = "plan"


def _count(node: Node) -> int | None:
    """The maximum number of iterations, None if it is not constant."""
    if "M" in node.op.attributes:
        return int(node.op.attributes["M"])
    known = node.values[0] if node.has_input(0) else None
    return None if known is None else max(int(known.reshape(-1)[0]), 0)


def _loop_shape(node: Node) -> OutputTypes:
    body = body_of(node, "body")
    check_inputs(node, body, len(node.inputs))
    return _made(node, body, len(node.inputs) - 2)


def _made(node: Node, body: Graph, states: int) -> OutputTypes:
    types = body_output_types(body)[1:]
    for index, (dtype, shape) in enumerate(types[:states]):
        start = node.input(index + 2)
        if (start.dtype, start.shape) != (dtype, shape):
            raise node.fail(f"state {start} becomes {dtype}{list(shape)}; it must keep its type and shape")
    return types[:states] + [(dtype, (_rows(node), *shape)) for dtype, shape in types[states:]]


def _rows(node: Node) -> int:
    count = _count(node)
    if count is None:
        raise node.fail(
            "M (input 0) is not a constant, so the shape of the results that it collects is not known; "
            "make M a constant() or an initializer"
        )
    return count


def _loop(rewrite: Rewrite, node: Node) -> None:
    op, body = node.op, node.op.attributes["body"]
    count, ends = _count(node), _may_stop(node, body)
    if count is None and not ends and not node.has_input(0):
        raise node.fail("the loop never ends: it has no number of iterations, and its condition stays true")
    if ends and len(body.outputs) > len(op.inputs) - 1:
        raise node.fail("a loop that may stop early cannot collect the results of its iterations")
    most = op.attributes.get(MOST_ITERATIONS) if count is None else count
    if most is None or most * len(body.ops) > MAX_INLINED_OPS:
        rewrite.ops.append(_while(op, body))
    else:
        _unroll(rewrite, op, most, ends=ends or count is None, computed=op.inputs[0] if count is None else "")


def _may_stop(node: Node, body: Graph) -> bool:
    """Whether the condition may end the loop."""
    start = node.values[1] if node.has_input(1) else np.array(True)
    return not _keeps_going(body) or start is None or not start.all()


def _keeps_going(body: Graph) -> bool:
    """Whether the condition that the body returns is constant True or the condition that it received."""
    id, producers = body.outputs[0], {output: op for op in body.ops for output in op.outputs}
    while id in producers and producers[id].type == "Identity":
        id = producers[id].inputs[0]
    return id == body.inputs[1] or (id in body.data and bool(body.data[id].all()))


def _unroll(rewrite: Rewrite, op: Op, count: int, *, ends: bool, computed: str = "") -> None:
    """The body ``count`` times; the condition or the ``computed`` number of iterations stops it earlier."""
    inliner, body, carried = Inliner(rewrite), op.attributes["body"], len(op.inputs) - 2
    states, scanned = list(op.inputs[2:]), []
    always_true = rewrite.constant(np.array(True))
    condition = rewrite.op("ReshapeTo", op.inputs[1], shape=[]) if op.inputs[1] else always_true
    number = body.tensor(body.inputs[0]).dtype.numpy
    trips = rewrite.op("ReshapeTo", rewrite.op("Cast", computed, to=INT32.onnx), shape=[]) if computed else ""
    for i in range(count):
        if trips:
            more = rewrite.op("Greater", trips, rewrite.constant(np.array(i, np.int32)))
            condition = rewrite.op("And", condition, more)
        guard = inliner.guard(condition) if ends else ""
        results = inliner.inline(body, [rewrite.constant(np.array(i, number)), condition, *states], guard)
        new = results[1 : 1 + carried]
        states = [inliner.choose(condition, a, b) for a, b in zip(new, states, strict=True)] if ends else new
        if ends:
            condition = rewrite.op("And", condition, rewrite.op("ReshapeTo", results[0], shape=[]))
        scanned.append(results[1 + carried :])
    rows = stacked(rewrite, scanned, [0] * (len(body.outputs) - 1 - carried)) if count else []
    inliner.name([*states, *(rows or [_no_rows(rewrite, body, id) for id in body.outputs[1 + carried :]])])


def _no_rows(rewrite: Rewrite, body: Graph, id: str) -> str:
    tensor = body.tensor(id)
    return rewrite.constant(np.zeros((0, *tensor.shape), tensor.dtype.numpy))


def _while(op: Op, body: Graph) -> Op:
    """A While; the tensors that the body captures become inputs after the states."""
    captured = [id for id in body.captured if body.tensors[id].role is not Role.CONSTANT]
    alone = replace(body.copy(), parent=None, inputs=[*body.inputs, *captured], captured=[])
    attributes = {**op.attributes, "body": alone, "states": len(op.inputs) - 2}
    return replace(op, type=WHILE, inputs=(*op.inputs, *captured), attributes=attributes, domain="")


def _while_shape(node: Node) -> OutputTypes:
    return _made(node, body_of(node, "body"), node.attribute("states", 0))


def _gradients(d: Adjoint) -> list[Value | None]:
    """Placeholders for the gradients, which ``check_gradients`` refuses if any op depends on them."""
    return [v.op(_GRADIENT) if v is not None and v.tensor.dtype.is_float else None for v in d.operands]


def check_gradients(graph: Graph) -> None:
    """Raise if an op of ``graph`` depends on the gradient of a While."""
    for op in graph.ops:
        if op.type == _GRADIENT:
            raise EmulatorError(
                f"'{op.inputs[0]}' has no gradient: it goes into a loop whose number of iterations is computed "
                "without a bound, or is very large; give it a smaller constant number, or a bound such as Min(n, 8) "
                "(its condition may end the loop earlier)"
            )


def _body_memory(node: Node) -> list[int]:
    plan: Any = node.attribute(BODY_MEMORY_PLAN, None)
    return [] if plan is None else [-(-size // 4) for size in plan.sizes.values()]


OPS = [
    inlined_op("Loop", (2, None), _loop_shape, _loop),
    # Inputs: (M, condition, states, captured tensors). Attributes: body, states, and PLAN once its memory is planned.
    OpDef(
        WHILE, (2, None), _while_shape, replaced_before_run, copy_cost, _gradients, _body_memory, takes_half=always
    ),
    OpDef(_GRADIENT, (1, 1), same, replaced_before_run, copy_cost),
]
