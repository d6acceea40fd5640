"""IrGraph: the ops of a step as PopART names them, with the types and shapes of their tensors."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ipu_emu.graph import Graph, Op, Role, StepPhase, Tensor


@dataclass
class IrOp:
    """One op; ``inputs`` and ``outputs`` are tensor ids by index, "" for an absent one."""

    type: str
    inputs: list[str]
    outputs: list[str]
    attributes: dict[str, Any] = field(default_factory=dict)
    name: str = ""
    phase: StepPhase = StepPhase.FORWARD
    ipu: int = 0
    stage: int = 0
    context: str = "Normal"
    recompute: str = "Checkpoint"
    source: Op | None = None

    def like(self, type: str, inputs: Sequence[str], outputs: Sequence[str], /, **attributes: Any) -> IrOp:
        """Return a new op with the IPU, stage and source of this one."""
        return replace(self, type=type, inputs=list(inputs), outputs=list(outputs), attributes=attributes)


class IrGraph:
    """The ``ops`` of a step in scheduled order; ``anchors`` are the ids of the tensors that the host receives."""

    def __init__(self, graph: Graph, anchors: Iterable[str]) -> None:
        self.tensors: dict[str, Tensor] = dict(graph.tensors)
        self.anchors = frozenset(anchors)
        self.ops: list[IrOp] = []

    def new(self, base: str, like: Tensor, shape: Sequence[int] | None = None) -> str:
        """Return the id of a new tensor of the type of ``like``, and of its shape unless another is given."""
        id, count = base, 0
        while id in self.tensors:
            count += 1
            id = f"{base}/{count}"
        self.tensors[id] = replace(
            like, id=id, shape=like.shape if shape is None else tuple(shape), role=Role.COMPUTED, shards=None
        )
        return id

    def shape(self, id: str) -> tuple[int, ...]:
        return self.tensors[id].shape

    def readers(self) -> dict[str, list[int]]:
        """Return the positions of the ops that read each tensor."""
        readers: dict[str, list[int]] = {}
        for index, op in enumerate(self.ops):
            for id in op.inputs:
                readers.setdefault(id, []).append(index)
        return readers

    def rename(self, names: Mapping[str, str]) -> None:
        """Rename tensors in the inputs and outputs of all ops."""
        for op in self.ops:
            op.inputs = [names.get(id, id) for id in op.inputs]
            op.outputs = [names.get(id, id) for id in op.outputs]
        for old, new in names.items():
            if old in self.tensors and new not in self.tensors:
                self.tensors[new] = replace(self.tensors[old], id=new)

    def without(self, removed: Mapping[str, str]) -> None:
        """Remove the ops that make the keys of ``removed``; their readers read the value of the key instead."""

        def survivor(id: str) -> str:
            while id in removed:
                id = removed[id]
            return id

        self.ops = [op for op in self.ops if not (op.outputs and op.outputs[0] in removed)]
        for op in self.ops:
            op.inputs = [survivor(id) for id in op.inputs]
