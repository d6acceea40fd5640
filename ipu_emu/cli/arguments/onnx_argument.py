"""ONNX argument: an ONNX file given to a command: its outputs, its batch, and sizes for open dimensions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ipu_emu.errors import EmulatorError
from ipu_emu.graph.dtype import DType, dtype_numbered
from ipu_emu.graph.onnx_files import load_light, load_model
from ipu_emu.graph.tensor import Role

if TYPE_CHECKING:
    from ipu_emu.graph import Graph
    from ipu_emu.predict.networks import Network

__all__ = ["OnnxFile"]


@dataclass(frozen=True)
class OnnxFile:
    """An ONNX file; ``batch``: samples of its first input; ``shapes``: type and shape of all inputs.

    ``has_open_batch``: inputs have an open first dimension.
    """

    path: str
    outputs: tuple[str, ...]
    batch: int
    shapes: Mapping[str, tuple[DType, tuple[int, ...]]]
    has_open_batch: bool

    @classmethod
    def read(cls, path: str, batch: int) -> OnnxFile:
        """Read a file, with ``batch`` for open first dimensions; raise EmulatorError if it is not a model."""
        graph = load_model(path).graph
        weights = {initializer.name for initializer in graph.initializer}
        inputs = [info for info in graph.input if info.name not in weights]
        types = {info.name: dtype_numbered(info.type.tensor_type.elem_type) for info in inputs}
        shapes = {info.name: (types[info.name], tuple(_sizes(path, info, batch))) for info in inputs}
        empty = next((name for name, (_, shape) in shapes.items() if 0 in shape), None)
        if empty is not None:
            raise EmulatorError(
                f"input '{empty}' of {path} has no elements: its shape is {list(shapes[empty][1])}; export the model "
                "with sizes from 1"
            )
        first = next((shape for _, shape in shapes.values() if shape), (1,))
        dimensions = [info.type.tensor_type.shape.dim[:1] for info in inputs]
        is_open = any(not axis.HasField("dim_value") for axes in dimensions for axis in axes)
        return cls(path, tuple(_outputs(path, graph)), first[0], shapes, is_open)

    def loss(self, given: str) -> str:
        """Return the id of the loss tensor; raise EmulatorError if none is given."""
        if not given:
            raise EmulatorError(
                f"the loss of {self.path} is not known; add --loss with the id of a tensor (its outputs are "
                f"{', '.join(self.outputs)}), or --inference"
            )
        return given

    def network(self) -> tuple[Network, str]:
        """The network for predictions, and PopART's name of the type of its weights."""
        from ipu_emu.compiler.reading.read_model import read_model
        from ipu_emu.predict.networks.graph_network import graph_network

        proto, large = load_light(self.path)
        graph = read_model(proto, shapes=self.shapes, large=large)
        is_half = any(t.dtype.itemsize == 2 and t.dtype.is_float for t in graph.with_role(Role.WEIGHT))
        made = graph_network(graph, Path(self.path).name, self.batch, _homes(graph))
        return made, "float16" if is_half else "float"


def _homes(graph: Graph) -> tuple[int, ...]:
    """The annotated IPU of each op; empty if an op has none, or has a stage whose number differs from its IPU's."""
    from ipu_emu.compiler.annotations import IPU_NUMBER, PIPELINE_STAGE
    from ipu_emu.compiler.placement.placement_rules import computed_ops, ipu_annotated

    computed, homes = {id(op) for op in computed_ops(graph)}, list[int]()
    for op in graph.ops:
        home = ipu_annotated(op) if id(op) in computed else (homes or [0])[-1]
        if home < 0 or int(op.attributes.get(PIPELINE_STAGE, home)) != home:
            return ()
        homes.append(home)
    return tuple(homes) if any(IPU_NUMBER in op.attributes for op in graph.ops) else ()


def _outputs(path: str, graph: Any) -> list[str]:
    """Return the outputs that the file names, else all tensors that no op reads."""
    read = {id for node in graph.node for id in node.input}
    made = [id for node in graph.node for id in node.output if id and id not in read]
    found = [output.name for output in graph.output] or made
    if not found:
        raise EmulatorError(f"{path} has no ops; export a model that has some")
    return found


def _sizes(path: str, info: Any, batch: int) -> Iterator[int]:
    for axis, dimension in enumerate(info.type.tensor_type.shape.dim):
        if dimension.HasField("dim_value"):
            yield dimension.dim_value
        elif axis == 0:
            yield batch
        else:
            raise EmulatorError(
                f"input '{info.name}' of {path} has no size in dimension {axis}; only the first one, the batch, "
                "may be open: export the model with fixed sizes"
            )
