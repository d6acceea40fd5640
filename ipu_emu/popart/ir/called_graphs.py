"""Called graphs: the calls, branches and loops of a training step, and their gradients, as ops with graphs.

The compiler copies the bodies into the graph of a step, each op of the k-th copy under ``<output>/body/<k>/``. Here
each copy becomes one op again, and its gradient another:

    Exp(x) -> Call:0/body/0/Exp:0 -> Call:0   ...   Mul -> Gradient___x
    Call(x) -> Call:0                         ...   CallGrad -> Gradient___x

For a loop, the first copy is shown.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ipu_emu.compiler.rewriting.reserved_prefixes import GRADIENT
from ipu_emu.graph import Graph, Op, StepPhase
from ipu_emu.popart.ir.ir_graph import IrGraph, IrOp

CONTROL = frozenset({"Call", "If", "Loop", "Scan"})
#: The number of the copy that is shown, if it is not the first.
_COPIES = {"else_branch": 1}
#: The graph of each call, branch and loop, by name.
Bodies = dict[str, tuple[IrGraph, Sequence[IrOp]]]


def called_graphs(graph: IrGraph, model: Graph) -> Bodies:
    """Put the calls, branches and loops of ``model`` in place of the ops that were copied from their bodies."""
    bodies: Bodies = {}
    for op in model.ops:
        if op.type in CONTROL:
            graph.tensors = {id: model.tensors[id] for id in op.inputs if id in model.tensors} | graph.tensors
            inside = _inside(op)
            copied = [
                node for node in graph.ops if node.phase is StepPhase.FORWARD and any(map(inside, node.outputs))
            ]
            if copied:
                _replace(graph, op, copied, bodies)
    return bodies


def _inside(op: Op) -> Callable[[str], bool]:
    """Return a test whether a tensor replaces ``op``: it is one of its results, or in or around a copied body."""
    pattern = re.compile(rf"{re.escape(op.outputs[0])}/(body/\d+/.*|\d+/\w+(/\d+)?)")
    return lambda id: id in op.outputs or pattern.fullmatch(id) is not None


def _replace(graph: IrGraph, op: Op, copied: Sequence[IrOp], known: Bodies) -> None:
    bodies = [name for name, value in op.attributes.items() if isinstance(value, Graph)]
    inside = _inside(op)
    touched = [
        index
        for index, node in enumerate(graph.ops)
        if node.phase is StepPhase.BACKWARD
        and any(_is_gradient_of(id, inside) for id in (*node.inputs, *node.outputs))
    ]
    gradient = graph.ops[touched[0] : touched[-1] + 1] if touched else []
    if gradient:
        names = {name: _body(graph, op, gradient, name, known) for name in bodies}
        _put(graph, gradient, f"{op.type}Grad", op.name, names)
    plain = {key: value for key, value in op.attributes.items() if key not in bodies and not key.startswith("__")}
    names = {name: _body(graph, op, copied, name, known) for name in bodies}
    call = _put(graph, copied, op.type, op.name, plain | names)
    call.inputs, call.outputs = list(op.inputs), list(op.outputs)


def _is_gradient_of(id: str, inside: Callable[[str], bool]) -> bool:
    """Whether ``id`` is the gradient of a tensor inside a body; the gradients of its results are outside."""
    return id.startswith(GRADIENT) and "/body/" in id and inside(id.removeprefix(GRADIENT))


def _put(graph: IrGraph, ops: Sequence[IrOp], type: str, name: str, attributes: Mapping[str, Any]) -> IrOp:
    """Replace ``ops`` by one op at the position of the last; it has their external inputs and outputs."""
    inside, results = {id(op) for op in ops}, {output for op in ops for output in op.outputs}
    rest = [op for op in graph.ops if id(op) not in inside]
    wanted = {input for op in rest for input in op.inputs} | graph.anchors
    read = dict.fromkeys(input for op in ops for input in op.inputs if input and input not in results)
    call = replace(ops[0].like(type, list(read), [output for output in results if output in wanted]), name=name)
    call.attributes = dict(attributes)
    call.outputs.sort()
    last = max(index for index, op in enumerate(graph.ops) if id(op) in inside)
    graph.ops[last] = call
    graph.ops = [op for op in graph.ops if id(op) not in inside]
    return call


def _body(graph: IrGraph, op: Op, ops: Sequence[IrOp], name: str, known: Bodies) -> str:
    """Store the ops of one copy as a graph, with the user's names of tensors; return the name of the graph."""
    prefix = f"{op.outputs[0]}/body/{_COPIES.get(name, 0)}/"
    body = op.attributes[name]
    own = {outer: inner for outer, inner in zip(op.inputs, body.inputs, strict=False) if op.type == "Call"}
    chosen = [node for node in ops if op.type == "Call" or _touches(node, prefix)]
    names = {
        id: own.get(id) or id.replace(prefix, "", 1) for node in chosen for id in (*node.inputs, *node.outputs) if id
    }
    shown = IrGraph(body, [])
    shown.tensors = graph.tensors | {new: replace(graph.tensors[old], id=new) for old, new in names.items()}
    shown.ops = [
        replace(
            node,
            inputs=[names.get(id, id) for id in node.inputs],
            outputs=[names.get(id, id) for id in node.outputs],
            context="Subgraph",
        )
        for node in chosen
    ]
    shown.without(
        {node.outputs[0]: node.inputs[0] for node in shown.ops if node.type == "Identity" and node.source is not None}
    )
    title = f"{op.type}{'Grad' if ops[0].phase is StepPhase.BACKWARD else ''}_{name}"
    same = (
        id
        for id, (_, listed) in known.items()
        if id.startswith(f"{title}(") and _listing(listed) == _listing(shown.ops)
    )
    key = next(same, None)
    if key is None:
        key = f"{title}({len(known)})"
        known[key] = (shown, shown.ops)
    return key


def _touches(op: IrOp, prefix: str) -> bool:
    return any(id.removeprefix(GRADIENT).startswith(prefix) for id in (*op.inputs, *op.outputs))


def _listing(ops: Sequence[IrOp]) -> list[tuple[str, list[str]]]:
    return [(op.type, op.outputs) for op in ops]
