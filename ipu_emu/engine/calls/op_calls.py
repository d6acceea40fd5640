"""Calls of an op: its kernel, prepared with the arrays of one replica.

    FLOAT          kernel
    FLOAT16        widen operands -> kernel on their float32 copies -> round results

Compiled kernels are called without a check of the types of their arguments, which never change. A step of a
perceptron of 16 x 16 layers, 36 instructions: 2.3 us of CPU time per instruction with that check, 1.8 us without.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import count
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gcl.kernels.jit import bound
from ipu_emu.engine.calls.floating_point_checks import with_floating_point_check
from ipu_emu.engine.replicas.buffers import Buffers
from ipu_emu.graph import Graph, Op, Role
from ipu_emu.ops import TABLE, BoundOp, Call
from ipu_emu.ops.codegen.compiled_call import relocation
from ipu_emu.ops.codegen.held_copies import HeldCopies
from ipu_emu.ops.control.loop_and_while import BODY_MEMORY_PLAN, WHILE
from ipu_emu.ops.core import CallChain, Kernel, call_chain
from ipu_emu.ops.core.kernel_helpers import storage
from ipu_emu.ops.elementwise.fused_elementwise import fused_store
from ipu_emu.program.memory_plan import node_in


def op_calls(
    graph: Graph,
    op: Op,
    buffers: Buffers,
    micro_batch: int = 0,
    *,
    watch: bool = False,
    held: HeldCopies | None = None,
    then: Op | None = None,
) -> list[Call]:
    """The calls that run ``op`` on one replica in ``micro_batch``; none for a view.

    With ``watch`` they raise an error if a result is infinite or NaN and no operand was. They read copies of inputs
    that are ``held``. If there is an element-wise op ``then``, they store its result instead of that of ``op``.
    """
    if op.outputs[0] in buffers.plan.views:
        return []
    node = node_in(graph, op)
    workspace, images = buffers.scratch(node)
    stored = {id: buffers.at(id, micro_batch) for id in (*op.inputs, *op.outputs) if id}
    if then is not None:
        stored[op.outputs[0]] = buffers.at(then.outputs[0], micro_batch)
    arrays = stored | images
    held = held or HeldCopies()
    # No copies are held of float32 images, which every step writes.
    constants = {i: buffers.held[id] for i, id in enumerate(op.inputs) if id in held.ids and id not in images}
    bound_op = BoundOp(
        node,
        tuple(constants.get(i, arrays[id]) if id else None for i, id in enumerate(op.inputs)),
        tuple(arrays[id] for id in op.outputs),
        tuple(workspace),
        held,
        frozenset(constants),
    )
    kernel = partial(_while_call, bind=partial(op_calls, watch=watch)) if op.type == WHILE else TABLE[op].kernel
    assert kernel is not None
    if then is not None:
        return _with_function(graph, bound_op, kernel, then, buffers, micro_batch)
    read = [id for id in dict.fromkeys(op.inputs) if id in images]
    written = [id for id in dict.fromkeys(op.outputs) if id in images]
    calls: list[Call] = [
        *(relocation(storage(stored[id]), storage(images[id])) for id in read),
        kernel(bound_op),
        *(relocation(storage(images[id]), storage(stored[id])) for id in written),
    ]
    steps = [_without_dispatch(step) for step in calls]
    if watch:
        operands = ([stored[id] for id in ids if id] for ids in (op.inputs, op.outputs))
        steps = [with_floating_point_check(f"Op {op.type} ({', '.join(op.outputs)})", call_chain(*steps), *operands)]
    return [_guarded(buffers.at(op.guard, micro_batch), call_chain(*steps))] if op.guard else steps


def _with_function(
    graph: Graph, bound_op: BoundOp, kernel: Kernel, then: Op, buffers: Buffers, micro_batch: int
) -> list[Call]:
    """Store the function ``then`` of the results of an op in one pass, or in place after it."""
    node, result = node_in(graph, then), bound_op.node.op.outputs[0]
    output = bound_op.outputs[0]
    inputs = tuple(output if id == result else buffers.at(id, micro_batch) for id in then.inputs)
    function = BoundOp(node, inputs, (output,), ())
    store = fused_store(function, [id == result for id in then.inputs])
    storing = TABLE[bound_op.node.op].fused_store
    step = storing(bound_op, store) if store and storing else None
    if step is not None:
        return [_without_dispatch(step)]
    after = TABLE[then].kernel
    assert after is not None
    return [_without_dispatch(kernel(bound_op)), _without_dispatch(after(function))]


def _without_dispatch(step: Call) -> Call:
    """``step`` with its numba kernels compiled, or loaded from disk, for their arguments; other calls unchanged."""
    if isinstance(step, CallChain):
        return call_chain(*map(_without_dispatch, step.steps))
    if not isinstance(step, partial) or step.keywords:
        return step
    kernel: Any = step.func
    if not hasattr(kernel, "nopython_signatures"):
        return step
    call: Call = bound(kernel, *step.args)
    return call


def _guarded(guard: NDArray[Any], step: Call) -> Call:
    """Run ``step`` if ``guard`` is true."""

    def run() -> None:
        if guard:
            step()

    return run


_Array = NDArray[Any]


def _while_call(bound: BoundOp, *, bind: Callable[[Graph, Op, Buffers], list[Call]]) -> Call:
    """The call that runs a While; ``bind`` prepares the ops of its body.

        body inputs: i, condition, states, captured        body outputs: condition, states, collected

    The outputs of the op hold the states between two iterations, so that a body may swap them.
    """
    body: Graph = bound.node.op.attributes["body"]
    plan, states = bound.node.op.attributes[BODY_MEMORY_PLAN], int(bound.node.op.attributes["states"])
    buffers = Buffers(plan, dict(zip(plan.sizes, bound.scratch, strict=True)))
    arrays = buffers.arrays
    number, going, *inputs = (arrays[id] for id in body.inputs)
    again, *results = (arrays[id] for id in body.outputs)
    start: list[Call] = [
        partial(np.copyto, arrays[t.id], body.data[t.id]) for t in body.with_role(Role.CONSTANT) if t.id in arrays
    ]
    start += _copies(bound.inputs[2:], inputs) + _copies(inputs[:states], bound.outputs[:states])
    iteration = call_chain(*(step for op in body.ops for step in bind(body, op, buffers)))
    keep, resume = (
        call_chain(*copies)
        for copies in (_copies(results, bound.outputs[:states]), _copies(bound.outputs, inputs[:states]))
    )
    collected = list(zip(bound.outputs[states:], results[states:], strict=True))
    most, condition = (bound.inputs[index] for index in (0, 1))

    def run() -> None:
        for step in start:
            step()
        going[()] = condition is None or condition.all()
        for i in count() if most is None else range(int(most.reshape(-1)[0])):
            if not going:
                break
            number[()] = i
            iteration()
            keep()
            for rows, row in collected:
                rows[i] = row
            going[()] = again.all()
            resume()

    return run


def _copies(sources: Any, targets: Any) -> list[Call]:
    """Copies from each source to its target; surplus ones are ignored."""
    return [partial(np.copyto, target, source) for source, target in zip(sources, targets, strict=False)]
