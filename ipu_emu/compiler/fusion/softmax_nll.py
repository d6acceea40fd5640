"""Softmax with negative log likelihood: their two gradients become one op, with less work and less rounding.

SoftmaxGrad(NllGrad(g, p, labels), p)  ->  SoftmaxNllGrad(g, p, labels)  =  (p - onehot(labels)) g
"""

from __future__ import annotations

from dataclasses import replace

from ipu_emu.graph import Graph, Op
from ipu_emu.ops import node_of

__all__ = ["fuse_softmax_nll"]


def fuse_softmax_nll(graph: Graph) -> None:
    """Replace the gradients of a softmax followed by a negative log likelihood by their closed form."""
    producers = graph.producers()
    graph.ops = [_fused(graph, op, producers) for op in graph.ops]


def _fused(graph: Graph, op: Op, producers: dict[str, Op]) -> Op:
    inner = producers.get(op.inputs[0]) if op.type == "SoftmaxGrad" else None
    if inner is None or inner.type != "NllGrad" or inner.inputs[1] != op.inputs[1]:
        return op
    probabilities = node_of(graph, op).input(1)
    last_axis = op.attributes["axis"] in (-1, probabilities.rank - 1)
    if not last_axis or inner.attributes.get("inputIsLogProbability"):
        return op
    return replace(op, type="SoftmaxNllGrad", inputs=inner.inputs, attributes=inner.attributes)
