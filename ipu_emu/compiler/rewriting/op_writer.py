"""OpWriter: appends ops to a graph and names their outputs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ipu_emu.graph import Graph, Op, Place, StepPhase, Tensor
from ipu_emu.ops import Value, append


class OpWriter:
    """Appends ops of one phase, at ``place`` and with ``guard``, which may be changed between ops."""

    def __init__(self, graph: Graph, phase: StepPhase, place: Place | None = None) -> None:
        self.graph = graph
        self.phase = phase
        self.place = place or Place()
        self.guard = ""

    def value(self, tensor: Tensor) -> Value:
        """Return ``tensor`` as a value to compute with."""
        return Value(tensor, self.emit, self.graph.constant)

    def emit(self, type: str, inputs: Sequence[Value], attributes: dict[str, Any], outputs: int) -> list[Value]:
        """Append an op whose outputs get the first free names."""
        names = tuple(self.graph.unused(f"{self.phase.value}/{type}:{index}") for index in range(outputs))
        ids = tuple(value.tensor.id for value in inputs)
        return [self.value(tensor) for tensor in self.append(type, ids, names, attributes)]

    def append(
        self, type: str, inputs: tuple[str, ...], outputs: tuple[str, ...], attributes: dict[str, Any] | None = None
    ) -> list[Tensor]:
        """Append an op and return the tensors that it makes."""
        op = Op(type, inputs, outputs, attributes or {}, phase=self.phase, place=self.place, guard=self.guard)
        return append(self.graph, op)
