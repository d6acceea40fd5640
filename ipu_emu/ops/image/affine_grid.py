"""Affine grids: for each pixel of a new image, the position in the old image that it is taken from.

theta [N, 2, 3], size (N, C, H, W)      ->   [N, H, W, 2]      x and y, from -1 to 1
theta [N, 3, 4], size (N, C, D, H, W)   ->   [N, D, H, W, 3]   x, y and z
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ipu_emu.graph import Graph, Op
from ipu_emu.ops.core import Node, OpDef, OutputTypes, Rewrite, flops, input_node, replaced_before_run


def _sizes(node: Node) -> list[int]:
    """The number of images, and pixels along each axis of one."""
    theta, size = node.input(0), list(node.attribute_or_constant("size", 1))
    axes = len(size) - 2
    if axes not in (2, 3) or theta.shape != (size[0], axes, axes + 1):
        raise node.fail(f"theta must be [N, 2, 3] or [N, 3, 4], and size (N, C, ...); found {theta} and {size}")
    return [size[0], *size[2:]]


def _shape(node: Node) -> OutputTypes:
    sizes = _sizes(node)
    return [(node.input(0).dtype, (*sizes, len(sizes) - 1))]


def _places(count: int, *, corners: bool) -> NDArray[np.float64]:
    """Positions of ``count`` pixels from -1 to 1: their centres, or with ``corners`` evenly from border to border."""
    if corners:
        return np.linspace(-1, 1, count) if count > 1 else np.zeros(count)
    return (2 * np.arange(count) + 1) / count - 1


def _expand(graph: Graph, op: Op) -> list[Op]:
    """(x, y, 1) of every pixel, times theta."""
    node, rewrite = input_node(graph, op), Rewrite(graph, op)
    sizes, corners = _sizes(node), bool(node.attribute("align_corners", 0))
    axes = np.meshgrid(*(_places(count, corners=corners) for count in sizes[1:]), indexing="ij")
    pixels = np.stack([axis.reshape(-1) for axis in (*axes[::-1], np.ones(sizes[1:]))], 1)
    turned = rewrite.op("Transpose", op.inputs[0], perm=[0, 2, 1])
    grid = rewrite.op("MatMul", rewrite.constant(pixels.astype(node.input(0).dtype.numpy)), turned)
    rewrite.op("ReshapeTo", grid, into=op.outputs[0], shape=[*sizes, len(axes)])
    return rewrite.ops


@flops
def _work(node: Node) -> int:
    return 2 * (len(_sizes(node)) - 1) * node.outputs[0].nelms


OPS = [OpDef("AffineGrid", (2, 2), _shape, replaced_before_run, _work, expand=_expand, constant_inputs={1: "size"})]
