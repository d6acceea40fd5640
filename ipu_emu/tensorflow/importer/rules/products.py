"""Rules of products: matrix products, einsum, convolutions and their gradients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ipu_emu.ops import Value
from ipu_emu.tensorflow.importer.node import Rule, SourceNode
from ipu_emu.tensorflow.importer.values import Held


def _matmul(node: SourceNode) -> Value:
    a, b = node.x, node.y
    return a.op("MatMulT", b, transA=int(node.attr("transpose_a")), transB=int(node.attr("transpose_b")))


def _batch_matmul(node: SourceNode) -> Value:
    return node.x.op("MatMulT", node.y, transA=int(node.attr("adj_x")), transB=int(node.attr("adj_y")))


def _einsum(node: SourceNode) -> Value:
    operands = [node.value(index) for index in range(len(node.inputs))]
    return operands[0].op("Einsum", *operands[1:], equation=node.attr("equation").decode())


# Windows


def spatial(values: Any, channels_last: bool) -> list[int]:
    """The entries of the spatial axes."""
    return [int(entry) for entry in (values[1:-1] if channels_last else values[2:])]


def is_channels_last(node: SourceNode) -> bool:
    return bool(node.attr("data_format").decode() in ("NHWC", "NDHWC"))


def padding_of(
    node: SourceNode, sizes: list[int], kernel: list[int], strides: list[int], dilations: list[int]
) -> list[int]:
    """The padding before every spatial axis, then after it."""
    kind = node.attr("padding").decode()
    if kind == "EXPLICIT":
        paddings = list(node.attr("explicit_paddings"))
        pairs = [paddings[2 * axis : 2 * axis + 2] for axis in range(len(sizes) + 2)]
        spatial = pairs[1:-1] if is_channels_last(node) else pairs[2:]
        return [pair[0] for pair in spatial] + [pair[1] for pair in spatial]
    if kind == "VALID":
        return [0] * (2 * len(sizes))
    before, after = [], []
    for size, width, stride, dilation in zip(sizes, kernel, strides, dilations, strict=True):
        needed = max((-(-size // stride) - 1) * stride + (width - 1) * dilation + 1 - size, 0)
        before.append(needed // 2)
        after.append(needed - needed // 2)
    return before + after


def window_attributes(node: SourceNode, image: tuple[int, ...], kernel: list[int]) -> dict[str, Any]:
    """Strides, dilations and padding of a convolution over ``image``, a shape in TensorFlow's order of axes."""
    last = is_channels_last(node)
    strides, sizes = spatial(node.attr("strides"), last), spatial(image, last)
    entries = list(node.attr("dilations")) if node.has("dilations") else []
    dilations = spatial(entries, last) if entries else [1] * len(sizes)
    pads = padding_of(node, sizes, kernel, strides, dilations)
    return {"strides": strides, "dilations": dilations, "pads": pads}


# Images


def image_of(node: SourceNode, index: int) -> Value:
    """Input ``index``, a batch of images, with the channels before the spatial axes."""
    if not is_channels_last(node):
        return node.value(index)
    if len(node.shape(index)) == 4:
        return node.first(index)
    rank = len(node.shape(index))
    return node.value(index).op("Transpose", perm=[0, rank - 1, *range(1, rank - 1)])


def image_result(node: SourceNode, value: Value) -> Held | Value:
    """A batch of images, stored with the channels before the spatial axes, as an output."""
    if not is_channels_last(node):
        return value
    rank = value.tensor.rank
    if rank == 4:
        return Held(value, channels_first=True)
    return value.op("Transpose", perm=[0, *range(2, rank), 1])


def first_shape(node: SourceNode, shape: tuple[int, ...]) -> list[int]:
    return [shape[0], shape[-1], *shape[1:-1]] if is_channels_last(node) else list(shape)


# Convolutions: filters are [spatial..., C, M] and become [M, C, spatial...]; those of depthwise convolutions are
# [h, w, C, m] and become [C m, 1, h, w]


def _is_depthwise(node: SourceNode) -> bool:
    return bool(node.op.type.startswith("Depthwise"))


def _stored(node: SourceNode) -> Value:
    """The filters, which are input 1."""
    filters, rank = node.y, len(node.shape(1))
    if not _is_depthwise(node):
        return filters.op("Transpose", perm=[rank - 1, rank - 2, *range(rank - 2)])
    height, width, channels, multiplier = node.shape(1)
    return filters.op("Transpose", perm=[2, 3, 0, 1]).shaped((channels * multiplier, 1, height, width))


def _groups(node: SourceNode, channels: int, filters: Sequence[int]) -> int:
    return channels if _is_depthwise(node) else channels // filters[-2]


def _conv(node: SourceNode) -> Held | Value:
    x, filters = image_of(node, 0), node.shape(1)
    attributes = window_attributes(node, node.shape(0), list(filters[:-2]))
    group = _groups(node, x.tensor.shape[1], filters)
    return image_result(node, x.op("Conv", _stored(node), group=group, **attributes))


def _conv_data_grad(node: SourceNode) -> Held | Value:
    """(input sizes, filter, gradient)"""
    shape, filters = tuple(node.integers(0)), node.shape(1)
    if len(shape) == 2:  # only the spatial sizes
        shape = (node.shape(2)[0], *shape, filters[-2])
    attributes = window_attributes(node, shape, list(filters[:-2]))
    target = first_shape(node, shape)
    g, group = image_of(node, 2), _groups(node, target[1], filters)
    return image_result(node, g.op("ConvDataGrad", _stored(node), shape=target, group=group, **attributes))


def _conv_filter_grad(node: SourceNode) -> Value:
    """(input, filter sizes, gradient)"""
    *kernel, channels, count = filters = node.integers(1)
    x, g = image_of(node, 0), image_of(node, 2)
    attributes = window_attributes(node, node.shape(0), kernel) | {"group": _groups(node, x.tensor.shape[1], filters)}
    if _is_depthwise(node):
        gradient = g.op("ConvWeightGrad", x, shape=[channels * count, 1, *kernel], **attributes)
        return gradient.shaped((channels, count, *kernel)).op("Transpose", perm=[2, 3, 0, 1])
    gradient = g.op("ConvWeightGrad", x, shape=[count, channels, *kernel], **attributes)
    return gradient.op("Transpose", perm=[*range(2, len(filters)), 1, 0])


RULES: dict[str, Rule] = {
    "BatchMatMul": _batch_matmul,
    "BatchMatMulV2": _batch_matmul,
    "BatchMatMulV3": _batch_matmul,
    "Conv2D": _conv,
    "Conv2DBackpropFilter": _conv_filter_grad,
    "Conv2DBackpropInput": _conv_data_grad,
    "Conv3D": _conv,
    "DepthwiseConv2dNative": _conv,
    "DepthwiseConv2dNativeBackpropFilter": _conv_filter_grad,
    "DepthwiseConv2dNativeBackpropInput": _conv_data_grad,
    "Einsum": _einsum,
    "MatMul": _matmul,
}
