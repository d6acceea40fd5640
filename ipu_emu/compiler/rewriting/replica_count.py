"""Replica count: the number of replicas as an attribute of the collectives of an ONNX model."""

from __future__ import annotations

from collections.abc import Iterator

import onnx
from onnx import helper

from ipu_emu.graph.op import GRAPHCORE
from ipu_emu.ops.communication.collective_ops import MODEL_COLLECTIVES, REPLICA_COUNT

__all__ = ["set_replica_count"]


def set_replica_count(model: onnx.ModelProto, replicas: int) -> onnx.ModelProto:
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
