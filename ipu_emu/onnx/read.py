"""Model reading: an ONNX model becomes the graph that the passes start from, with all that anybody asks of it later.

Here are the changes that affect the inference of types and shapes and so cannot be passes: collectives get the number
of replicas, on which their shapes depend, and tensors get types that IPUs support.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from ipu_emu.errors import EmulatorError
from ipu_emu.graph import Graph
from ipu_emu.onnx.external_data import Places
from ipu_emu.onnx.files import Source, opset_of, parsed
from ipu_emu.onnx.graph_reader import Describe, GraphReader, declared
from ipu_emu.onnx.known_ops import with_known_ops
from ipu_emu.onnx.properties import ModelProperties
from ipu_emu.onnx.sequences import without_sequences
from ipu_emu.onnx.supported_types import append_supported, supported
from ipu_emu.onnx.write import OnnxTemplate
from ipu_emu.ops import append

__all__ = ["OnnxModel", "initializers", "read"]


@dataclass(frozen=True)
class OnnxModel:
    """A graph with the properties of its inputs and variables, the opset, and where external data are.

    ``template`` is the model without data, to be written with other values.
    """

    graph: Graph
    properties: ModelProperties
    opset: int
    external: Places
    template: OnnxTemplate


def read(
    source: Source,
    *,
    replicas: int | None = None,
    as_written: bool = False,
    supported_types: bool = True,
    describe: Describe = declared,
) -> OnnxModel:
    """Read a model for ``replicas``, if their number is known; ``describe`` returns type and shape of an input.

    With ``supported_types`` integers of 64 bits become integers of 32 bits, as ``supported_types.py`` says. A model
    that is to be written again keeps its ops and types ``as_written``.
    """
    with _malformed():
        model = parsed(source)
        opset, proto = opset_of(model.proto), model.proto
        if not as_written:
            proto = with_known_ops(without_sequences(proto, opset), opset)
        if as_written or not supported_types:
            reader = GraphReader(append, describe, opset, replicas)
        else:
            reader = GraphReader(append_supported, lambda info: supported(describe(info)), opset, replicas)
        graph = reader.read(proto, model.initializers())
        return OnnxModel(graph, ModelProperties.of(graph.metadata), opset, model.places, OnnxTemplate(model.proto))


def initializers(source: Source) -> dict[str, NDArray[Any]]:
    """Return the data of the initializers of a model by id."""
    with _malformed():
        return parsed(source).initializers()


@contextmanager
def _malformed() -> Iterator[None]:
    try:
        yield
    except EmulatorError:
        raise
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
        raise EmulatorError(f"The ModelProto is malformed: {type(error).__name__}: {error}") from error
