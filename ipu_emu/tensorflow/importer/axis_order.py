"""Axis order: variables stored in the axis order that a program reads, so that steps need not transpose them.

    w [h, w, C, M]                             w' [M, C, h, w]
    y = Conv(x, Transpose(w))                  y = Conv(x, w')
    g = Transpose(ConvWeightGrad(...))   ->    g' = ConvWeightGrad(...)
    CopyVarUpdate(w, w - rate g)               CopyVarUpdate(w', w' - rate g')

Tensors connected by element-wise ops are a family: a filter, its gradients, the states of its optimiser. A family is
stored transposed if that leaves fewer transpositions in a micro-batch; an op that depends on the order of axes then
reads a tensor that is transposed back. The host transposes values that it writes and reads.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ipu_emu.compiler.gradients.gradient import Gradient
from ipu_emu.graph import Graph, Op, Role, StepPhase, Tensor
from ipu_emu.ops import TABLE

#: For each axis of a stored tensor, the axis of TensorFlow's tensor.
Axes = tuple[int, ...]

_VARIABLES = (Role.WEIGHT, Role.STATE)


def order_axes_as_read(graph: Graph, gradients: Sequence[Gradient], fixed: Collection[str]) -> dict[str, Axes]:
    """Store variables of ``graph`` transposed; return the axes of each. ``fixed`` tensors are not transposed."""
    families = _Families(graph.copy(), gradients, fixed)
    held = families.held()
    if held:
        _Turning(graph, families, held).run()
    return {id: axes for id, axes in held.items() if families.graph.tensor(id).role in _VARIABLES}


class _Families:
    """The families of a graph, and the effect of its ops on tensors that are ``held`` in other orders of axes."""

    def __init__(self, graph: Graph, gradients: Sequence[Gradient], fixed: Collection[str]) -> None:
        self.graph, self.makers = graph, graph.producers()
        self.users: dict[str, list[Op]] = defaultdict(list)
        self.twins: dict[str, list[str]] = defaultdict(list)
        for gradient in gradients:
            self.twins[gradient.part].append(gradient.total)
            self.twins[gradient.total].append(gradient.part)
        #: Tensors that must not be transposed: of the host, of the body of an op, or of single replicas.
        self.fixed = {*fixed, *(tensor.id for tensor in graph.with_role(Role.INPUT, Role.SCALAR))}
        self.fixed |= {tensor.id for tensor in graph.with_role(Role.CONSTANT) if tensor.group is not None}
        for op in graph.ops:
            for id in dict.fromkeys(op.inputs):
                self.users[id].append(op)
            self.fixed.update(
                id for body in op.attributes.values() if isinstance(body, Graph) for id in body.captured
            )

    def held(self) -> dict[str, Axes]:
        """The tensors of all families that are stored transposed, with their axes."""
        transposed: dict[str, Axes] = {}
        seen: set[str] = set()
        for op in self.graph.ops:
            if op.type == "Transpose" and op.phase is not StepPhase.UPDATE and op.inputs[0] not in seen:
                family = self.family(op.inputs[0], self.perm(op))
                seen.update(family)
                if any(self.graph.tensor(id).role in _VARIABLES for id in family) and self.saved(family) > 0:
                    transposed |= family
        return transposed

    def family(self, first: str, axes: Axes) -> dict[str, Axes]:
        """The tensors that must be transposed together with ``first``; none if no order fits all."""
        if first in self.fixed:
            return {}
        family, waiting = {first: axes}, [first]
        while waiting:
            id = waiting.pop()
            for other, order in self.neighbours(id, family[id]):
                if other not in family:
                    family[other] = order
                    waiting.append(other)
                elif family[other] != order:
                    return {}
        return family

    def neighbours(self, id: str, axes: Axes) -> Iterator[tuple[str, Axes]]:
        """The tensors that are in the family of ``id`` because of an op on it, with their axes."""
        yield from ((twin, axes) for twin in self.twins[id])
        shape = self.graph.tensor(id).shape
        for op in (*self.users[id], *([self.makers[id]] if id in self.makers else [])):
            if self.is_elementwise(op) and self.graph.tensor(op.outputs[0]).shape == shape:
                yield from ((other, axes) for other in self.full_operands(op) if other not in self.fixed)
            elif op.type == "ReshapeTo":
                other = op.outputs[0] if id == op.inputs[0] else op.inputs[0]
                order = _with_other_unit_axes(shape, axes, self.graph.tensor(other).shape)
                if order is not None and other not in self.fixed:
                    yield other, order

    def is_elementwise(self, op: Op) -> bool:
        """Whether each element of the result depends only on the elements at the same place, and on scalars."""
        entry = TABLE[op]
        if not entry.elementwise or entry.random or op.guard or "axis" in op.attributes:
            return False
        if not self.fixed.isdisjoint(op.outputs):
            return False
        tensors = [self.graph.tensor(id) for id in (*op.outputs, *op.inputs) if id]
        return all(tensor.shape == tensors[0].shape or tensor.nelms == 1 for tensor in tensors)

    def full_operands(self, op: Op) -> list[str]:
        """The operands that have the shape of the result."""
        shape = self.graph.tensor(op.outputs[0]).shape
        return [id for id in (*op.inputs, *op.outputs) if id and self.graph.tensor(id).shape == shape]

    def perm(self, op: Op) -> Axes:
        return tuple(op.attributes.get("perm") or reversed(range(self.graph.tensor(op.inputs[0]).rank)))

    # A family that is stored transposed

    def saved(self, family: dict[str, Axes]) -> int:
        """The number of transpositions of a micro-batch that are saved, less those that are added."""
        ops = {id(op): op for name in family for op in self.users[name]}
        ops |= {id(self.makers[name]): self.makers[name] for name in family if name in self.makers}
        return sum(self.saved_at(op, family) for op in ops.values() if op.phase is not StepPhase.UPDATE)

    def saved_at(self, op: Op, held: dict[str, Axes]) -> int:
        if op.type == "Transpose":
            return int(_is_in_order(self.turn(op, held)))
        if self.follows(op, held):
            return -len(self.unlike(op, held))
        return -len({id for id in (*op.inputs, *op.outputs) if id in held})

    def turn(self, op: Op, held: dict[str, Axes]) -> Axes:
        """The permutation of a Transpose op between the stored orders of its operand and its result."""
        perm = self.perm(op)
        before, after = (held.get(id, tuple(range(len(perm)))) for id in (op.inputs[0], op.outputs[0]))
        return tuple(before.index(perm[axis]) for axis in after)

    def follows(self, op: Op, held: dict[str, Axes]) -> bool:
        """Whether an op is valid on transposed tensors."""
        operand, result = self.graph.tensor(op.inputs[0]), op.outputs[0]
        if op.type == "ReshapeTo":
            return operand.id in held and result in held
        if op.type == "SpreadTo":
            return operand.nelms == 1
        if op.type.startswith("Reduce"):
            return sorted(op.attributes.get("axes", ())) == list(range(operand.rank))
        return self.is_elementwise(op) and result in held

    def unlike(self, op: Op, held: dict[str, Axes]) -> list[str]:
        """The operands in TensorFlow's order of an op that is valid on transposed tensors."""
        return [id for id in self.full_operands(op) if id not in held] if self.is_elementwise(op) else []


class _Turning:
    """Rewrites a graph such that its ``held`` tensors are transposed."""

    def __init__(self, graph: Graph, families: _Families, held: dict[str, Axes]) -> None:
        self.graph, self.families, self.held = graph, families, held
        self.copies: dict[Any, str] = {}
        self.names: dict[str, str] = {}

    def run(self) -> None:
        for id, axes in self.held.items():
            tensor = self.graph.tensor(id)
            self.graph.tensors[id] = replace(tensor, shape=tuple(tensor.shape[axis] for axis in axes))
            if id in self.graph.data:
                self.graph.data[id] = np.ascontiguousarray(self.graph.data[id].transpose(axes))
        for op in self.families.graph.ops:
            if op.type == "Transpose" and self.touches(op) and _is_in_order(self.families.turn(op, self.held)):
                self.leave_out(op)
        ops = [new_op for op in self.families.graph.ops for new_op in self.rewritten(op)]
        self.graph.ops = [self.renamed(op) for op in ops]
        for id in self.names:
            del self.graph.tensors[id]

    def touches(self, op: Op) -> bool:
        return any(id in self.held for id in (*op.inputs, *op.outputs))

    def leave_out(self, op: Op) -> None:
        """Merge operand and result of a transposition that changes nothing, if both have the same lifetime."""
        families, operand, result = self.families, op.inputs[0], op.outputs[0]
        readers = [_where(reader) == _where(op) for reader in families.users[result]]
        if result not in families.fixed and not families.twins[result] and all(readers):
            self.names[result] = operand
            return
        own = families.users[operand] == [op] and not families.twins[operand] and operand not in self.names
        maker = families.makers.get(operand)
        if own and operand not in families.fixed and maker is not None and _where(maker) == _where(op):
            self.names[operand] = result

    def renamed(self, op: Op) -> Op:
        return replace(op, inputs=tuple(map(self.name, op.inputs)), outputs=tuple(map(self.name, op.outputs)))

    def name(self, id: str) -> str:
        while id in self.names:
            id = self.names[id]
        return id

    def rewritten(self, op: Op) -> list[Op]:
        """The ops that replace ``op``."""
        if not self.touches(op):
            return [op]
        if op.type == "Transpose":
            return self.turning(op)
        if self.families.follows(op, self.held):
            return self.following(op)
        ops: list[Op] = []
        inputs = [self.turned(id, _inverse(self.held[id]), op, ops) if id in self.held else id for id in op.inputs]
        outputs = [self.unturned(id) if id in self.held else id for id in op.outputs]
        ops.append(replace(op, inputs=tuple(inputs), outputs=tuple(outputs)))
        for plain, stored in zip(outputs, op.outputs, strict=True):
            if plain != stored:
                ops.append(_transpose(plain, stored, self.held[stored], op))
        return ops

    def turning(self, op: Op) -> list[Op]:
        axes = self.families.turn(op, self.held)
        if not _is_in_order(axes):
            return [replace(op, attributes={"perm": list(axes)})]
        same = self.name(op.inputs[0]) == self.name(op.outputs[0])
        return [] if same else [replace(op, type="Sum", attributes={})]

    def following(self, op: Op) -> list[Op]:
        """``op`` on transposed tensors; its other operands are transposed first."""
        ops: list[Op] = []
        unlike = self.families.unlike(op, self.held)
        inputs = [self.turned(id, self.held[op.outputs[0]], op, ops) if id in unlike else id for id in op.inputs]
        attributes = dict(op.attributes)
        if op.type in ("ReshapeTo", "SpreadTo"):
            attributes["shape"] = list(self.graph.tensor(op.outputs[0]).shape)
        return [*ops, replace(op, inputs=tuple(inputs), attributes=attributes)]

    def turned(self, id: str, axes: Axes, op: Op, ops: list[Op]) -> str:
        """A transposed copy of a tensor for ``op``; the op that computes it is added to ``ops``."""
        key = id, axes, _where(op)
        if key not in self.copies:
            tensor, name = self.graph.tensor(id), self.graph.unused(f"{id}/turned")
            self.graph.add(Tensor(name, tensor.dtype, tuple(tensor.shape[axis] for axis in axes)))
            ops.append(_transpose(id, name, axes, op))
            self.copies[key] = name
        return self.copies[key]

    def unturned(self, id: str) -> str:
        """A new tensor like ``id`` in TensorFlow's order of axes."""
        tensor = self.families.graph.tensor(id)
        return self.graph.add(Tensor(self.graph.unused(f"{id}/plain"), tensor.dtype, tensor.shape)).id


def _transpose(source: str, target: str, axes: Axes, like: Op) -> Op:
    return Op(
        "Transpose", (source,), (target,), {"perm": list(axes)}, name=like.name, phase=like.phase, place=like.place,
        guard=like.guard,
    )  # fmt: skip


def _where(op: Op) -> Any:
    return op.phase, op.place, op.guard


def _is_in_order(axes: Axes) -> bool:
    return axes == tuple(range(len(axes)))


def _inverse(axes: Axes) -> Axes:
    return tuple(axes.index(axis) for axis in range(len(axes)))


def _with_other_unit_axes(shape: tuple[int, ...], axes: Axes, other: tuple[int, ...]) -> Axes | None:
    """The order of a tensor that has the same axes except for some of size one; None for any other tensor."""
    places: dict[int, int] = {}
    added: list[int] = []
    i, j = len(shape) - 1, len(other) - 1
    while i >= 0 or j >= 0:
        if i >= 0 and j >= 0 and shape[i] == other[j]:
            places[i] = j
            i, j = i - 1, j - 1
        elif i >= 0 and shape[i] == 1:
            i -= 1
        elif j >= 0 and other[j] == 1:
            added.append(j)
            j -= 1
        else:
            return None
    order = [places[axis] for axis in axes if axis in places]
    for axis in added:  # the last one first
        order.insert(order.index(axis + 1) if axis + 1 in order else len(order), axis)
    return tuple(order)
