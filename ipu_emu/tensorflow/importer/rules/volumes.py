"""Rules of volumes: gradients of convolutions and poolings over three axes, computed by those over two.

    x [N, C, D, H, W]    slabs [N, C, kd, OD, H, W]: the elements that each of OD outputs reads along axis D

For a convolution OD joins the batch and kd the channels; a pooling reduces kd first.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ipu_emu.ops import Value
from ipu_emu.tensorflow.importer.node import Rule, SourceNode
from ipu_emu.tensorflow.importer.rules.arithmetic import cast_to
from ipu_emu.tensorflow.importer.rules.products import (
    first_shape,
    image_of,
    image_result,
    is_channels_last,
    padding_of,
    spatial,
    window_attributes,
)
from ipu_emu.tensorflow.importer.values import Held


@dataclass(frozen=True)
class _Slabs:
    """Slabs: ``places`` [kd, OD] along an axis of ``size``; places outside the axis read padding."""

    node: SourceNode
    places: Any
    size: int

    @classmethod
    def of(cls, node: SourceNode, size: int, width: int, window: dict[str, Any]) -> _Slabs:
        before, after = window["pads"][0], window["pads"][3]
        stride, dilation = window["strides"][0], (window.get("dilations") or [1])[0]
        outputs = (size + before + after - dilation * (width - 1) - 1) // stride + 1
        return cls(node, np.arange(outputs) * stride + np.arange(width)[:, None] * dilation - before, size)

    @property
    def edges(self) -> tuple[int, int]:
        """The padding before and after the axis."""
        return max(-int(self.places.min()), 0), max(int(self.places.max()) + 1 - self.size, 0)

    @property
    def counts(self) -> Any:
        """The number of places of each output that are not padding."""
        return ((self.places >= 0) & (self.places < self.size)).sum(0)

    def _indices(self) -> Value:
        return self.node.constant(self.places + self.edges[0], np.int32)

    def cut(self, x: Value, fill: float = 0.0) -> Value:
        """[N, C, D, H, W] -> [N, C, kd, OD, H, W]"""
        before, after = self.edges
        if before or after:
            x = x.op("Pad", pads=[0, 0, before, 0, 0, 0, 0, after, 0, 0], mode="constant", value=fill)
        return x.op("Gather", self._indices(), axis=2)

    def joined(self, slabs: Value) -> Value:
        """The adjoint of ``cut``: the sum of the elements of each place."""
        n, c, _, _, *rest = slabs.tensor.shape
        before, after = self.edges
        padded = slabs.op("GatherGrad", self._indices(), axis=2, shape=[n, c, before + self.size + after, *rest])
        return padded.op("Slice", starts=[before], ends=[before + self.size], axes=[2]) if before or after else padded


def _flat(window: dict[str, Any]) -> dict[str, Any]:
    """The attributes of the last two spatial axes."""
    flat = {name: list(values[1:]) for name, values in window.items() if name != "pads"}
    pads = window["pads"]
    return {**flat, "pads": [*pads[1:3], *pads[4:6]]}


# Convolutions: filters are [kd, kh, kw, C, M]


def _outputs_of(g: Value) -> Value:
    """[N, M, OD, OH, OW] -> [N OD, M, OH, OW]"""
    n, m, depth, *rest = g.tensor.shape
    return g.op("Transpose", perm=[0, 2, 1, 3, 4]).shaped((n * depth, m, *rest))


def _data_grad(node: SourceNode) -> Held | Value:
    """(input sizes, filter, gradient)"""
    shape, (taps, *kernel, per_group, m) = tuple(node.integers(0)), node.shape(1)
    n, c, *sizes = first_shape(node, shape)
    window = window_attributes(node, shape, [taps, *kernel])
    slabs, g = _Slabs.of(node, sizes[0], taps, window), _outputs_of(image_of(node, 2))
    filters = node.y.op("Transpose", perm=[4, 3, 0, 1, 2]).shaped((m, per_group * taps, *kernel))
    depth = slabs.places.shape[1]
    target = [n * depth, c * taps, *sizes[1:]]
    gradient = g.op("ConvDataGrad", filters, shape=target, group=c // per_group, **_flat(window))
    apart = gradient.shaped((n, depth, c, taps, *sizes[1:])).op("Transpose", perm=[0, 2, 3, 1, 4, 5])
    return image_result(node, slabs.joined(apart))


def _filter_grad(node: SourceNode) -> Value:
    """(input, filter sizes, gradient)"""
    taps, *kernel, per_group, m = node.integers(1)
    x, g = image_of(node, 0), _outputs_of(image_of(node, 2))
    _, c, *sizes = x.tensor.shape
    window = window_attributes(node, node.shape(0), [taps, *kernel])
    slabs = _Slabs.of(node, sizes[0], taps, window).cut(x).op("Transpose", perm=[0, 3, 1, 2, 4, 5])
    flat = slabs.shaped((slabs.tensor.shape[0] * slabs.tensor.shape[1], c * taps, *sizes[1:]))
    target = [m, per_group * taps, *kernel]
    gradient = g.op("ConvWeightGrad", flat, shape=target, group=c // per_group, **_flat(window))
    return gradient.shaped((m, per_group, taps, *kernel)).op("Transpose", perm=[2, 3, 4, 1, 0])


# Poolings


def _windows(node: SourceNode, shape: tuple[int, ...]) -> dict[str, Any]:
    last = is_channels_last(node)
    kernel, strides, sizes = (spatial(entries, last) for entries in (node.attr("ksize"), node.attr("strides"), shape))
    return {"kernel_shape": kernel, "strides": strides, "pads": padding_of(node, sizes, kernel, strides, [1] * 3)}


def _channels_with_depth(value: Value) -> Value:
    """[N, C, OD, H, W] -> [N, C OD, H, W]"""
    n, c, depth, *rest = value.tensor.shape
    return value.shaped((n, c * depth, *rest))


def _average_grad(node: SourceNode) -> Held | Value:
    """(shape of the input, gradient)"""
    shape, g = tuple(node.integers(0)), image_of(node, 1)
    n, c, *sizes = first_shape(node, shape)
    window = _windows(node, shape)
    slabs = _Slabs.of(node, sizes[0], window["kernel_shape"][0], window)
    depth, flat = slabs.places.shape[1], _channels_with_depth(g)
    gradient = flat.op("AveragePoolGrad", shape=[n, c * depth, *sizes[1:]], **_flat(window))
    shares = node.constant(1.0 / slabs.counts.reshape(-1, 1, 1), np.float32)
    scaled = gradient.shaped((n, c, 1, depth, *sizes[1:])) * cast_to(shares, g.tensor.dtype.numpy)
    return image_result(node, slabs.joined(scaled.spread_to((n, c, len(slabs.places), depth, *sizes[1:]))))


def _max_grad(node: SourceNode) -> Held | Value:
    """(input, output, gradient); the first of equal elements gets the gradient."""
    x, y, g = (image_of(node, index) for index in range(3))
    n, c, *sizes = x.tensor.shape
    window = _windows(node, node.shape(0))
    slabs = _Slabs.of(node, sizes[0], window["kernel_shape"][0], window)
    cut = slabs.cut(x, -np.inf)
    largest = cut.op("ReduceMax", axes=[2], keepdims=0)
    gradient = _channels_with_depth(g).op(
        "MaxPoolGrad", _channels_with_depth(largest), _channels_with_depth(y), **_flat(window)
    )
    depth = slabs.places.shape[1]
    numbers = node.constant(np.arange(len(slabs.places)).reshape(-1, 1, 1, 1), np.int32)
    first = cast_to(cut.op("ArgMax", axis=2, keepdims=1), np.int32).op("Equal", numbers)
    routed = gradient.shaped((n, c, 1, depth, *sizes[1:])) * cast_to(first, x.tensor.dtype.numpy)
    return image_result(node, slabs.joined(routed))


RULES: dict[str, Rule] = {
    "AvgPool3DGrad": _average_grad,
    "Conv3DBackpropFilterV2": _filter_grad,
    "Conv3DBackpropInputV2": _data_grad,
    "MaxPool3DGrad": _max_grad,
}
