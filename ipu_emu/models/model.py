"""Model: a network with its loss, and the ids of its inputs, loss and outputs."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from ipu_emu.graph import Graph
from ipu_emu.models.network import OPSET
from ipu_emu.onnx.write import to_model

__all__ = ["Model"]


@dataclass(frozen=True)
class Model:
    """A network with its loss; inputs have the size of a micro-batch of a replica, ``others`` are further inputs."""

    graph: Graph
    data: str
    labels: str
    output: str
    loss: str
    others: tuple[str, ...] = ()

    @cached_property
    def proto(self) -> bytes:
        """The network as a serialised ModelProto."""
        return to_model(self.graph, opset=OPSET)
