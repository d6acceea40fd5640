"""Tensor places: the IPU of each tensor and of each weight update, derived from the places of the ops.

A tensor is where it is made. A tensor that no op makes is where it is read first: in the lowest stage, by the first
op.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from ipu_emu.graph import Graph, Op, Place, StepPhase


def tensor_places(graph: Graph, stage_of: Callable[[Op], int] = lambda op: op.place.stage) -> dict[str, Place]:
    """Return the place of each tensor by id."""
    produced = {output: op.place for op in graph.ops for output in op.outputs}
    read: dict[str, Op] = {}
    for op in graph.ops:
        for id in op.inputs:
            first = read.setdefault(id, op)
            if op.phase is not StepPhase.UPDATE and stage_of(op) < stage_of(first):
                read[id] = op
    return dict.fromkeys(graph.tensors, Place()) | {id: op.place for id, op in read.items() if id} | produced


def place_updates(graph: Graph, totals: Mapping[str, str]) -> None:
    """Place every op of the update phase on the IPU of the variable or gradient that it changes.

    ``totals`` maps the sum of a gradient over micro-batches to the gradient of one. A variable that an update reads
    first, such as an optimiser state, lives where that op is placed.
    """
    places = tensor_places(graph)
    places |= {total: places[part] for total, part in totals.items()}
    known = {id for op in graph.ops if op.phase is not StepPhase.UPDATE for id in (*op.inputs, *op.outputs)} | {
        *totals
    }
    for index, op in enumerate(graph.ops):
        if op.phase is StepPhase.UPDATE:
            place = places[op.inputs[0]]
            graph.ops[index] = replace(op, place=place)
            places.update(dict.fromkeys([*op.outputs, *(id for id in op.inputs if id not in known)], place))
            known.update(op.inputs, op.outputs)
