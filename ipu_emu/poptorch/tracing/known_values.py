"""Known values: which tensors of a trace depend on buffers and constants alone, so that the host has their values."""

from __future__ import annotations

from ipu_emu.graph import Graph, Role

__all__ = ["KnownValues"]


class KnownValues:
    """``buffers`` are the weights of the graph that are buffers; the graph only grows while it is asked about."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self.buffers: set[str] = set()
        self._unknown: set[str] = set()
        self._seen = 0

    def __contains__(self, id_: str) -> bool:
        """Whether a tensor is known; parameters, inputs, random numbers and what is made of them are not."""
        for op in self._graph.ops[self._seen :]:
            if op.type.startswith("Random") or any(one and not self._is_source(one) for one in op.inputs):
                self._unknown.update(op.outputs)
        self._seen = len(self._graph.ops)
        return self._is_source(id_)

    def _is_source(self, id_: str) -> bool:
        role = self._graph.tensors[id_].role
        is_parameter = role is Role.WEIGHT and id_ not in self.buffers
        return role is not Role.INPUT and not is_parameter and id_ not in self._unknown
