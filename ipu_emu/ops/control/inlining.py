"""Inlining: copies the body of an op, such as a call or a loop, into the graph that contains the op."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from ipu_emu.errors import EmulatorError, RefusedError
from ipu_emu.graph import Graph, Op, Role
from ipu_emu.graph.graph import capturing
from ipu_emu.ops.core import Expand, Node, OpDef, OutputTypes, Rewrite, ShapeRule, copy_cost, expanded_op

#: The most ops that inlining may add.
MAX_INLINED_OPS = 20_000


def body_of(node: Node, name: str) -> Graph:
    """The subgraph ``name`` of an op."""
    body = node.attribute(name, None)
    if not isinstance(body, Graph):
        raise node.fail(f"the attribute {name} with its subgraph is missing")
    return body


def body_output_types(body: Graph) -> OutputTypes:
    """Type and shape of each output of a subgraph."""
    return [(body.tensor(id).dtype, body.tensor(id).shape) for id in body.outputs]


def check_inputs(node: Node, body: Graph, count: int) -> None:
    """Raise EmulatorError if the subgraph does not have ``count`` inputs."""
    if len(body.inputs) != count:
        raise node.fail(f"the subgraph has {len(body.inputs)} inputs, but the op passes {count}")


def check_call(node: Node, body: Graph) -> None:
    """Raise RefusedError unless a call has as many operands and results as the subgraph; text as in PopART."""
    for what, passed, wanted in (
        ("input", len(node.inputs), len(body.inputs)),
        ("output", len(node.op.outputs), len(body.outputs)),
    ):
        if passed != wanted:
            raise RefusedError(
                f"For CallOp '{node.op.name}', number of {what}s ({passed}) does not match that of the callee "
                f"subgraph ({wanted})"
            )


class Inliner:
    """Copies the bodies of one op into the graph that contains the op."""

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
        if len(self.rewrite.ops) > MAX_INLINED_OPS:
            label = self.rewrite.original.label
            raise EmulatorError(f"Op {label}: more than {MAX_INLINED_OPS} ops after inlining; use fewer iterations")
        return [names[id] for id in body.outputs]

    def _renamed(self, op: Op, names: Mapping[str, str], guard: str) -> Op:
        return replace(
            op,
            inputs=tuple(names[id] if id else "" for id in op.inputs),
            outputs=tuple(names[id] if id else "" for id in op.outputs),
            attributes={**self.rewrite.annotations, **capturing(op.attributes, names)},
            phase=self.rewrite.original.phase,
            guard=guard or self.rewrite.original.guard,
        )

    def guard(self, condition: str) -> str:
        """The guard of ops that run where ``condition`` and the guard of the inlined op are both true."""
        outer = self.rewrite.original.guard
        if not outer:
            return condition
        both = self.rewrite.op("And", outer, condition)
        self.rewrite.ops[-1] = replace(self.rewrite.ops[-1], guard="")  # false if the outer guard is false
        return both

    def choose(self, condition: str, first: str, second: str) -> str:
        return self.rewrite.op("Where", condition, first, second)

    def name(self, ids: Sequence[str]) -> None:
        """Copy results to the outputs of the op."""
        for id, output in zip(ids, self.rewrite.original.outputs, strict=True):
            self.rewrite.op("Identity", id, into=output)


def stacked(rewrite: Rewrite, rows: list[list[str]], axes: Sequence[int]) -> list[str]:
    """The results of all iterations along a new axis."""
    return [
        rewrite.op("Concat", *(rewrite.op("Unsqueeze", id, axes=[axis]) for id in column), axis=axis)
        for axis, column in zip(axes, zip(*rows, strict=True), strict=True)
    ]


def inlined_op(
    type: str, inputs: tuple[int, int | None], shape: ShapeRule, expand: Expand, domain: str = ""
) -> OpDef:
    """The entry of an op that is replaced by the ops of its bodies."""
    return expanded_op(type, inputs, shape, expand, copy_cost, domain=domain)
