"""Input staging: the host writes inputs to Streaming Memory ahead of the micro-batches that use them.

    y = Gemm(x, w)                     x' = RemoteLoad(x)        x: several places in Streaming Memory
    ...                         ->     y = Gemm(x', w)
    dw = Gemm(x, dy)                   ...
                                       x'' = RemoteLoad(x)
                                       dw = Gemm(x'', dy)

An input is loaded once for each pass, to the IPU that reads it first. Copies change no bit.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from ipu_emu.graph import Graph, Op, Place, Role, StepPhase
from ipu_emu.ops.communication.memory_copy_ops import REMOTE_LOAD

__all__ = ["stage_inputs"]


def stage_inputs(graph: Graph, ids: Collection[str]) -> None:
    """Move the inputs ``ids`` that an op reads to Streaming Memory."""
    if not ids:
        return
    homes: dict[str, Place] = {}
    loaded: dict[tuple[str, StepPhase], str] = {}
    ops, graph.ops = graph.ops, []
    for op in ops:
        for id in dict.fromkeys(op.reads):
            if id in ids and (id, op.phase) not in loaded:
                place = homes.setdefault(id, op.place)
                loaded[id, op.phase] = _near(graph, id)
                graph.ops.append(Op(REMOTE_LOAD, (id,), (loaded[id, op.phase],), phase=op.phase, place=place))
        inputs = tuple(loaded.get((id, op.phase), id) for id in op.inputs)
        graph.ops.append(replace(op, inputs=inputs, guard=loaded.get((op.guard, op.phase), op.guard)))
    for id in homes:
        graph.tensors[id] = replace(graph.tensor(id), off_chip=True)


def _near(graph: Graph, id: str) -> str:
    tensor = graph.tensor(id)
    return graph.add(replace(tensor, id=graph.unused(f"Loaded___{id}"), role=Role.COMPUTED)).id
