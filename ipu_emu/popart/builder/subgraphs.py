"""Subgraphs: the bodies of calls, branches, loops and scans, completed when an op uses them.

A subgraph may have inputs without a type, which get those of the operands, and inputs from the parent graph:

    Call              operands map to all inputs by position; those from the parent graph count
    If, Loop, Scan    operands map to the other inputs; those from the parent graph are found by name
"""

from __future__ import annotations

from dataclasses import replace

from ipu_emu.errors import EmulatorError, RefusedError
from ipu_emu.graph import Graph, Op, Role, Tensor
from ipu_emu.graph.body_inputs import CONCATENATES, Kind, body_input_kinds
from ipu_emu.graph.op import GRAPHCORE
from ipu_emu.ops import append, append_unchecked

#: The first opset in which PopART's scan concatenates the results of its iterations.
_CONCATENATING = 9


def completed(graph: Graph, op: Op) -> tuple[Op, EmulatorError | None]:
    """Return ``op`` of ``graph`` with complete bodies, and the error of the first invalid body, or None.

    Raise RefusedError if a call and its subgraph differ in the number of operands or results.
    """
    if not any(isinstance(value, Graph) for value in op.attributes.values()):
        return op, None
    if op.type == "Scan" and op.version >= _CONCATENATING:
        op = replace(op, attributes={**op.attributes, CONCATENATES: 1})
    operands = [graph.tensor(id) if id else None for id in op.inputs]
    kinds = body_input_kinds(op.domain, op.type, op.version, op.attributes, operands)
    attributes, fault = dict(op.attributes), None
    for name, body in op.attributes.items():
        if isinstance(body, Graph):
            attributes[name], error = _typed(_checked(op, body), graph, kinds)
            fault = fault or error
    return replace(op, attributes=attributes), fault


def _checked(op: Op, body: Graph) -> Graph:
    """Return ``body`` with the inputs that operands map to."""
    if op.type != "Call" or op.domain != GRAPHCORE:
        parent = body.parent
        return replace(body, inputs=[id for id in body.inputs if parent is None or not parent.knows(id)])
    for what, actual, wanted in (("input", op.inputs, body.inputs), ("output", op.outputs, body.outputs)):
        if len(actual) != len(wanted):
            raise RefusedError(
                f"For CallOp '{op.name}', number of {what}s ({len(actual)}) does not match that of the callee "
                f"subgraph ({len(wanted)})"
            )
    return body


def _typed(body: Graph, parent: Graph, kinds: list[Kind]) -> tuple[Graph, EmulatorError | None]:
    """Return ``body`` inferred again within ``parent``; its inputs get these ``kinds`` where they are known."""
    graph = Graph(parent=parent, name=body.name, metadata=dict(body.metadata), inputs=list(body.inputs))
    for index, id in enumerate(graph.inputs):
        known = body.tensor(id)
        graph.add(Tensor(id, *(kinds[index] if index < len(kinds) else (known.dtype, known.shape)), Role.COMPUTED))
    computed = {output for op in body.ops for output in op.outputs}
    for id in (id for id in body.data if id not in computed and id not in body.captured):
        graph.add(body.tensor(id), body.data[id])
    fault: EmulatorError | None = None
    for op in body.ops:
        try:
            inner, inner_fault = completed(graph, op)
            append(graph, inner)
        except EmulatorError as error:
            append_unchecked(graph, op)
            inner_fault = error
        fault = fault or inner_fault
    graph.outputs = list(body.outputs)
    for id in graph.outputs:
        graph.tensor(id)
    return graph, fault
