"""Model reading: an ONNX model becomes the graph that the passes start from.

Every front end reads models with this function. It makes the changes that affect the inference of types and shapes
and so cannot be passes: collectives get the number of replicas, on which their shapes depend, and tensors get types
that IPUs support.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType

import onnx
from onnx import helper

from ipu_emu.compiler.reading.bfloat16 import with_floats
from ipu_emu.compiler.reading.known_ops import with_known_ops
from ipu_emu.compiler.reading.static_sequences import without_sequences
from ipu_emu.compiler.reading.supported_types import append_supported, supported_inputs
from ipu_emu.graph import Graph
from ipu_emu.graph.dtype import DType
from ipu_emu.graph.onnx_files import Large, opset_of
from ipu_emu.graph.onnx_model import from_model
from ipu_emu.graph.op import GRAPHCORE
from ipu_emu.ops import append
from ipu_emu.ops.communication.collective_ops import MODEL_COLLECTIVES, REPLICA_COUNT

__all__ = ["read_model"]


def read_model(
    model: onnx.ModelProto,
    *,
    replicas: int = 1,
    supported_types: bool = True,
    groups: Mapping[str, tuple[int, int] | None] = MappingProxyType({}),
    shapes: Mapping[str, tuple[DType, tuple[int, ...]]] = MappingProxyType({}),
    large: Large = MappingProxyType({}),
) -> Graph:
    """Return the graph of ``model`` for ``replicas``; ``groups``, ``shapes`` and ``large`` as in ``from_model``.

    With ``supported_types`` integers of 64 bits become integers of 32 bits, as ``supported_types.py`` says.
    """
    model = with_known_ops(without_sequences(with_floats(model), opset_of(model)))
    return from_model(
        _with_replica_count(model, replicas),
        append_supported if supported_types else append,
        groups=groups,
        shapes=supported_inputs(model, shapes) if supported_types else shapes,
        large=large,
    )


def _with_replica_count(model: onnx.ModelProto, replicas: int) -> onnx.ModelProto:
    """Return ``model`` with the number of replicas in every collective, whose groups and shards depend on it."""
    if replicas == 1 or not any(True for _ in _collectives(model.graph)):
        return model
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    for node in _collectives(copy.graph):
        node.attribute.append(helper.make_attribute(REPLICA_COUNT, replicas))
    return copy


def _collectives(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    """Yield the collectives of a graph and of the bodies in it."""
    for node in graph.node:
        if node.domain == GRAPHCORE and node.op_type in MODEL_COLLECTIVES:
            yield node
        for attribute in node.attribute:
            for body in (*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs):
                yield from _collectives(body)
