"""ONNX losses: negative log likelihood and softmax cross entropy, with class weights."""

from __future__ import annotations

import numpy as np

from ipu_emu.ops.core import Node, OutputTypes, Rewrite, expanded_op, per_element
from popdist_py.messages.suggestion import did_you_mean


def _nll_shape(node: Node) -> OutputTypes:
    x, labels = node.input(0), node.input(1)
    if x.rank < 2 or labels.shape != (x.shape[0], *x.shape[2:]) or not labels.dtype.is_integer:
        raise node.fail(f"labels {labels} must be integers of shape {[x.shape[0], *x.shape[2:]]} to match {x}")
    if node.has_input(2) and node.input(2).shape != (x.shape[1],):
        raise node.fail(f"weights {node.input(2)} must have shape [{x.shape[1]}]")
    reduction, reductions = node.attribute("reduction", "mean"), ("none", "sum", "mean")
    if reduction not in reductions:
        hint = did_you_mean(reduction, reductions)
        raise node.fail(f"reduction {reduction} is not one of {', '.join(reductions)}{hint}")
    return [(x.dtype, labels.shape if reduction == "none" else ())]


def _cross_entropy_shape(node: Node) -> OutputTypes:
    x = node.input(0)
    return [*_nll_shape(node), (x.dtype, x.shape)]


def _nll(rewrite: Rewrite, node: Node) -> None:
    _loss(rewrite, node, node.op.inputs[0])


def _cross_entropy(rewrite: Rewrite, node: Node) -> None:
    rank = node.input(0).rank
    if rank == 2:
        _loss(rewrite, node, rewrite.op("LogSoftmax", node.op.inputs[0], into=node.op.outputs[1], axis=1))
        return
    perm = [0, *range(2, rank), 1]
    back = [0, rank - 1, *range(1, rank - 1)]
    turned = rewrite.op("Transpose", node.op.inputs[0], perm=perm)
    logs = rewrite.op("LogSoftmax", turned, axis=rank - 1)
    logs = rewrite.op("Transpose", logs, into=node.op.outputs[1], perm=back)
    _loss(rewrite, node, logs)


def _loss(rewrite: Rewrite, node: Node, logs: str) -> None:
    """-logs[label] * weight[label], 0 for ``ignore_index``; a mean divides by the sum of the weights."""
    op, x, labels = node.op, node.input(0), node.input(1)
    wide = [x.shape[0], 1, *x.shape[2:]]
    at = rewrite.op("ReshapeTo", op.inputs[1], shape=wide)
    ignored, zero, none = (
        rewrite.constant(np.array(value, kind))
        for value, kind in (
            (node.attribute("ignore_index", -(2**31)), labels.dtype.numpy),
            (0, labels.dtype.numpy),
            (0, x.dtype.numpy),
        )
    )
    skip = rewrite.op("Equal", at, ignored)
    safe = rewrite.op("Where", skip, zero, at)
    weights = rewrite.constant(np.ones(x.shape[1], x.dtype.numpy))
    class_weights = op.inputs[2] if node.has_input(2) else weights
    weight = rewrite.op("Where", skip, none, rewrite.op("Gather", class_weights, safe, axis=0))
    picked = rewrite.op("GatherElements", logs, safe, axis=1)
    loss = rewrite.op("Neg", rewrite.op("Mul", picked, weight))
    reduction = node.attribute("reduction", "mean")
    if reduction == "none":
        rewrite.op("ReshapeTo", loss, into=op.outputs[0], shape=list(labels.shape))
        return
    total = rewrite.op("ReduceSum", loss, keepdims=0)
    if reduction == "mean":
        total = rewrite.op("Div", total, rewrite.op("ReduceSum", weight, keepdims=0))
    rewrite.op("Identity", total, into=op.outputs[0])


OPS = [
    expanded_op("NegativeLogLikelihoodLoss", (2, 3), _nll_shape, _nll, per_element(3)),
    expanded_op("SoftmaxCrossEntropyLoss", (2, 3), _cross_entropy_shape, _cross_entropy, per_element(15)),
]
