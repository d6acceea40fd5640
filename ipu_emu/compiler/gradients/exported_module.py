"""Exported module: the parameters and buffers of the module that PyTorch's exporter made a model from.

``torch.onnx.export(..., dynamo=True)`` writes them into the model, with the names of ``named_parameters()``, so that
buffers and constants can be told from parameters. Parameters may be absent: tied or unused ones, and those that the
exporter's optimisation has merged with equal ones or folded into others.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from ipu_emu.graph import Graph, Role
from ipu_emu.graph.graph import SIGNATURE

__all__ = ["ExportedModule"]

_LINE = re.compile(r"^\S+: (PARAMETER|BUFFER|CONSTANT_TENSOR) target='([^'\n]+)'", re.MULTILINE)
_STATISTICS = ".running_mean"


@dataclass(frozen=True)
class ExportedModule:
    """The names in the module of its parameters, buffers and plain tensor attributes."""

    parameters: tuple[str, ...]
    buffers: tuple[str, ...]
    constants: tuple[str, ...]

    @classmethod
    def of(cls, graph: Graph) -> ExportedModule | None:
        """Return the module of a model; None if the model does not list its parameters."""
        found = _LINE.findall(graph.metadata.get(SIGNATURE, "").partition("# outputs")[0])
        kinds = ("PARAMETER", "BUFFER", "CONSTANT_TENSOR")
        return cls(*(tuple(name for one, name in found if one == kind) for kind in kinds)) if found else None

    def trained(self, graph: Graph) -> frozenset[str]:
        """The initializers that are parameters."""
        weights = {tensor.id for tensor in graph.with_role(Role.WEIGHT) if tensor.dtype.is_float}
        return frozenset(weights.intersection(self.parameters))

    def lost(self, graph: Graph) -> list[str]:
        """The parameters that the model does not have."""
        return [name for name in self.parameters if name not in graph.tensors]

    def lost_biases(self, graph: Graph) -> list[str]:
        """The parameters that the model lacks though it has the weight of their layer: they are in use."""
        return [
            name
            for name in self.lost(graph)
            if name.endswith(".bias") and name.removesuffix("bias") + "weight" in graph.tensors
        ]

    def foreign(self, id: str) -> bool:
        """Whether an initializer does not belong to the module."""
        return id not in {*self.parameters, *self.buffers, *self.constants}

    def folded_norms(self, graph: Graph) -> list[str]:
        """The batch normalisations that the model does not have."""
        norms = [name.removesuffix(_STATISTICS) for name in self.buffers if name.endswith(_STATISTICS)]
        return [name for name in norms if name + _STATISTICS not in graph.tensors]
