"""Model: a network with its loss, the ids of its inputs, loss and outputs, and its size."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from ipu_emu.graph import Graph, Op, Role, Tensor
from ipu_emu.models.network import OPSET
from ipu_emu.onnx.write import to_model
from ipu_emu.ops import TABLE, Node


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


#: Suffixes of the names of weights that are not trained by gradients.
_STATISTICS = ("/mean", "/variance")
#: Prefix of the names of weights for pre-training only, which published parameter counts omit.
_HEADS = "heads/"


@dataclass(frozen=True)
class ModelSize:
    """Sizes of a model: trained ``parameters`` (``heads``: for pre-training only); flops and activations per sample.

    ``activations`` are the bytes of all outputs of ops except views, which training keeps without recomputation.
    """

    parameters: int
    heads: int
    statistics: int
    parameter_bytes: int
    flops: int
    activations: int
    ops: int

    @classmethod
    def of(cls, model: Model) -> ModelSize:
        """Return the size of ``model``, whose weights may be without values."""
        graph = model.graph
        weights = [tensor for tensor in graph.tensors.values() if tensor.role is Role.WEIGHT]
        statistics = [tensor for tensor in weights if tensor.id.endswith(_STATISTICS)]
        heads = [tensor for tensor in weights if tensor.id.startswith(_HEADS)]
        batch = graph.tensor(model.data).shape[0]
        trained = _elements(weights) - _elements(statistics)
        return cls(
            trained - _elements(heads),
            _elements(heads),
            _elements(statistics),
            sum(tensor.nbytes for tensor in weights),
            sum(_flops(graph, op) for op in graph.ops) // batch,
            sum(tensor.nbytes for tensor in _made(graph)) // batch,
            len(graph.ops),
        )


def _elements(tensors: list[Tensor]) -> int:
    return sum(tensor.nelms for tensor in tensors)


def _flops(graph: Graph, op: Op) -> int:
    inputs = tuple(graph.tensor(id) if id else None for id in op.inputs)
    return TABLE[op].cost(Node(op, inputs, (), tuple(graph.tensor(id) for id in op.outputs))).flops


def _made(graph: Graph) -> Iterator[Tensor]:
    """Yield the outputs of ops that are not views."""
    for op in graph.ops:
        if TABLE[op].view_of is None:
            yield from (graph.tensor(id) for id in op.outputs if graph.tensor(id).role is Role.COMPUTED)
