"""Rules of pooling and batch normalisation."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from ipu_emu.ops import Value
from ipu_emu.ops.normalisation.shared_batch_norm import (
    GROUP_SIZE,
    MOMENTS,
    SHARED,
    SHARED_GRAD,
    SLOPES,
    mean_of_group,
)
from ipu_emu.tensorflow.importer.node import Rule, SourceNode
from ipu_emu.tensorflow.importer.rules.arithmetic import cast_to
from ipu_emu.tensorflow.importer.rules.products import (
    first_shape,
    image_of,
    image_result,
    is_channels_last,
    padding_of,
    spatial,
)
from ipu_emu.tensorflow.importer.values import Held


def _image(node: SourceNode, index: int) -> Value:
    """A batch of images as [N, C, H, W], or of volumes as [N, C, D H, W]."""
    images = image_of(node, index)
    batch, channels, *sizes, width = images.tensor.shape
    return images.shaped((batch, channels, prod(sizes), width))


def _made(node: SourceNode, value: Value) -> Held | Value:
    """The result of an op whose first input are images or volumes."""
    return image_result(node, value.shaped(tuple(first_shape(node, node.shape(0)))))


# Pooling


def _windows(node: SourceNode, shape: tuple[int, ...]) -> dict[str, Any]:
    """The attributes of a pooling over images of ``shape`` in TensorFlow's order of axes."""
    last = is_channels_last(node)
    kernel, strides, sizes = (spatial(entries, last) for entries in (node.attr("ksize"), node.attr("strides"), shape))
    pads = padding_of(node, sizes, kernel, strides, [1] * len(sizes))
    return {"kernel_shape": kernel, "strides": strides, "pads": pads}


def _max_pool(node: SourceNode) -> Held | Value:
    return image_result(node, image_of(node, 0).op("MaxPool", **_windows(node, node.shape(0))))


def _max_pool_grad(node: SourceNode) -> Held | Value:
    """(input, output, gradient)"""
    x, y, g = (image_of(node, index) for index in range(3))
    return image_result(node, g.op("MaxPoolGrad", x, y, **_windows(node, node.shape(0))))


def _average_pool(node: SourceNode) -> Held | Value:
    return image_result(node, image_of(node, 0).op("AveragePool", **_windows(node, node.shape(0))))


def _average_pool_grad(node: SourceNode) -> Held | Value:
    """(shape of the input, gradient)"""
    shape = tuple(node.integers(0))
    gradient = image_of(node, 1).op("AveragePoolGrad", shape=first_shape(node, shape), **_windows(node, shape))
    return image_result(node, gradient)


# Batch normalisation


def _batch_norm(node: SourceNode) -> list[Any]:
    """(x, scale, offset, mean, variance) -> y, the new running statistics, and what the gradient needs."""
    x = _image(node, 0)
    scale, offset, old_mean, old_variance = (node.value(index) for index in range(1, 5))
    epsilon = float(node.attr("epsilon"))
    factor = float(node.attr("exponential_avg_factor")) if node.has("exponential_avg_factor") else 1.0
    if not node.attr("is_training"):
        y = x.op("BatchNormInfer", *_typed(x, scale, offset, old_mean, old_variance), epsilon=epsilon)
        return [_made(node, y), old_mean, old_variance, old_mean, old_variance, old_mean]
    count, channels = x.tensor.nelms, x.tensor.shape[1]
    group = node.writer.norm_group
    if group > 1:
        y, mean, variance, inverse = _shared(node, x, scale, offset, epsilon)
    else:
        y, mean, variance, inverse = x.ops(4, "BatchNormTrain", scale, offset, epsilon=epsilon)
    samples = group * count // max(channels, 1)
    unbiased = variance * (samples / max(samples - 1, 1))
    if factor == 1.0:
        return [_made(node, y), mean, unbiased, mean, inverse, mean]
    running = [old * (1.0 - factor) + new * factor for old, new in ((old_mean, mean), (old_variance, unbiased))]
    return [_made(node, y), *running, mean, inverse, mean]


def _typed(x: Value, *others: Value) -> list[Value]:
    return [cast_to(other, x.tensor.dtype.numpy) for other in others]


def _of_channel(value: Value) -> Value:
    return value.shaped((*value.tensor.shape, 1, 1))


def _shared(node: SourceNode, x: Value, scale: Value, offset: Value, epsilon: float) -> list[Value]:
    """Normalise by the statistics of the batches of all replicas of a group."""
    group = node.writer.norm_group
    moments = x.op(MOMENTS).op("ReplicatedMean", **mean_of_group(group))
    attributes = {GROUP_SIZE: group, "epsilon": epsilon}
    return x.ops(4, SHARED, scale, offset, moments, **attributes)


def _batch_norm_grad(node: SourceNode) -> list[Any]:
    """(g, x, scale, mean, inverse deviation or variance) -> dx, dscale, doffset; the deviation has the epsilon."""
    g, x = _image(node, 0), _image(node, 1)
    scale, mean, spread = (node.value(index) for index in (2, 3, 4))
    epsilon = float(node.attr("epsilon"))
    if not node.attr("is_training"):
        inverse = (spread + epsilon).op("Sqrt").op("Reciprocal")
        parts = _fixed_grad(g, x, scale, mean, inverse)
    elif node.writer.norm_group > 1:
        parts = _shared_grad(node, g, x, scale, mean, spread)
    else:
        parts = g.ops(3, "BatchNormGrad", x, scale, mean, spread)
    zero = node.constant(np.zeros((0,)), np.float32)
    return [_made(node, parts[0]), *parts[1:], zero, zero]


def _fixed_grad(g: Value, x: Value, scale: Value, mean: Value, inverse: Value) -> list[Value]:
    """The gradients if the statistics do not depend on x."""
    wide, data = cast_to(g, np.float32), cast_to(x, np.float32)
    normal = (data - _of_channel(mean)) * _of_channel(inverse)
    dx = wide * _of_channel(scale * inverse)
    sums = [product.op("ReduceSum", axes=[0, 2, 3], keepdims=0) for product in (wide * normal, wide)]
    return [cast_to(dx, x.tensor.dtype.numpy), *sums]


def _shared_grad(node: SourceNode, g: Value, x: Value, scale: Value, mean: Value, inverse: Value) -> list[Value]:
    slopes, dscale, doffset = g.ops(3, SLOPES, x, scale, mean, inverse)
    shared = slopes.op("ReplicatedMean", **mean_of_group(node.writer.norm_group))
    return [g.op(SHARED_GRAD, x, scale, mean, inverse, shared), dscale, doffset]


def _local_response(node: SourceNode) -> Held:
    size = 2 * int(node.attr("depth_radius")) + 1
    alpha, beta, bias = (float(node.attr(name)) for name in ("alpha", "beta", "bias"))
    return Held(node.first(0).op("LRN", size=size, alpha=alpha * size, beta=beta, bias=bias), channels_first=True)


RULES: dict[str, Rule] = {
    "AvgPool": _average_pool,
    "AvgPool3D": _average_pool,
    "AvgPoolGrad": _average_pool_grad,
    "FusedBatchNorm": _batch_norm,
    "FusedBatchNormGrad": _batch_norm_grad,
    "FusedBatchNormGradV2": _batch_norm_grad,
    "FusedBatchNormGradV3": _batch_norm_grad,
    "FusedBatchNormV2": _batch_norm,
    "FusedBatchNormV3": _batch_norm,
    "LRN": _local_response,
    "MaxPool": _max_pool,
    "MaxPool3D": _max_pool,
    "MaxPoolGrad": _max_pool_grad,
}
