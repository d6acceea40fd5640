"""Transposed convolution: the gradient of a convolution with respect to its data, used forwards.

Over three axes it is a convolution with stride 1: of the data with zeros between the elements, by mirrored weights.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ipu_emu.ops.core import Node, OutputTypes, Rewrite, expanded_op, flops
from ipu_emu.ops.core.spatial_rank import spaced


@dataclass(frozen=True)
class _Sizes:
    """Per spatial axis: size of the output, padding that is removed from it, stride, dilation."""

    output: list[int]
    begins: list[int]
    ends: list[int]
    strides: list[int]
    dilations: list[int]

    @classmethod
    def of(cls, node: Node) -> _Sizes:
        input, kernel = node.input(0).shape[2:], node.input(1).shape[2:]
        rank = len(input)
        strides, dilations, extra = (
            list(node.attribute(name, [])) or [default] * rank
            for name, default in (("strides", 1), ("dilations", 1), ("output_padding", 0))
        )
        full = [
            (size - 1) * stride + dilation * (k - 1) + 1 + more
            for size, stride, dilation, k, more in zip(input, strides, dilations, kernel, extra, strict=True)
        ]
        begins, ends = _cut(node, full, [size * stride for size, stride in zip(input, strides, strict=True)])
        output = [size - before - after for size, before, after in zip(full, begins, ends, strict=True)]
        requested = list(node.attribute("output_shape", []))[-rank:]
        output = [max(sizes) for sizes in zip(output, requested or output, strict=True)]
        if min(output) < 1 or min(begins + ends) < 0:
            raise node.fail(f"pads {begins + ends} reduce the output {full} to {output}; use smaller pads")
        return cls(output, begins, ends, strides, dilations)

    def missing(self, node: Node) -> list[int]:
        """The elements after the data that the gradient of a convolution with this result would have: zeros."""
        reach = [d * (k - 1) + 1 for d, k in zip(self.dilations, node.input(1).shape[2:], strict=True)]
        padded = [sum(sizes) for sizes in zip(self.output, self.begins, self.ends, strict=True)]
        counts = [(n - r) // s + 1 for n, r, s in zip(padded, reach, self.strides, strict=True)]
        return [max(count - size, 0) for count, size in zip(counts, node.input(0).shape[2:], strict=True)]


def _cut(node: Node, full: list[int], same: list[int]) -> tuple[list[int], list[int]]:
    """(begins, ends): as given, or such that the output has the requested size.

    An odd cut leaves a half that is larger. Of a given ``output_shape`` it is cut from the front for SAME_UPPER only
    (PopART); of the shape that SAME_UPPER and SAME_LOWER stand for, for SAME_LOWER only (ONNX).
    """
    rank, kind = len(full), node.attribute("auto_pad", "NOTSET")
    requested, larger_first = list(node.attribute("output_shape", []))[-rank:], "SAME_UPPER"
    if not requested and kind in ("SAME_UPPER", "SAME_LOWER"):
        requested, larger_first = same, "SAME_LOWER"
    if requested:
        total = [max(size - want, 0) for size, want in zip(full, requested, strict=True)]
        small = [t // 2 for t in total]
        large = [t - t // 2 for t in total]
        return (large, small) if kind == larger_first else (small, large)
    pads = list(node.attribute("pads", [])) if kind == "NOTSET" else []
    pads = pads or [0] * 2 * rank
    return pads[:rank], pads[rank:]


def _shape(node: Node) -> OutputTypes:
    x, w, group = node.input(0), node.input(1), node.attribute("group", 1)
    if x.rank not in (3, 4, 5) or w.rank != x.rank:
        raise node.fail(f"data must be [N, C, ...] and weights [C, M, ...] with 1 to 3 spatial axes, found {x}, {w}")
    if x.shape[1] != w.shape[0] or x.dtype != w.dtype:
        raise node.fail(f"{x} and {w} must have the same type and number of channels")
    return [(x.dtype, (x.shape[0], w.shape[1] * group, *_Sizes.of(node).output))]


def _expand(rewrite: Rewrite, node: Node) -> None:
    sizes, (x, w) = _Sizes.of(node), node.op.inputs[:2]
    shape, longer = list(rewrite.graph.tensor(node.op.outputs[0]).shape), sizes.missing(node)
    if any(longer) and len(sizes.output) < 3:
        zeros = [0] * (4 + len(longer)) + longer
        x = rewrite.op("Pad", x, pads=zeros, mode="constant", value=0.0)
    if len(sizes.output) == 3:
        _spread(rewrite, node, sizes)
        return
    is_1d = len(sizes.output) == 1
    if is_1d:
        data = [*node.input(0).shape[:2], 1, node.input(0).shape[2] + longer[0]]
        x = rewrite.op("ReshapeTo", x, shape=data)
        w = rewrite.op("ReshapeTo", w, shape=_flat(rewrite.shape(w)))
        sizes = _Sizes(
            [1, *sizes.output], [0, *sizes.begins], [0, *sizes.ends], [1, *sizes.strides], [1, *sizes.dilations]
        )
    attributes = {
        "strides": sizes.strides,
        "dilations": sizes.dilations,
        "pads": [*sizes.begins, *sizes.ends],
        "group": node.attribute("group", 1),
    }
    y = rewrite.op("ConvDataGrad", x, w, shape=[*shape[:2], *sizes.output], **attributes)
    if node.has_input(2):
        bias = rewrite.op("ReshapeTo", node.op.inputs[2], shape=[1, shape[1], 1, 1])
        y = rewrite.op("Add", y, bias)
    rewrite.op("ReshapeTo", y, into=node.op.outputs[0], shape=shape)


def _spread(rewrite: Rewrite, node: Node, sizes: _Sizes) -> None:
    """Expand to a convolution with stride 1."""
    op, x, kernel = rewrite.original, list(node.input(0).shape), node.input(1).shape[2:]
    data = spaced(rewrite, op.inputs[0], x, sizes.strides)
    long = [size * stride for size, stride in zip(x[2:], sizes.strides, strict=True)]
    reach = [dilation * (k - 1) for dilation, k in zip(sizes.dilations, kernel, strict=True)]
    before = [n - begin for n, begin in zip(reach, sizes.begins, strict=True)]
    after = [y + n - b - size for y, n, b, size in zip(sizes.output, reach, before, long, strict=True)]
    padded = rewrite.op("Pad", data, pads=[0, 0, *before, 0, 0, *after], mode="constant", value=0.0)
    group = node.attribute("group", 1)
    weights = _turned(rewrite, list(node.input(1).shape), group)
    attributes = {"strides": [1] * 3, "dilations": sizes.dilations, "pads": [0] * 6, "group": group}
    y = rewrite.op("Conv", padded, weights, *op.inputs[2:], **attributes)
    rewrite.op("Identity", y, into=op.outputs[0])


def _turned(rewrite: Rewrite, shape: list[int], group: int) -> str:
    """Weights [C, M / group, ...] as [M, C / group, ...], mirrored along the spatial axes."""
    (channels, out), kernel = shape[:2], shape[2:]
    w = rewrite.op("ReshapeTo", rewrite.original.inputs[1], shape=[group, channels // group, out, *kernel])
    w = rewrite.op("Transpose", w, perm=[0, 2, 1, *range(3, 3 + len(kernel))])
    w = rewrite.op("ReshapeTo", w, shape=[group * out, channels // group, *kernel])
    for axis, size in enumerate(kernel):
        w = rewrite.op("Gather", w, rewrite.constant(np.arange(size)[::-1].copy()), axis=2 + axis)
    return w


def _flat(shape: tuple[int, ...]) -> list[int]:
    return [*shape[:2], 1, *shape[2:]]


def _products(node: Node) -> int:
    w = node.input(1).shape
    return 2 * node.input(0).nelms * node.input(1).nelms // max(w[0], 1)


OPS = [expanded_op("ConvTranspose", (2, 3), _shape, _expand, flops(_products))]
