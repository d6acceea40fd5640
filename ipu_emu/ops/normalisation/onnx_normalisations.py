"""ONNX normalisations: expanded to PopART's group normalisation and to arithmetic."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from ipu_emu.graph.dtype import FLOAT
from ipu_emu.graph.op import GRAPHCORE
from ipu_emu.ops.core import Node, OutputTypes, Rewrite, expanded_op, per_element
from ipu_emu.ops.core.shape_rules import axes_of, axis_of, broadcasts_to, same


def _group(rewrite: Rewrite, x: str, scale: str, bias: str, groups: int, epsilon: float) -> str:
    attributes: dict[str, Any] = {"num_groups": groups, "epsilon": epsilon}
    return rewrite.op("GroupNormalization", x, scale, bias, outputs=3, domain=GRAPHCORE, **attributes)


# Over the last axes of each sample


def _layer_shape(node: Node) -> OutputTypes:
    x = node.input(0)
    axis = axis_of(node, node.attribute("axis", -1))
    for index in (1, 2):
        if node.has_input(index):
            _broadcast_to(node, index, x.shape[axis:])
    statistics = (*x.shape[:axis], *(1 for _ in x.shape[axis:]))
    return [(x.dtype, x.shape), (FLOAT, statistics), (FLOAT, statistics)]


def _broadcast_to(node: Node, index: int, shape: tuple[int, ...]) -> None:
    if not broadcasts_to(node.input(index).shape, shape):
        raise node.fail(f"{node.input(index)} does not broadcast to {list(shape)}")


def _layer(rewrite: Rewrite, node: Node) -> None:
    x = node.input(0)
    axis = axis_of(node, node.attribute("axis", -1))
    inner = x.shape[axis:]
    rows, columns = prod(x.shape[:axis]), prod(inner)
    scale = _vector(rewrite, node.op.inputs[1], inner)
    zeros = np.zeros(columns, node.input(1).dtype.numpy)
    bias = _vector(rewrite, node.op.inputs[2], inner) if node.has_input(2) else rewrite.constant(zeros)
    flat = rewrite.op("ReshapeTo", node.op.inputs[0], shape=[rows, columns])
    y = _group(rewrite, flat, scale, bias, 1, node.attribute("epsilon", 1e-5))
    for result, output in zip((y, f"{y}/1", f"{y}/2"), node.op.outputs, strict=False):
        rewrite.op("ReshapeTo", result, into=output, shape=list(rewrite.graph.tensor(output).shape))


def _vector(rewrite: Rewrite, id: str, inner: tuple[int, ...]) -> str:
    if rewrite.shape(id) != inner:
        id = rewrite.op("SpreadTo", id, shape=list(inner))
    return rewrite.op("ReshapeTo", id, shape=[prod(inner)])


def _rms(rewrite: Rewrite, node: Node) -> None:
    """x / sqrt(mean(x * x) + epsilon), scaled"""
    x = node.input(0)
    axis = axis_of(node, node.attribute("axis", -1))
    wide = rewrite.op("Cast", node.op.inputs[0], to=FLOAT.onnx)
    mean = rewrite.op("ReduceMean", rewrite.op("Mul", wide, wide), axes=list(range(axis, x.rank)), keepdims=1)
    epsilon = rewrite.constant(np.float32(node.attribute("epsilon", 1e-5)))
    root = rewrite.op("Sqrt", rewrite.op("Add", mean, epsilon))
    y = rewrite.op("Cast", rewrite.op("Div", wide, root), to=node.input(1).dtype.onnx)
    rewrite.op("Mul", y, node.op.inputs[1], into=node.op.outputs[0])


def _rms_shape(node: Node) -> OutputTypes:
    x = node.input(0)
    _broadcast_to(node, 1, x.shape[axis_of(node, node.attribute("axis", -1)) :])
    return [(node.input(1).dtype, x.shape)]


# Per channel, per group of channels


def _channels_shape(node: Node) -> OutputTypes:
    x = node.input(0)
    if x.rank < 3:
        raise node.fail(f"data must be [N, C, ...], found {x}")
    for index in (1, 2):
        if node.input(index).rank != 1:
            raise node.fail(f"{node.input(index)} must be a vector")
    return same(node)


def _instance(rewrite: Rewrite, node: Node) -> None:
    x, scale, bias = node.op.inputs
    y = _group(rewrite, x, scale, bias, node.input(0).shape[1], node.attribute("epsilon", 1e-5))
    rewrite.op("Identity", y, into=node.op.outputs[0])


def _groups(rewrite: Rewrite, node: Node) -> None:
    """GroupNormalization; scale and bias have a number per channel, before opset 21 per group."""
    channels, groups = node.input(0).shape[1], node.attribute("num_groups", 1)
    scale, bias = node.op.inputs[1:]
    if node.input(1).shape != (channels,):
        at = rewrite.constant(np.repeat(np.arange(groups), channels // groups))
        scale, bias = (rewrite.op("Gather", id, at, axis=0) for id in (scale, bias))
    y = _group(rewrite, node.op.inputs[0], scale, bias, groups, node.attribute("epsilon", 1e-5))
    rewrite.op("Identity", y, into=node.op.outputs[0])


def _mean_variance(rewrite: Rewrite, node: Node) -> None:
    """(x - mean) / (standard deviation + 1e-9)"""
    axes = list(axes_of(node, node.attribute("axes", [0, 2, 3])))
    mean = rewrite.op("ReduceMean", node.op.inputs[0], axes=axes, keepdims=1)
    centred = rewrite.op("Sub", node.op.inputs[0], mean)
    variance = rewrite.op("ReduceMean", rewrite.op("Mul", centred, centred), axes=axes, keepdims=1)
    tiny = rewrite.constant(np.array(1e-9, node.input(0).dtype.numpy))
    deviation = rewrite.op("Add", rewrite.op("Sqrt", variance), tiny)
    rewrite.op("Div", centred, deviation, into=node.op.outputs[0])


def _lp(rewrite: Rewrite, node: Node) -> None:
    """x / norm, 0 where the norm is 0"""
    power, axis = node.attribute("p", 2), axis_of(node, node.attribute("axis", -1))
    if power not in (1, 2):
        raise node.fail(f"p is {power}; use 1 or 2")
    norm = rewrite.op(f"ReduceL{power}", node.op.inputs[0], axes=[axis], keepdims=1)
    zero, unit = (rewrite.constant(np.array(value, node.input(0).dtype.numpy)) for value in (0, 1))
    safe = rewrite.op("Where", rewrite.op("Equal", norm, zero), unit, norm)
    rewrite.op("Div", node.op.inputs[0], safe, into=node.op.outputs[0])


def _local_response(rewrite: Rewrite, node: Node) -> None:
    """x / (bias + alpha / size * sum of squares of the channels nearby) ^ beta"""
    x, size = node.input(0), int(node.attribute("size", 1))
    kind, flat = x.dtype.numpy, [x.shape[0], 1, x.shape[1], prod(x.shape[2:])]
    square = rewrite.op("ReshapeTo", rewrite.op("Mul", node.op.inputs[0], node.op.inputs[0]), shape=flat)
    before = (size - 1) // 2
    pads = [before, 0, size - 1 - before, 0]
    mean = rewrite.op("AveragePool", square, kernel_shape=[size, 1], pads=pads, strides=[1, 1], count_include_pad=1)
    mean = rewrite.op("ReshapeTo", mean, shape=list(x.shape))
    alpha, bias, beta = (
        rewrite.constant(np.array(node.attribute(name, default), kind))
        for name, default in (("alpha", 1e-4), ("bias", 1.0), ("beta", 0.75))
    )
    scale = rewrite.op("Pow", rewrite.op("Add", rewrite.op("Mul", mean, alpha), bias), beta)
    rewrite.op("Div", node.op.inputs[0], scale, into=node.op.outputs[0])


_cost = per_element(8)

OPS = [
    expanded_op("LayerNormalization", (2, 3), _layer_shape, _layer, _cost),
    expanded_op("RMSNormalization", (2, 2), _rms_shape, _rms, _cost),
    expanded_op("InstanceNormalization", (3, 3), _channels_shape, _instance, _cost),
    expanded_op("GroupNormalization", (3, 3), _channels_shape, _groups, _cost),
    expanded_op("MeanVarianceNormalization", (1, 1), same, _mean_variance, _cost),
    expanded_op("LpNormalization", (1, 1), same, _lp, _cost),
    expanded_op("LRN", (1, 1), same, _local_response, _cost),
]
