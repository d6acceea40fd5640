"""Call of a While: runs its body until the count or the condition ends the loop.

    body inputs: i, condition, states, captured        body outputs: condition, states, collected

The outputs of the op hold the states between two iterations, so that a body may swap them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import count
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ipu_emu.engine.replicas.buffers import Buffers
from ipu_emu.graph import Graph, Op, Role
from ipu_emu.ops import BoundOp, Call
from ipu_emu.ops.control.loop_and_while import BODY_MEMORY_PLAN
from ipu_emu.ops.core.call_chain import call_chain

__all__ = ["while_call"]

_Array = NDArray[Any]


def while_call(bound: BoundOp, *, bind: Callable[[Graph, Op, Buffers], list[Call]]) -> Call:
    """The call that runs a While; ``bind`` prepares the ops of its body."""
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
