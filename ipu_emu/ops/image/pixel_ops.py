"""Pixel ops: channels become blocks of pixels, and back; pixels are scaled and get a fourth channel (aiGraphcore)."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from ipu_emu.graph.op import GRAPHCORE
from ipu_emu.ops.core import Node, OutputTypes, Rewrite, copy_cost, per_element
from ipu_emu.ops.core.op_definition import BoundOp, Call, OpDef, expanded_op


def _blocks(node: Node) -> tuple[int, ...]:
    x, block = node.input(0), int(node.attribute("blocksize", 1))
    if x.rank != 4 or block < 1:
        raise node.fail(f"data must be [N, C, H, W] and blocksize positive, found {x} and {block}")
    return (*x.shape, block)


def _depth_shape(node: Node) -> OutputTypes:
    n, c, h, w, b = _blocks(node)
    if c % (b * b):
        raise node.fail(f"{c} channels cannot be divided into blocks of {b} by {b} pixels")
    return [(node.input(0).dtype, (n, c // (b * b), h * b, w * b))]


# Splitting an axis is a view of any array.


def _depth_to_space(bound: BoundOp) -> Call:
    x, y, (n, c, h, w, b) = bound.input(0), bound.outputs[0], _blocks(bound.node)
    c //= b * b
    if bound.node.attribute("mode", "DCR") == "DCR":
        parts = x.reshape(n, b, b, c, h, w).transpose(0, 3, 4, 1, 5, 2)
    else:
        parts = x.reshape(n, c, b, b, h, w).transpose(0, 1, 4, 2, 5, 3)
    return partial(np.copyto, y.reshape(n, c, h, b, w, b), parts)


def _space_shape(node: Node) -> OutputTypes:
    n, c, h, w, b = _blocks(node)
    if h % b or w % b:
        raise node.fail(f"{node.input(0)} is not a whole number of blocks of {b} by {b} pixels")
    return [(node.input(0).dtype, (n, c * b * b, h // b, w // b))]


def _space_to_depth(bound: BoundOp) -> Call:
    x, y, (n, c, h, w, b) = bound.input(0), bound.outputs[0], _blocks(bound.node)
    parts = x.reshape(n, c, h // b, b, w // b, b)
    if bound.node.attribute("mode", "DCR") == "DCR":
        return partial(np.copyto, y.reshape(n, b, b, c, h // b, w // b), parts.transpose(0, 3, 5, 1, 2, 4))
    return partial(np.copyto, y.reshape(n, c, b, b, h // b, w // b), parts.transpose(0, 1, 3, 5, 2, 4))


def _inverse(type: str) -> Any:
    return lambda d: d.g.op(type, **d.node.op.attributes)


def _normalized_shape(node: Node) -> OutputTypes:
    x, offsets, scales = (node.input(index) for index in range(3))
    if x.rank < 1 or x.shape[-1] != 3 or offsets.shape != (3,) or scales.shape != (3,):
        raise node.fail(f"inputs must be pixels [..., 3], 3 offsets and 3 scales, found {x}, {offsets} and {scales}")
    if offsets.dtype is not scales.dtype or not offsets.dtype.is_float:
        raise node.fail(f"{offsets} and {scales} must have the same floating-point type")
    return [(offsets.dtype, (*x.shape[:-1], 4))]


def _normalize(rewrite: Rewrite, node: Node) -> None:
    """(x scale - offsets) scales"""
    x = rewrite.op("Cast", node.op.inputs[0], to=node.input(1).dtype.onnx)
    x = rewrite.op("Scale", x, scale=float(node.attribute("scale", 1.0)))
    x = rewrite.op("Mul", rewrite.op("Sub", x, node.op.inputs[1]), node.op.inputs[2])
    before = [0] * node.input(0).rank
    rewrite.op("Pad", x, into=node.op.outputs[0], pads=[*before, *before[1:], 1], mode="constant", value=0.0)


OPS = [
    OpDef("DepthToSpace", (1, 1), _depth_shape, _depth_to_space, copy_cost, _inverse("SpaceToDepth")),
    OpDef(
        "DepthToSpace",
        (1, 1),
        _depth_shape,
        _depth_to_space,
        copy_cost,
        _inverse("SpaceToDepth"),
        domain=GRAPHCORE,
    ),
    OpDef("SpaceToDepth", (1, 1), _space_shape, _space_to_depth, copy_cost, _inverse("DepthToSpace")),
    expanded_op("NormalizeImage", (3, 3), _normalized_shape, _normalize, per_element(3), domain=GRAPHCORE),
]
