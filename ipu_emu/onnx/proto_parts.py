"""Proto parts: the graphs, nodes and tensors of a model, those in the bodies of loops and branches too."""

from __future__ import annotations

from collections.abc import Iterator

import onnx


def graphs_of(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    """Yield a graph, and those in the attributes of its nodes."""
    yield graph
    for attribute in attributes_of(graph):
        for body in (*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs):
            yield from graphs_of(body)


def nodes_of(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    """Yield the nodes of a graph and of the bodies in it."""
    return (node for inner in graphs_of(graph) for node in inner.node)


def attributes_of(graph: onnx.GraphProto) -> Iterator[onnx.AttributeProto]:
    """Yield the attributes of the nodes of a graph, without its bodies."""
    return (attribute for node in graph.node for attribute in node.attribute)


def tensors_of(graph: onnx.GraphProto) -> Iterator[onnx.TensorProto]:
    """Yield the initializers of a graph and the tensors in attributes of its nodes, without its bodies."""
    yield from graph.initializer
    for attribute in attributes_of(graph):
        if attribute.HasField("t"):
            yield attribute.t
        yield from attribute.tensors
