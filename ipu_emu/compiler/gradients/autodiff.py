"""Automatic differentiation: appends the ops of the backward pass, by one rule per op, last op first.

    forward     x -> Conv -> y -> Relu -> z -> ... -> loss
    backward    Gradient___x <- ConvDataGrad <- Gradient___y <- ReluGrad <- Gradient___z <- ... <- seed

The gradient of tensor t has the id ``Gradient___t``. Where t feeds several ops, their contributions are added in the
reverse order of the ops, so the sum does not depend on anything else. An op of the backward pass has the place of the
forward op that it differentiates. A sum of contributions has the place of the op that made t, or of its first reader,
unless all contributions are made in one other place: that IPU then copies one gradient instead of each contribution.
The gradient ops of an op with a guard have the same guard; if the op did not run, tensors without that guard get a
contribution of 0 from it.

The gradient of a FLOAT16 loss may be a FLOAT, as the loss scaling may be above the range of FLOAT16. Sums keep it,
and losses compute with it, so that only the gradients of single elements must be in the range of FLOAT16.
"""

from __future__ import annotations

from ipu_emu.compiler.placement.tensor_places import tensor_places
from ipu_emu.compiler.rewriting.op_writer import OpWriter
from ipu_emu.compiler.rewriting.reserved_prefixes import GRADIENT
from ipu_emu.errors import EmulatorError
from ipu_emu.graph import Graph, Op, Place, Role, StepPhase, Tensor
from ipu_emu.ops import TABLE, Adjoint, Value, node_of

#: Ops whose results cannot be part of a loss, because they are not numbers.
_WITHOUT_GRADIENT = (
    *("And", "BitwiseAnd", "BitwiseNot", "BitwiseOr", "BitwiseXnor", "BitwiseXor", "Equal", "Greater", "Less"),
    *("GreaterOrEqual", "LessOrEqual", "Not", "Or", "Xor"),
)
#: Ops that keep a gradient of a wider type than their result; and ops that compute with one.
_PASS_ON, _TAKE = ("Add", "Identity", "Scale", "Sum"), ("IdentityLoss", "L1", "Nll", "ReduceMean", "ReduceSum")


def differentiate(graph: Graph, loss: str, seed: Tensor) -> None:
    """Append gradients of ``loss`` (a scalar) for every floating-point tensor that it depends on.

    ``seed`` is the gradient of the loss itself: the loss scaling.
    """
    if graph.tensor(loss).nelms != 1:
        raise EmulatorError(f"Loss tensor, '{loss}', must be a scalar tensor")
    _Differentiation(graph, loss, seed).run()


class _Differentiation:
    def __init__(self, graph: Graph, loss: str, seed: Tensor) -> None:
        self.graph, self.loss, self.producers = graph, loss, graph.producers()
        self.tensor_places = tensor_places(graph)
        self.guards = {id: op.guard for op in graph.ops for id in op.outputs}
        self.writer = OpWriter(graph, StepPhase.BACKWARD, self.tensor_places[loss])
        start = self.writer.value(seed)
        if graph.tensor(loss).shape != seed.shape:
            start = start.shaped(graph.tensor(loss).shape)
        self.parts: dict[str, list[Value]] = {loss: [start]}
        self.made_at: dict[str, list[Place]] = {loss: [self.tensor_places[loss]]}
        self.totals: dict[str, Value] = {}
        self.names: dict[str, str] = {}
        self.writes: dict[str, Op] = {}
        self.paddings: dict[str, Op] = {}

    def run(self) -> None:
        forward = list(self.graph.ops)
        self.check_gradient_of(self.loss)
        for op in reversed(forward):
            if op.phase is StepPhase.FORWARD and any(output in self.parts for output in op.outputs):
                self.step(op)
        for id in list(self.parts):
            self.total(id)
        self.graph.rename(self.names)

    def step(self, op: Op) -> None:
        """Add the contributions of ``op`` to the gradients of its inputs."""
        rule = TABLE[op].grad
        if op.type in _TAKE:
            self.check_gradient_of(op.inputs[0])
        gradients = tuple(self.total(output) for output in op.outputs)
        self.writer.place, self.writer.guard = op.place, op.guard
        if rule is None:
            return
        if op.type not in (*_PASS_ON, *_TAKE):
            gradients = tuple(
                g and g.cast(self.graph.tensor(id).dtype) for g, id in zip(gradients, op.outputs, strict=True)
            )
        inputs = tuple(self.writer.value(self.graph.tensor(id)) if id else None for id in op.inputs)
        outputs = tuple(self.writer.value(self.graph.tensor(id)) for id in op.outputs)
        adjoints = rule(Adjoint(node_of(self.graph, op), gradients, inputs, outputs))
        contributions = [adjoints] if isinstance(adjoints, Value) or adjoints is None else list(adjoints)
        for id, contribution in zip(op.inputs, contributions, strict=False):
            if id and contribution is not None and self.graph.tensor(id).dtype.is_float:
                if op.type not in _PASS_ON:
                    contribution = contribution.cast(self.graph.tensor(id).dtype)
                self.note_write(op, contribution)
                self.parts.setdefault(id, []).append(self.guarded(contribution, op.guard, id))
                self.made_at.setdefault(id, []).append(op.place)

    def note_write(self, op: Op, contribution: Value) -> None:
        """Record the op that writes the gradient of a slice into zeros, for ``merged``."""
        last = self.graph.ops[-1]
        if last.type == "SliceInto" and contribution.tensor.id in last.outputs:
            self.paddings[contribution.tensor.id] = last
        if op.type == "DynamicSlice" and op.attributes.get("noOverlap", 0) and contribution.tensor.id in last.outputs:
            self.writes[contribution.tensor.id] = last

    def check_gradient_of(self, id: str) -> None:
        """Raise EmulatorError if ``id``, a loss or a summand of one, is the result of a comparison or of logic."""
        op = self.producers.get(id)
        if op is not None and op.type in _WITHOUT_GRADIENT:
            raise EmulatorError(f"PopART does not have a valid grad op corresponding to {op.type}Op")

    def guarded(self, value: Value, guard: str, id: str) -> Value:
        """The contribution of an op with ``guard`` to ``id``: 0 if the op did not run but ``id`` was computed."""
        self.writer.guard = self.guards.get(id, "")
        if guard in ("", self.writer.guard):
            return value
        return self.writer.value(self.graph.tensor(guard)).op("Where", value, value.like(0))

    def total(self, id: str) -> Value | None:
        """The gradient of ``id``: the sum of its contributions, named when all of them are known."""
        if id not in self.totals and id in self.parts:
            self.writer.place, self.writer.guard = self.tensor_places[id], self.guards.get(id, "")
            first, *others = self.joined(id, self.merged(self.parts[id]))
            if len({part.tensor.dtype for part in [first, *others]}) > 1:
                first, *others = (part.cast(self.graph.tensor(id).dtype) for part in [first, *others])
            for other, place in zip(others, self.places_of_sums(id), strict=False):
                self.writer.place = place
                first = first + other
            self.totals[id] = self.named(first, GRADIENT + id)
        return self.totals.get(id)

    def places_of_sums(self, id: str) -> list[Place]:
        """The place of each addition to a gradient: that of all contributions so far, else that of ``id``."""
        home, (first, *others) = self.tensor_places[id], self.made_at[id]
        if self.graph.tensor(id).role is not Role.COMPUTED or self.guards.get(id):
            return [home] * len(others)
        return [
            first if all(place == first for place in others[: count + 1]) else home for count in range(len(others))
        ]

    def merged(self, parts: list[Value]) -> list[Value]:
        """Merge the contributions of slices that do not overlap into one tensor; other contributions are unchanged.

        x = [a, b, c];  g of x[0:2] = [p, q], g of x[1:3] = [r, s]   ->   [p, r, s], where a sum is [p, q + r, s]
        """
        written = [part for part in parts if part.tensor.id in self.writes]
        if len(written) < 2:
            return parts
        total = written[-1]  # that of the first slice: the parts are in the reverse order of the ops
        for part in reversed(written[:-1]):
            write = self.writes[part.tensor.id]
            _, index, piece = (self.writer.value(self.graph.tensor(id)) for id in write.inputs)
            total = total.op(write.type, index, piece, **write.attributes)
        return [total, *(part for part in parts if part.tensor.id not in self.writes)]

    def joined(self, id: str, parts: list[Value]) -> list[Value]:
        """Join the contributions of slices at constant bounds that divide ``id``; other contributions are unchanged.

        x = [a, b, c];  g of x[0:2] = [p, q], g of x[2:3] = [r]   ->   [p, q, r], where a sum is [p, q, 0] + [0, 0, r]
        """
        paddings = [self.paddings[part.tensor.id] for part in parts if part.tensor.id in self.paddings]
        if len(paddings) < 2 or len(set(self.made_at[id])) > 1:
            return parts
        division = _division(paddings)
        if division is None:
            return parts
        axis, paddings = division
        self.writer.place = self.places_of_sums(id)[0]
        first, *others = (self.writer.value(self.graph.tensor(op.inputs[0])) for op in paddings)
        total = first.op("Concat", *others, axis=axis)
        return [total, *(part for part in parts if part.tensor.id not in self.paddings)]

    def named(self, value: Value, name: str) -> Value:
        """Name ``value``, or a copy of it if it has a name already or is not a result of the backward pass."""
        id = value.tensor.id
        if id in self.names or not id.startswith(StepPhase.BACKWARD.value + "/"):
            value = value.op("Identity")
        self.names[value.tensor.id] = name
        return value


def _division(paddings: list[Op]) -> tuple[int, list[Op]] | None:
    """The axis along which slices divide a tensor, and their ops SliceInto in its order; None if they do not."""
    shape: list[int] = list(paddings[0].attributes["shape"])
    bounds = [[tuple(op.attributes[name]) for name in ("starts", "ends", "steps")] for op in paddings]
    full = [(0, size) for size in shape]
    axes = {axis for s, e, _ in bounds for axis, part in enumerate(zip(s, e, strict=True)) if part != full[axis]}
    if len(axes) != 1 or any(step != 1 for _, _, steps in bounds for step in steps):
        return None
    (axis,) = axes
    order = sorted(range(len(paddings)), key=lambda index: bounds[index][0][axis])
    first, last = ([bounds[index][end][axis] for index in order] for end in (0, 1))
    return (axis, [paddings[index] for index in order]) if [*first, shape[axis]] == [0, *last] else None
