"""ONNX argument: an ONNX file given to a command: its outputs, its batch, and sizes for open dimensions."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ipu_emu.compiler.annotations import IPU_NUMBER, PIPELINE_STAGE
from ipu_emu.compiler.placement.placement_rules import computed_ops
from ipu_emu.errors import EmulatorError, OpenShapeError
from ipu_emu.graph import Graph
from ipu_emu.graph.tensor import Role
from ipu_emu.onnx.read import read
from ipu_emu.predict.networks import Network
from ipu_emu.predict.networks.graph_network import graph_network


@dataclass(frozen=True)
class OnnxFile:
    """An ONNX file; ``batch``: samples of its first input; ``has_open_batch``: inputs have an open first size."""

    path: str
    graph: Graph
    outputs: tuple[str, ...]
    batch: int
    has_open_batch: bool

    @classmethod
    def read(cls, path: str, batch: int, replicas: int | None = None) -> OnnxFile:
        """Read a file, with ``batch`` for open first dimensions; raise EmulatorError if it is not a model."""
        try:
            model = read(path, replicas=replicas, batch=batch)
        except OpenShapeError as error:
            axis = next(axis for axis, size in enumerate(error.sizes) if isinstance(size, str))
            raise EmulatorError(
                f"input '{error.input}' of {path} has no size in dimension {axis}; only the first one, the batch, "
                "may be open: export the model with fixed sizes"
            ) from None
        inputs = model.graph.with_role(Role.INPUT)
        empty = next((tensor for tensor in inputs if not tensor.nelms), None)
        if empty is not None:
            raise EmulatorError(
                f"input '{empty.id}' of {path} has no elements: its shape is {list(empty.shape)}; export the model "
                "with sizes from 1"
            )
        first = next((tensor.shape for tensor in inputs if tensor.shape), (1,))
        return cls(path, model.graph, tuple(_outputs(path, model.graph)), first[0], model.has_open_batch)

    @property
    def names_ipus(self) -> bool:
        """Whether an op is annotated with its IPU."""
        return any(IPU_NUMBER in op.attributes for op in self.graph.ops)

    def loss(self, name: str) -> str:
        """Return the id of the loss tensor; raise EmulatorError if none is given."""
        if not name:
            raise EmulatorError(
                f"the loss of {self.path} is not known; add --loss with the id of a tensor (its outputs are "
                f"{', '.join(self.outputs)}), or --inference"
            )
        return name

    def network(self) -> tuple[Network, str]:
        """The network for predictions, and PopART's name of the type of its weights."""
        graph = self.graph
        is_half = any(t.dtype.itemsize == 2 and t.dtype.is_float for t in graph.with_role(Role.WEIGHT))
        network = graph_network(graph, Path(self.path).name, self.batch, _homes(graph))
        return network, "float16" if is_half else "float"


def _homes(graph: Graph) -> tuple[int, ...]:
    """The annotated IPU of each op, else its stage; empty if an op has none, or if they differ."""
    for op in computed_ops(graph):
        annotated = {int(op.attributes[key]) for key in (IPU_NUMBER, PIPELINE_STAGE) if key in op.attributes}
        if len(annotated) != 1 or min(annotated) < 0:
            return ()
    return tuple(int(op.attributes.get(IPU_NUMBER, op.attributes.get(PIPELINE_STAGE, 0))) for op in graph.ops)


def _outputs(path: str, graph: Graph) -> list[str]:
    """Return the outputs that the file names, else all tensors that no op reads."""
    inputs = {id for op in graph.ops for id in op.inputs}
    outputs = graph.outputs or [id for op in graph.ops for id in op.outputs if id and id not in inputs]
    if not outputs:
        raise EmulatorError(f"{path} has no ops; export a model that has some")
    return outputs
