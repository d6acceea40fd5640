"""Rules of softmax and of the losses that TensorFlow computes together with their gradients."""

from __future__ import annotations

import numpy as np

from ipu_emu.ops import Value
from ipu_emu.tensorflow.importer.node import Rule, SourceNode
from ipu_emu.tensorflow.importer.rules.arithmetic import cast_to


def _along_last(type: str) -> Rule:
    return lambda node: node.x.op(type, axis=node.x.tensor.rank - 1)


def _sparse_cross_entropy(node: SourceNode) -> list[Value]:
    """(logits, labels) -> losses, gradients of the losses"""
    return node.x.ops(2, "SparseSoftmaxCrossEntropy", cast_to(node.y, np.int32))


def _cross_entropy(node: SourceNode) -> list[Value]:
    """(logits, label distributions) -> losses, gradients of the losses"""
    x, labels = node.x, node.y
    shape = np.broadcast_shapes(x.tensor.shape, labels.tensor.shape)
    return x.spread_to(shape).ops(2, "SoftmaxCrossEntropy", labels.spread_to(shape))


RULES: dict[str, Rule] = {
    "LogSoftmax": _along_last("LogSoftmax"),
    "Softmax": _along_last("Softmax"),
    "SoftmaxCrossEntropyWithLogits": _cross_entropy,
    "SparseSoftmaxCrossEntropyWithLogits": _sparse_cross_entropy,
}
