"""Rules of softmax and of the losses that TensorFlow computes together with their gradients."""

from __future__ import annotations

import numpy as np

from ipu_emu.ops import Value
from ipu_emu.tensorflow.importer.node import Node, Rule
from ipu_emu.tensorflow.importer.rules.arithmetic import cast_to

__all__ = ["RULES"]


def _along_last(type: str) -> Rule:
    return lambda node: node.x.op(type, axis=node.x.tensor.rank - 1)


def _sparse_cross_entropy(node: Node) -> list[Value]:
    """(logits, labels) -> losses, gradients of the losses"""
    x, labels = node.x, cast_to(node.y, np.int32)
    logs = x.op("LogSoftmax", axis=1)
    losses = logs.op("Nll", labels, reduction="NoReduction", inputIsLogProbability=1)
    classes = node.constant(np.arange(x.tensor.shape[1]), np.int32)
    hot = labels.shaped((x.tensor.shape[0], 1)).op("Equal", classes)
    return [losses, logs.op("Exp") - cast_to(hot, x.tensor.dtype.numpy)]


def _cross_entropy(node: Node) -> list[Value]:
    """(logits, label distributions) -> losses, gradients of the losses"""
    x, labels = node.x, node.y
    shape = np.broadcast_shapes(x.tensor.shape, labels.tensor.shape)
    logs, labels = x.spread_to(shape).op("LogSoftmax", axis=1), labels.spread_to(shape)
    return [-(logs * labels).op("ReduceSum", axes=[1], keepdims=0), logs.op("Exp") - labels]


RULES: dict[str, Rule] = {
    "LogSoftmax": _along_last("LogSoftmax"),
    "Softmax": _along_last("Softmax"),
    "SoftmaxCrossEntropyWithLogits": _cross_entropy,
    "SparseSoftmaxCrossEntropyWithLogits": _sparse_cross_entropy,
}
