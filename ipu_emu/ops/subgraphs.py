"""Subgraphs: call, if, loop and scan, written out as the ops of their bodies.

    Call    the body
    If      both branches, each with a guard so that one runs, and a choice between their results; the branch alone
            where the condition is known
    Loop    the body once for each iteration; the number of iterations must be known
    Scan    the body once for each slice

In a loop that may stop early each iteration has a guard, and a choice that keeps the state from then on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ipu_emu.errors import EmulatorError
from ipu_emu.graph import Graph, Op, Role
from ipu_emu.graph.op import GRAPHCORE
from ipu_emu.ops.cost import moves
from ipu_emu.ops.node import Made, Node, inputs_of
from ipu_emu.ops.registry import Expand, OpDef, unreached
from ipu_emu.ops.rewrite import Rewrite

__all__ = ["OPS"]

#: More ops than this are not written out.
_MOST_OPS = 20_000


def _body(node: Node, name: str) -> Graph:
    body = node.attribute(name, None)
    if not isinstance(body, Graph):
        raise node.fail(f"it has no graph {name}; give it a subgraph")
    return body


def _made(body: Graph) -> Made:
    return [(body.tensor(id).dtype, body.tensor(id).shape) for id in body.outputs]


def _check(node: Node, body: Graph, given: int) -> None:
    if len(body.inputs) != given:
        raise node.fail(f"the subgraph has {len(body.inputs)} inputs, {given} were given")


class _Inliner:
    """Copies bodies into the graph of the op that has them."""

    def __init__(self, rewrite: Rewrite) -> None:
        self.rewrite = rewrite
        self.graph = rewrite.graph
        self.copies = 0

    def inline(self, body: Graph, inputs: Sequence[str], guard: str = "") -> list[str]:
        """Add the ops of ``body``, which run where ``guard`` is true, and return the ids of its outputs."""
        prefix = f"{self.rewrite.original.outputs[0]}/body/{self.copies}"
        self.copies += 1
        names = dict(zip(body.inputs, inputs, strict=True)) | {id: id for id in body.captured}
        for id, tensor in body.tensors.items():
            if id not in names:
                names[id] = f"{prefix}/{id}"
                role = Role.CONSTANT if id in body.data else tensor.role
                self.graph.add(replace(tensor, id=names[id], role=role), body.data.get(id))
        self.rewrite.ops += [self._renamed(op, names, guard) for op in body.ops]
        if len(self.rewrite.ops) > _MOST_OPS:
            label = self.rewrite.original.label
            raise EmulatorError(f"Op {label}: more than {_MOST_OPS} ops when written out; loop fewer times")
        return [names[id] for id in body.outputs]

    def _renamed(self, op: Op, names: Mapping[str, str], guard: str) -> Op:
        return replace(
            op,
            inputs=tuple(names[id] if id else "" for id in op.inputs),
            outputs=tuple(names[id] if id else "" for id in op.outputs),
            attributes={**self.rewrite.annotations, **op.attributes},
            phase=self.rewrite.original.phase,
            guard=guard or self.rewrite.original.guard,
        )

    def guard(self, condition: str) -> str:
        """The guard of what runs where ``condition`` is true, inside of what has a guard itself."""
        outer = self.rewrite.original.guard
        if not outer:
            return condition
        both = self.rewrite.op("And", outer, condition)
        self.rewrite.ops[-1] = replace(self.rewrite.ops[-1], guard="")  # false where the outer one is
        return both

    def choose(self, condition: str, first: str, second: str) -> str:
        return self.rewrite.op("Where", condition, first, second)

    def name(self, ids: Sequence[str]) -> list[Op]:
        """Give results the names of the outputs of the op."""
        for id, output in zip(ids, self.rewrite.original.outputs, strict=True):
            self.rewrite.op("Identity", id, into=output)
        return self.rewrite.ops


# Call and if


def _call_shape(node: Node) -> Made:
    body = _body(node, "callee")
    _check(node, body, len(node.inputs))
    return _made(body)


def _call(graph: Graph, op: Op) -> list[Op]:
    inliner = _Inliner(Rewrite(graph, op))
    return inliner.name(inliner.inline(op.attributes["callee"], op.inputs))


def _if_shape(node: Node) -> Made:
    first, second = _made(_body(node, "then_branch")), _made(_body(node, "else_branch"))
    known = node.values[0] if node.values else None
    if known is not None and known.size == 1:
        return first if known.all() else second
    if first != second:
        raise node.fail(f"the branches make {_text(first)} and {_text(second)}; let them make the same")
    if node.input(0).nelms != 1:
        raise node.fail(f"the condition must be one BOOL, found {node.input(0)}")
    return first


def _text(made: Made) -> str:
    return ", ".join(f"{dtype}{list(shape)}" for dtype, shape in made)


def _if(graph: Graph, op: Op) -> list[Op]:
    inliner, known = _Inliner(Rewrite(graph, op)), inputs_of(graph, op).values[0]
    if known is not None:
        return inliner.name(inliner.inline(op.attributes["then_branch" if known.all() else "else_branch"], ()))
    condition = inliner.rewrite.op("ReshapeTo", op.inputs[0], shape=[])
    first = inliner.inline(op.attributes["then_branch"], (), inliner.guard(condition))
    second = inliner.inline(op.attributes["else_branch"], (), inliner.guard(inliner.rewrite.op("Not", condition)))
    return inliner.name([inliner.choose(condition, a, b) for a, b in zip(first, second, strict=True)])


# Loop


def _count(node: Node) -> int:
    count = node.given("M", 0)
    if count is None:
        raise node.fail("it has no number of iterations; give one that is large enough, the condition can end it")
    return max(int(count[0] if isinstance(count, list) else count), 0)


def _loop_shape(node: Node) -> Made:
    body, carried = _body(node, "body"), len(node.inputs) - 2
    _check(node, body, len(node.inputs))
    made = _made(body)[1:]
    for index, (dtype, shape) in enumerate(made[:carried]):
        start = node.input(index + 2)
        if (start.dtype, start.shape) != (dtype, shape):
            raise node.fail(f"state {start} becomes {dtype}{list(shape)}; it must keep its type and shape")
    return made[:carried] + [(dtype, (_count(node), *shape)) for dtype, shape in made[carried:]]


def _loop(graph: Graph, op: Op) -> list[Op]:
    node, inliner = inputs_of(graph, op), _Inliner(Rewrite(graph, op))
    rewrite, body, carried = inliner.rewrite, op.attributes["body"], len(op.inputs) - 2
    states, scanned = list(op.inputs[2:]), []
    always = rewrite.constant(np.array(True))
    condition = rewrite.op("ReshapeTo", op.inputs[1], shape=[]) if node.has_input(1) else always
    given = node.values[1] if node.has_input(1) else np.array(True)
    stops = not _keeps_going(body) or given is None or not given.all()
    if stops and len(body.outputs) > 1 + carried:
        raise node.fail("a loop that may stop early cannot collect the results of its iterations")
    for i in range(_count(node)):
        guard = inliner.guard(condition) if stops else ""
        made = inliner.inline(body, [rewrite.constant(np.array(i, np.int64)), condition, *states], guard)
        new = made[1 : 1 + carried]
        states = [inliner.choose(condition, a, b) for a, b in zip(new, states, strict=True)] if stops else new
        if stops:
            condition = rewrite.op("And", condition, rewrite.op("ReshapeTo", made[0], shape=[]))
        scanned.append(made[1 + carried :])
    return inliner.name([*states, *_stacked(rewrite, scanned, [0] * (len(body.outputs) - 1 - carried))])


def _keeps_going(body: Graph) -> bool:
    """Whether the condition that a body makes is true, or that which it was given."""
    id, producers = body.outputs[0], {output: op for op in body.ops for output in op.outputs}
    while id in producers and producers[id].type == "Identity":
        id = producers[id].inputs[0]
    return id == body.inputs[1] or (id in body.data and bool(body.data[id].all()))


def _stacked(rewrite: Rewrite, rows: list[list[str]], axes: Sequence[int]) -> list[str]:
    """The results of all iterations along a new axis."""
    return [
        rewrite.op("Concat", *(rewrite.op("Unsqueeze", id, axes=[axis]) for id in column), axis=axis)
        for axis, column in zip(axes, zip(*rows, strict=True), strict=True)
    ]


# Scan


def _scan_axes(node: Node, name: str, count: int) -> list[int]:
    return list(node.attribute(name, [])) or [0] * count


def _scan_shape(node: Node) -> Made:
    body, scanned = _body(node, "body"), int(node.attribute("num_scan_inputs", 0))
    states = len(node.inputs) - scanned
    _check(node, body, len(node.inputs))
    if node.op.version < 9:
        raise node.fail("scan of opset 8 has a batch axis, which is not supported; use opset 9")
    length = _scan_length(node, states, scanned)
    made = _made(body)
    axes = _scan_axes(node, "scan_output_axes", len(made) - states)
    outputs = [
        (dtype, _with_axis(shape, axis, length)) for (dtype, shape), axis in zip(made[states:], axes, strict=True)
    ]
    return made[:states] + outputs


def _with_axis(shape: tuple[int, ...], axis: int, size: int) -> tuple[int, ...]:
    place = axis + len(shape) + 1 if axis < 0 else axis
    return (*shape[:place], size, *shape[place:])


def _scan_length(node: Node, states: int, scanned: int) -> int:
    axes = _scan_axes(node, "scan_input_axes", scanned)
    lengths = {node.input(states + i).shape[axis] for i, axis in enumerate(axes)}
    if len(lengths) != 1:
        raise node.fail(f"the scanned inputs have lengths {sorted(lengths)}; they must be equal")
    return lengths.pop()


def _scan(graph: Graph, op: Op) -> list[Op]:
    node, inliner = inputs_of(graph, op), _Inliner(Rewrite(graph, op))
    rewrite, body, scanned = inliner.rewrite, op.attributes["body"], int(node.attribute("num_scan_inputs", 0))
    count = len(op.inputs) - scanned
    states, rows = list(op.inputs[:count]), []
    axes = _scan_axes(node, "scan_input_axes", scanned)
    backwards = _scan_axes(node, "scan_input_directions", scanned)
    length = _scan_length(node, count, scanned)
    for i in range(length):
        slices = [
            rewrite.op("Gather", id, rewrite.constant(np.array(length - 1 - i if back else i)), axis=axis)
            for id, axis, back in zip(op.inputs[count:], axes, backwards, strict=True)
        ]
        made = inliner.inline(body, [*states, *slices])
        states = made[:count]
        rows.append(made[count:])
    outputs = len(body.outputs) - count
    turned = _scan_axes(node, "scan_output_directions", outputs)
    columns = [column[::-1] if back else column for column, back in zip(zip(*rows, strict=True), turned, strict=True)]
    again = [list(row) for row in zip(*columns, strict=True)]
    places = [
        axis + len(body.tensor(id).shape) + 1 if axis < 0 else axis
        for axis, id in zip(_scan_axes(node, "scan_output_axes", outputs), body.outputs[count:], strict=True)
    ]
    return inliner.name([*states, *_stacked(rewrite, again, places)])


def _entry(
    type: str, inputs: tuple[int, int | None], shape: Any, expand: Expand, domain: str = "", **more: Any
) -> OpDef:
    return OpDef(type, inputs, shape, unreached, moves, expand=expand, domain=domain, **more)


OPS = [
    _entry("Call", (0, None), _call_shape, _call, GRAPHCORE),
    _entry("If", (1, 1), _if_shape, _if),
    _entry("Loop", (2, None), _loop_shape, _loop),
    _entry("Scan", (1, None), _scan_shape, _scan),
]
