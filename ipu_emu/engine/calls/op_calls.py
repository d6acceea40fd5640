"""Bind: turn an op into calls that already hold the arrays of one replica.

FLOAT          kernel
FLOAT16        widen operands -> kernel on their float32 images -> round results
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gcl.kernels.half import float_to_half, half_to_float
from ipu_emu.engine.calls.floating_point_checks import watched
from ipu_emu.engine.calls.kernel_calls import direct
from ipu_emu.engine.calls.while_call import loop
from ipu_emu.engine.replicas.buffers import Buffers
from ipu_emu.graph import Graph, Op
from ipu_emu.ops import TABLE, BoundOp, Call
from ipu_emu.ops.control.loop_and_while import WHILE
from ipu_emu.ops.core.call_chain import call_chain
from ipu_emu.ops.core.kernel_helpers import storage
from ipu_emu.program.memory_plan import node_in

__all__ = ["bind"]


def bind(graph: Graph, op: Op, buffers: Buffers, turn: int = 0, *, watch: bool = False) -> list[Call]:
    """The calls that run ``op`` on one replica in micro-batch ``turn``; none for a view.

    With ``watch`` they raise where results are no finite numbers any more.
    """
    if op.outputs[0] in buffers.plan.views:
        return []
    node = node_in(graph, op)
    workspace, images = buffers.scratch(node)
    stored = {id: buffers.at(id, turn) for id in (*op.inputs, *op.outputs) if id}
    arrays = stored | images
    bound = BoundOp(
        node,
        tuple(arrays[id] if id else None for id in op.inputs),
        tuple(arrays[id] for id in op.outputs),
        tuple(workspace),
    )
    kernel = partial(loop, bind=partial(bind, watch=watch)) if op.type == WHILE else TABLE[op].kernel
    assert kernel is not None
    read = [id for id in dict.fromkeys(op.inputs) if id in images]
    written = [id for id in dict.fromkeys(op.outputs) if id in images]
    made = [
        *(_widen(stored[id], images[id]) for id in read),
        kernel(bound),
        *(_round(images[id], stored[id]) for id in written),
    ]
    steps = [direct(step) for step in made]
    if watch:
        operands = ([stored[id] for id in ids if id] for ids in (op.inputs, op.outputs))
        steps = [watched(f"Op {op.type} ({', '.join(op.outputs)})", call_chain(*steps), *operands)]
    return [_guarded(buffers.at(op.guard, turn), call_chain(*steps))] if op.guard else steps


def _guarded(guard: NDArray[Any], step: Call) -> Call:
    """Run ``step`` where ``guard`` is true."""

    def run() -> None:
        if guard:
            step()

    return run


def _widen(half: NDArray[Any], image: NDArray[Any]) -> Call:
    return partial(half_to_float, storage(half).view(np.uint16), storage(image))


def _round(image: NDArray[Any], half: NDArray[Any]) -> Call:
    return partial(float_to_half, storage(image), storage(half).view(np.uint16))
