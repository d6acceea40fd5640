"""Loop bodies: the memory of the body of a While, planned like that of a program.

The regions of a body are part of the scratch of its op. The memory of the body's inputs and outputs is never reused,
because the op writes and reads them from outside.
"""

from __future__ import annotations

from dataclasses import replace

from ipu_emu.compiler.fusion.elementwise_fusion import fuse
from ipu_emu.compiler.memory.planner import plan_memory
from ipu_emu.graph import Graph, Op
from ipu_emu.ops.control.loop_and_while import BODY_MEMORY_PLAN, WHILE
from ipu_emu.program.instructions import Compute
from ipu_emu.program.storage_order import batch_innermost

__all__ = ["plan_bodies"]


def plan_bodies(graph: Graph, *, fused: bool) -> None:
    """Give every While of ``graph`` the plan of its body, inner loops first."""
    graph.ops = [_planned(op, fused) if op.type == WHILE else op for op in graph.ops]


def _planned(op: Op, fused: bool) -> Op:
    body: Graph = op.attributes["body"].copy()
    if fused:
        fuse(body, body.outputs)
    plan_bodies(body, fused=fused)
    program = [Compute(inner) for inner in body.ops]
    kept = list(dict.fromkeys([*body.inputs, *body.outputs]))
    plan = plan_memory(body, program, batch_innermost=batch_innermost(body), buckets={}, kept=kept)
    return replace(op, attributes={**op.attributes, "body": body, BODY_MEMORY_PLAN: plan})
