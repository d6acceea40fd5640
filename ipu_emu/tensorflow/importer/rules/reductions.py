"""Rules of reductions, of ArgMax and ArgMin, and of cumulative sums."""

from __future__ import annotations

import numpy as np

from ipu_emu.graph.dtype import FLOAT
from ipu_emu.ops import Value
from ipu_emu.tensorflow.importer.node import Rule, SourceNode
from ipu_emu.tensorflow.importer.rules.arithmetic import cast_to
from ipu_emu.tensorflow.importer.rules.shapes import PLACES
from ipu_emu.tensorflow.importer.values import Held

#: For each axis of images stored channels first, the axis of TensorFlow's images.
_AXES = (0, 2, 3, 1)


def _axes(node: SourceNode, rank: int) -> list[int]:
    return sorted({axis % rank for axis in node.integers(1)}) if rank else []


def _reduced(node: SourceNode, type: str, held: Held | None = None) -> Held:
    """A reduction of input 0, or of ``held``, along the known axes of input 1; images keep their order of axes."""
    held = held or node.held(0)
    axes, keep = _axes(node, len(held.shape)), int(node.attr("keep_dims"))
    if not axes:
        return held
    if held.channels_first:
        places = sorted(PLACES[axis] for axis in axes)
        left = [_AXES[place] for place in range(4) if place not in places]
        if keep or left == sorted(left):
            reduced = held.value.op(type, axes=places, keepdims=keep)
            return Held(reduced, channels_first=bool(keep))
        held = Held(node.writer.plain(held))
    return Held(held.value.op(type, axes=axes, keepdims=keep))


def _reduction(type: str) -> Rule:
    return lambda node: _reduced(node, type)


def _logical(type: str) -> Rule:
    """The rule of All, the minimum of zeros and ones, and of Any, the maximum."""

    def rule(node: SourceNode) -> Held:
        held = node.held(0)
        reduced = _reduced(node, type, Held(held.value.op("Cast", to=FLOAT.onnx), held.channels_first))
        return Held(reduced.value.op("Greater", reduced.value.like(0.5)), reduced.channels_first)

    return rule


def _norm(node: SourceNode) -> Held:
    held = node.held(0)
    return _reduced(node, "ReduceL2", Held(held.value.op("Abs"), held.channels_first))


def _half_square(node: SourceNode) -> Value:
    value = node.held(0).value
    return value.op("ReduceSumSquare", axes=list(range(value.tensor.rank)), keepdims=0) * 0.5


def _extreme_place(type: str) -> Rule:
    def rule(node: SourceNode) -> Value:
        x, axis = node.x, node.integer(1)
        return cast_to(x.op(type, axis=axis % x.tensor.rank, keepdims=0), node.numpy_of("output_type"))

    return rule


def _cumulative(type: str) -> Rule:
    def rule(node: SourceNode) -> Value:
        x, axis = node.x, node.integer(1)
        options = {name: int(node.attr(name)) for name in ("exclusive", "reverse")}
        return x.op(type, node.constant(axis % x.tensor.rank, np.int32), **options)

    return rule


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
    "All": _logical("ReduceMin"),
    "Any": _logical("ReduceMax"),
    "ArgMax": _extreme_place("ArgMax"),
    "ArgMin": _extreme_place("ArgMin"),
    "Cumprod": _cumulative("CumProd"),
    "Cumsum": _cumulative("CumSum"),
    "EuclideanNorm": _norm,
    "L2Loss": _half_square,
    "LogSoftmax": _along_last("LogSoftmax"),
    "Max": _reduction("ReduceMax"),
    "Mean": _reduction("ReduceMean"),
    "Min": _reduction("ReduceMin"),
    "Prod": _reduction("ReduceProd"),
    "Softmax": _along_last("Softmax"),
    "SoftmaxCrossEntropyWithLogits": _cross_entropy,
    "SparseSoftmaxCrossEntropyWithLogits": _sparse_cross_entropy,
    "Sum": _reduction("ReduceSum"),
}
