"""Spatial rank: convolutions and poolings over one or three axes in terms of those over two.

[N, C, W]          a second axis of size 1
[N, C, D, H, W]    the D axis is gathered, [N, C, kd, OD, H, W]: for a convolution OD joins the batch and kd the
                   channels, for a pooling kd is reduced
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ipu_emu.graph import Op
from ipu_emu.ops.core.node import Node
from ipu_emu.ops.core.rewrite import Rewrite
from ipu_emu.ops.core.sliding_windows import Windows

_WHOLE = ("group", "ceil_mode", "count_include_pad")
_PER_AXIS = ("strides", "dilations", "kernel_shape")


def _windows(node: Node) -> Windows:
    kernel = node.input(1).shape[2:] if len(node.inputs) > 1 else tuple(node.attribute("kernel_shape", []))
    return Windows.of(node, node.input(0).shape[2:], kernel)


def _flat(attributes: Any) -> dict[str, Any]:
    """The attributes of a 1-D op as those of a 2-D op whose first axis has size 1."""
    flat = dict(attributes)
    for name in _PER_AXIS:
        if flat.get(name):
            flat[name] = [1, *flat[name]]
    if flat.get("pads"):
        flat["pads"] = [0, flat["pads"][0], 0, flat["pads"][1]]
    return flat


def _plain(op: Op, windows: Windows, axes: slice) -> dict[str, Any]:
    """The attributes of some axes, with explicit padding."""
    others = {name: op.attributes[name] for name in _WHOLE if name in op.attributes}
    window = {"strides": windows.strides, "dilations": windows.dilations}
    pads = [*windows.pads[axes], *windows.ends[axes]]
    return {**others, **{name: list(values[axes]) for name, values in window.items()}, "pads": pads}


def convolution_as_2d(rewrite: Rewrite, node: Node) -> None:
    """Expand a convolution that does not have two spatial axes."""
    op, windows = node.op, _windows(node)
    if len(windows.input) == 2:
        return
    (n, c), (m, per_group) = rewrite.shape(op.inputs[0])[:2], rewrite.shape(op.inputs[1])[:2]
    if len(windows.input) == 1:
        x = rewrite.op("ReshapeTo", op.inputs[0], shape=[n, c, 1, *windows.input])
        w = rewrite.op("ReshapeTo", op.inputs[1], shape=[m, per_group, 1, *windows.kernel])
        y = rewrite.op("Conv", x, w, *op.inputs[2:], **_flat(_plain(op, windows, slice(None))))
        rewrite.op("ReshapeTo", y, into=op.outputs[0], shape=[n, m, *windows.output])
        return
    if len(windows.input) != 3:
        raise node.fail(f"{len(windows.input)} spatial axes are not supported; use 1 to 3")
    taps, depth = windows.kernel[0], windows.output[0]
    gathered = _gathered(rewrite, op.inputs[0], windows, 0.0)
    turned = rewrite.op("Transpose", gathered, perm=[0, 3, 1, 2, 4, 5])
    x = rewrite.op("ReshapeTo", turned, shape=[n * depth, c * taps, *windows.input[1:]])
    w = rewrite.op("ReshapeTo", op.inputs[1], shape=[m, per_group * taps, *windows.kernel[1:]])
    y = rewrite.op("Conv", x, w, *op.inputs[2:], **_plain(op, windows, slice(1, 3)))
    apart = rewrite.op("ReshapeTo", y, shape=[n, depth, m, *windows.output[1:]])
    rewrite.op("Transpose", apart, into=op.outputs[0], perm=[0, 2, 1, 3, 4])


def spaced(rewrite: Rewrite, x: str, shape: Sequence[int], strides: Sequence[int]) -> str:
    """``x`` [N, C, ...] of ``shape`` with stride - 1 zeros after each element of its spatial axes."""
    apart = [n for size in shape[2:] for n in (size, 1)]
    zeros = [n for stride in strides for n in (0, stride - 1)]
    split = rewrite.op("ReshapeTo", x, shape=[*shape[:2], *apart])
    padded = rewrite.op("Pad", split, pads=[0] * (2 + len(zeros)) + [0, 0, *zeros], mode="constant", value=0.0)
    long = [size * stride for size, stride in zip(shape[2:], strides, strict=True)]
    return rewrite.op("ReshapeTo", padded, shape=[*shape[:2], *long])


def _gathered(rewrite: Rewrite, x: str, windows: Windows, fill: float) -> str:
    """[N, C, kd, OD, H, W]: the windows of the first spatial axis, padded with ``fill``."""
    places = np.array(windows.places(0))
    before, after = max(-int(places.min()), 0), max(int(places.max()) - windows.input[0] + 1, 0)
    if before or after:
        x = rewrite.op("Pad", x, pads=[0, 0, before, 0, 0, 0, 0, after, 0, 0], mode="constant", value=fill)
    return rewrite.op("Gather", x, rewrite.constant(places + before), axis=2)


def pooling_as_2d(rewrite: Rewrite, node: Node) -> None:
    """Expand a pooling that does not have two spatial axes."""
    op, windows, (n, c) = node.op, _windows(node), node.input(0).shape[:2]
    if len(windows.input) == 2:
        return
    if len(windows.input) == 1:
        x = rewrite.op("ReshapeTo", op.inputs[0], shape=[n, c, 1, *windows.input])
        attributes = _flat({**_plain(op, windows, slice(None)), "kernel_shape": list(windows.kernel)})
        y = rewrite.op(op.type, x, **attributes)
        rewrite.op("ReshapeTo", y, into=op.outputs[0], shape=[n, c, *windows.output])
        return
    if len(windows.input) != 3:
        raise node.fail(f"{len(windows.input)} spatial axes are not supported; use 1 to 3")
    attributes = {**_plain(op, windows, slice(1, 3)), "kernel_shape": list(windows.kernel[1:])}
    if op.type == "MaxPool":
        _maxima_of_slices(rewrite, op, windows, attributes)
        return
    gathered = _gathered(rewrite, op.inputs[0], windows, 0.0)
    x = rewrite.op("ReduceSum", gathered, axes=[2], keepdims=0)
    kind = node.input(0).dtype.numpy
    counts = windows.counts(0, padding=bool(node.attribute("count_include_pad", 0)))
    x = rewrite.op("Div", x, rewrite.constant(np.maximum(np.array(counts, kind), 1).reshape(-1, 1, 1)))
    depth = windows.output[0]
    x = rewrite.op("ReshapeTo", x, shape=[n, c * depth, *windows.input[1:]])
    y = rewrite.op(op.type, x, **attributes)
    rewrite.op("ReshapeTo", y, into=op.outputs[0], shape=[n, c, *windows.output])


def _maxima_of_slices(rewrite: Rewrite, op: Op, windows: Windows, attributes: dict[str, Any]) -> None:
    """The maxima of each slice, then the first of the largest of them, which alone gets the gradient."""
    n, c, depth, *image = rewrite.shape(op.inputs[0])
    slices = rewrite.op("MaxPool", rewrite.op("ReshapeTo", op.inputs[0], shape=[n, c * depth, *image]), **attributes)
    maxima = rewrite.op("ReshapeTo", slices, shape=[n, c, depth, *windows.output[1:]])
    gathered = _gathered(rewrite, maxima, windows, -np.inf)
    first = rewrite.op("ArgMax", gathered, axis=2, keepdims=1)
    y = rewrite.op("GatherElements", gathered, first, axis=2)
    rewrite.op("ReshapeTo", y, into=op.outputs[0], shape=[n, c, *windows.output])
