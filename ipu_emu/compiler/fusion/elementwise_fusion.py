"""Element-wise fusion: chains of element-wise ops become one op that reads and writes its data once.

    y = Gemm(x, w, b)                     y = Gemm(x, w, b)
    a = Scale(y)                          c = Fused(y, r)
    b = Relu(a)                  ->
    c = Add(b, r)

A group runs at the position of its last op. So an op joins the groups that produce its inputs only if no op outside
them reads their results before that position. All ops of a group have one shape, phase, place, guard and set of
annotations. Results that are read outside of a group, and anchors, are stored; the others stay in registers.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from ipu_emu.graph import Graph, Op, Tensor
from ipu_emu.ops import TABLE
from ipu_emu.ops.core.formulas import FormulaBuilder
from ipu_emu.program.storage_order import batch_innermost

#: The most operands of a group: each needs a pointer in a register.
_MOST_OPERANDS = 12


@dataclass(eq=False)
class _Group:
    ops: list[tuple[int, Op]] = field(default_factory=list)

    @property
    def outputs(self) -> list[str]:
        return [output for _, op in self.ops for output in op.outputs]

    def inputs(self) -> list[str]:
        outputs = set(self.outputs)
        return list(dict.fromkeys(id for _, op in self.ops for id in op.inputs if id not in outputs))


def fuse(graph: Graph, wanted: Iterable[str]) -> None:
    """Fuse the element-wise ops of ``graph``; ``wanted`` tensors must still be stored."""
    Fusion(graph, set(wanted)).run()


class Fusion:
    def __init__(self, graph: Graph, wanted: set[str]) -> None:
        self.graph, self.wanted = graph, wanted
        self.turned = batch_innermost(graph)
        self.halves = {id for id, tensor in graph.tensors.items() if tensor.dtype.name == "FLOAT16"}
        self.users: dict[str, list[int]] = {}
        for index, op in enumerate(graph.ops):
            for id in op.inputs:
                self.users.setdefault(id, []).append(index)
        self.group_of: dict[str, _Group] = {}  # by output

    def run(self) -> None:
        groups: dict[_Group, None] = {}  # in order
        for index, op in enumerate(self.graph.ops):
            group = _Group([(index, op)])
            if self.is_fusable(op):
                for other in self.joinable(index, op):
                    joined = _Group(sorted([*other.ops, *group.ops], key=lambda entry: entry[0]))
                    if self.operands(joined) <= _MOST_OPERANDS:
                        del groups[other]
                        group = joined
                for id in group.outputs:
                    self.group_of[id] = group
            groups[group] = None
        ordered = sorted(groups, key=lambda group: group.ops[-1][0])
        self.graph.ops = [self.written(group) for group in ordered]

    def operands(self, group: _Group) -> int:
        return len(group.inputs()) + len(self.outputs(group))

    def is_fusable(self, op: Op) -> bool:
        """Whether ``op`` can be fused: it has a formula, and float operands: full, scalar, or per row or column."""
        if TABLE[op].formula is None or len(op.outputs) != 1 or "axis" in op.attributes:
            return False
        tensors = [self.graph.tensor(id) for id in (*op.inputs, *op.outputs) if id]
        if len(tensors) != len(op.inputs) + 1 or not all(t.dtype.name in ("FLOAT", "FLOAT16") for t in tensors):
            return False
        if tensors[-1].nelms == 0 or not all(self.fits(tensor, tensors[-1]) for tensor in tensors[:-1]):
            return False
        return len(set(self.columns(_Group([(0, op)])).values())) <= 1

    def fits(self, tensor: Tensor, out: Tensor) -> bool:
        if tensor.shape == out.shape or tensor.nelms == 1:
            return True
        if self.turned.intersection((tensor.id, out.id)):  # its elements are not in the order of their indices
            return False
        return _columns(tensor, out) > 0 or _is_per_row(tensor, out)

    def joinable(self, index: int, op: Op) -> list[_Group]:
        """The groups that produce inputs of ``op`` and may move to the position of ``op``."""
        groups: list[_Group] = []
        out = self.graph.tensor(op.outputs[0])
        for id in op.inputs:
            group = self.group_of.get(id)
            if group is None or group in groups or self.graph.tensor(id).shape != out.shape:
                continue
            if self.alike(group, op) and self.can_move(group, index):
                groups.append(group)
        widths = {w for group in (*groups, _Group([(index, op)])) for w in self.columns(group).values()}
        return groups if len(widths) <= 1 else []

    def alike(self, group: _Group, op: Op) -> bool:
        other = group.ops[0][1]
        return (other.phase, other.place, other.guard, other.annotations) == (
            op.phase,
            op.place,
            op.guard,
            op.annotations,
        )

    def can_move(self, group: _Group, index: int) -> bool:
        """Whether no op outside of the group reads its results before ``index``."""
        inside = {entry[0] for entry in group.ops}
        return all(user >= index or user in inside for id in group.outputs for user in self.users.get(id, []))

    def columns(self, group: _Group) -> dict[str, int]:
        """Inputs that have one value per column, or per row, and the number of columns."""
        out = self.graph.tensor(group.outputs[0])
        tensors = [self.graph.tensor(id) for id in group.inputs()]
        parts = [t for t in tensors if t.shape != out.shape and t.nelms > 1]
        return {t.id: out.shape[-1] if _is_per_row(t, out) else _columns(t, out) for t in parts}

    def outputs(self, group: _Group) -> list[str]:
        inside = {entry[0] for entry in group.ops}
        return [
            id for id in group.outputs if id in self.wanted or any(u not in inside for u in self.users.get(id, []))
        ]

    # Writing

    def written(self, group: _Group) -> Op:
        """Append the fused op of a group, or the ops unchanged if there is nothing to fuse."""
        last = group.ops[-1][1]
        if group.outputs[0] not in self.group_of:
            return last
        inputs, outputs = group.inputs(), self.outputs(group) or group.outputs[-1:]
        columns, out = self.columns(group), self.graph.tensor(group.outputs[0])
        for id in set(group.outputs) - set(outputs):
            del self.graph.tensors[id]
        attributes = last.annotations | {
            "body": self.body(group, inputs, outputs),
            "columns": {inputs.index(id): width for id, width in columns.items()},
            "rows": [inputs.index(id) for id in columns if _is_per_row(self.graph.tensor(id), out)],
            "dtypes": [self.graph.tensor(id).dtype.onnx for id in outputs],
            "shapes": [self.graph.tensor(id).shape for id in outputs],
        }
        fused = replace(last, type="Fused", domain="", name=_label(group), attributes=attributes)
        return replace(fused, inputs=tuple(inputs), outputs=tuple(outputs))

    def body(self, group: _Group, inputs: list[str], outputs: list[str]) -> tuple[Any, ...]:
        body = FormulaBuilder()
        values = {id: body("load", index) for index, id in enumerate(inputs)}
        for _, op in group.ops:
            formula = TABLE[op].formula
            assert formula is not None
            value = formula(body, op.attributes, [values[id] for id in op.inputs])
            if op.outputs[0] in self.halves:
                value = body("half", value)
            values[op.outputs[0]] = value
        for index, id in enumerate(outputs):
            body("store", len(inputs) + index, values[id])
        return tuple(body.instructions)


def _is_per_row(tensor: Tensor, out: Tensor) -> bool:
    """Whether ``tensor`` has one element for each row of ``out``, along whose last axis it repeats."""
    width = out.shape[-1] if out.rank else 1
    return 1 < width < out.nelms and tensor.shape == (*out.shape[:-1], 1)


def _columns(tensor: Tensor, out: Tensor) -> int:
    """Return the number of elements of ``tensor`` if it repeats over the first axes of ``out``, else 0."""
    shape = tensor.shape
    while shape and shape[0] == 1:
        shape = shape[1:]
    return tensor.nelms if shape and out.shape[-len(shape) :] == shape and len(shape) < len(out.shape) else 0


def _label(group: _Group) -> str:
    return group.ops[0][1].name or "+".join(op.type for _, op in group.ops)
