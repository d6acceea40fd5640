"""Model reading: an ONNX model becomes the graph that the passes start from, with all that anybody asks of it later.

Here are the changes that affect the inference of types and shapes and so cannot be passes: collectives get the number
of replicas, on which their shapes depend, and tensors get types that IPUs support.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from numpy.typing import NDArray

from ipu_emu.errors import EmulatorError
from ipu_emu.graph import Graph
from ipu_emu.graph.body_inputs import Kind
from ipu_emu.onnx.external_data import Places
from ipu_emu.onnx.files import Source, parsed
from ipu_emu.onnx.graph_reader import GraphReader
from ipu_emu.onnx.known_ops import check_attributes, with_known_ops
from ipu_emu.onnx.properties import ModelProperties
from ipu_emu.onnx.sequences import without_sequences
from ipu_emu.onnx.write import OnnxTemplate


@dataclass(frozen=True)
class OnnxModel:
    """A graph with the properties of its inputs and variables, the opset, and where external data are.

    ``template`` is the model without data, to be written with other values; ``has_open_batch``: inputs have an open
    first size.
    """

    graph: Graph
    properties: ModelProperties
    opset: int
    external: Places
    template: OnnxTemplate
    has_open_batch: bool


def read(
    source: Source,
    *,
    replicas: int | None = None,
    as_written: bool = False,
    supported_types: bool = True,
    inputs: Mapping[str, Kind] = MappingProxyType({}),
    batch: int | None = None,
) -> OnnxModel:
    """Read a model for ``replicas``, if their number is known; ``inputs`` has types and shapes known from elsewhere.

    Open first sizes become ``batch``; raise OpenShapeError for others. With ``supported_types`` integers of 64 bits
    become integers of 32 bits. A model that is written again keeps its ops, types and open sizes ``as_written``.
    """
    with _malformed():
        model = parsed(source)
        data, places = model.tensors.initializers(model.proto.graph)
        proto = model.proto
        if not as_written:
            check_attributes(proto, model.opset)
            proto = with_known_ops(without_sequences(proto, model.opset, model.tensors), model.opset)
        reader = GraphReader(model, replicas, as_written, supported_types, inputs, batch)
        graph, open_batch = reader.read(proto, data), reader.has_open_batch(proto.graph)
        properties, template = ModelProperties.of(graph.metadata), OnnxTemplate(model.proto)
        return OnnxModel(graph, properties, model.opset, places, template, open_batch)


def initializers(source: Source) -> dict[str, NDArray[Any]]:
    """Return the data of the initializers of a model by id."""
    with _malformed():
        model = parsed(source)
        return model.tensors.initializers(model.proto.graph)[0]


@contextmanager
def _malformed() -> Iterator[None]:
    try:
        yield
    except EmulatorError:
        raise
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
        raise EmulatorError(f"The ModelProto is malformed: {type(error).__name__}: {error}") from error
