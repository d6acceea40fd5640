"""Transposed convolution: the gradient of a convolution with respect to its data, used forwards."""

from __future__ import annotations

from dataclasses import dataclass

from ipu_emu.graph import Graph, Op
from ipu_emu.ops.cost import flops
from ipu_emu.ops.node import Made, Node, inputs_of
from ipu_emu.ops.registry import OpDef, unreached
from ipu_emu.ops.rewrite import Rewrite

__all__ = ["OPS"]


@dataclass(frozen=True)
class _Sizes:
    """Per spatial axis: size of the output, padding that is cut off it, stride, dilation."""

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
        asked = list(node.attribute("output_shape", []))[-rank:]
        output = [max(sizes) for sizes in zip(output, asked or output, strict=True)]
        if min(output) < 1 or min(begins + ends) < 0:
            raise node.fail(f"pads {begins + ends} leave {output} of {full}")
        return cls(output, begins, ends, strides, dilations)


def _cut(node: Node, full: list[int], same: list[int]) -> tuple[list[int], list[int]]:
    """(begins, ends): given, or what makes the output of the size that is asked for."""
    rank, kind = len(full), node.attribute("auto_pad", "NOTSET")
    asked = list(node.attribute("output_shape", []))[-rank:]
    if not asked and kind in ("SAME_UPPER", "SAME_LOWER"):
        asked = same
    if asked:
        total = [max(size - want, 0) for size, want in zip(full, asked, strict=True)]
        small = [t // 2 for t in total]
        large = [t - t // 2 for t in total]
        return (large, small) if kind == "SAME_LOWER" else (small, large)
    pads = list(node.attribute("pads", [])) if kind == "NOTSET" else []
    pads = pads or [0] * 2 * rank
    return pads[:rank], pads[rank:]


def _shape(node: Node) -> Made:
    x, w, group = node.input(0), node.input(1), node.attribute("group", 1)
    if x.rank not in (3, 4) or w.rank != x.rank:
        raise node.fail(
            f"data [N, C, H, W] and weights [C, M, kh, kw], or those of one axis, are needed, found {x}, {w}"
        )
    if x.shape[1] != w.shape[0] or x.dtype != w.dtype:
        raise node.fail(f"{x} and {w} must have one type and one number of channels")
    return [(x.dtype, (x.shape[0], w.shape[1] * group, *_Sizes.of(node).output))]


def _expand(graph: Graph, op: Op) -> list[Op]:
    node, rewrite = inputs_of(graph, op), Rewrite(graph, op)
    sizes, (x, w) = _Sizes.of(node), op.inputs[:2]
    shape = list(graph.tensor(op.outputs[0]).shape)
    one = len(sizes.output) == 1
    if one:
        x, w = (rewrite.op("ReshapeTo", id, shape=_flat(rewrite.shape(id))) for id in (x, w))
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
        bias = rewrite.op("ReshapeTo", op.inputs[2], shape=[1, shape[1], 1, 1])
        y = rewrite.op("Add", y, bias)
    rewrite.op("ReshapeTo", y, into=op.outputs[0], shape=shape)
    return rewrite.ops


def _flat(shape: tuple[int, ...]) -> list[int]:
    return [*shape[:2], 1, *shape[2:]]


def _products(node: Node) -> int:
    w = node.input(1).shape
    return 2 * node.input(0).nelms * node.input(1).nelms // max(w[0], 1)


OPS = [OpDef("ConvTranspose", (2, 3), _shape, unreached, flops(_products), expand=_expand)]
