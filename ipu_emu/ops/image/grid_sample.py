"""GridSample and AffineGrid: samples of an image at given positions, interpolated; positions by an affine map.

GridSample   x [N, C, H, W], grid [N, H', W', 2] with (x, y) from -1 to 1   ->   [N, C, H', W']
AffineGrid   theta [N, 2, 3], size (N, C, H, W)                             ->   [N, H, W, 2]
             theta [N, 3, 4], size (N, C, D, H, W)                          ->   [N, D, H, W, 3] with x, y and z
"""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ipu_emu.errors import EmulatorError
from ipu_emu.ops.core import (
    Adjoint,
    BoundOp,
    Call,
    Node,
    OpDef,
    OutputTypes,
    Rewrite,
    Value,
    expanded_op,
    flops,
)

_Array = NDArray[Any]

#: The number of pixels along each axis that a sample is computed from.
_TAPS = {"nearest": 1, "linear": 2, "bilinear": 2, "cubic": 4, "bicubic": 4}
_PADDINGS = ("zeros", "border", "reflection")
#: The parameter of the cubic kernel.
_A = -0.75


def _shape(node: Node) -> OutputTypes:
    x, grid = node.input(0), node.input(1)
    axes = x.rank - 2
    if axes < 1 or grid.rank != x.rank or grid.shape[0] != x.shape[0] or grid.shape[-1] != axes:
        raise node.fail(f"data must be [N, C, D1, ..., Dr] and the grid [N, ..., r], found {x} and {grid}")
    mode, padding = node.attribute("mode", "linear"), node.attribute("padding_mode", "zeros")
    if mode not in _TAPS or padding not in _PADDINGS:
        raise node.fail(
            f"mode {mode} with padding {padding}; use one of {', '.join(_TAPS)} and {', '.join(_PADDINGS)}"
        )
    return [(x.dtype, (*x.shape[:2], *grid.shape[1:-1]))]


def _positions(grid: _Array, size: int, *, corners: bool) -> _Array:
    """Positions from -1 to 1 as pixel coordinates."""
    return (grid + 1) / 2 * (size - 1) if corners else ((grid + 1) * size - 1) / 2


def _reflected(at: _Array, size: int, *, corners: bool) -> _Array:
    """Coordinates outside the image mirrored into it, at the centres of the border pixels or at the border."""
    low, high = (0.0, size - 1.0) if corners else (-0.5, size - 0.5)
    span = high - low
    if span <= 0:
        return np.zeros_like(at)
    folded = np.mod(at - low, 2 * span)
    mirrored: _Array = low + np.where(folded > span, 2 * span - folded, folded)
    return mirrored


def _cubic(distance: _Array) -> _Array:
    d = np.abs(distance)
    near = ((_A + 2) * d - (_A + 3)) * d * d + 1
    far = ((_A * d - 5 * _A) * d + 8 * _A) * d - 4 * _A
    return np.where(d <= 1, near, np.where(d < 2, far, 0.0))


def _taps(at: _Array, taps: int) -> list[tuple[_Array, _Array]]:
    """(pixel, weight) of each tap along one axis."""
    if taps == 1:
        return [(np.rint(at), np.ones_like(at))]
    first = np.floor(at) - (taps // 2 - 1)
    pixels = [first + tap for tap in range(taps)]
    if taps == 2:
        return [(pixel, 1 - np.abs(at - pixel)) for pixel in pixels]
    return [(pixel, _cubic(at - pixel)) for pixel in pixels]


def _sample(bound: BoundOp) -> Call:
    node, x, grid, y = bound.node, bound.input(0), bound.input(1), bound.outputs[0]
    corners, padding = bool(node.attribute("align_corners", 0)), str(node.attribute("padding_mode", "zeros"))
    taps, sizes = _TAPS[str(node.attribute("mode", "linear"))], x.shape[2:]

    def pixel_of(pixel: _Array, size: int) -> tuple[_Array, _Array]:
        """The pixel that is read, and whether it counts."""
        inside = (pixel >= 0) & (pixel <= size - 1)
        if padding == "reflection":
            pixel, inside = _reflected(pixel, size, corners=corners), np.ones_like(inside)
        return np.clip(np.rint(pixel), 0, size - 1).astype(np.int64), inside | (padding != "zeros")

    def run() -> None:
        batch = np.arange(x.shape[0]).reshape(-1, *[1] * (grid.ndim - 2))
        axes = []
        for index, size in enumerate(sizes):  # the grid has the last axis first
            at = _positions(grid[..., len(sizes) - 1 - index].astype(np.float64), size, corners=corners)
            if padding == "border" and taps < 4:
                at = np.clip(at, 0, size - 1)
            elif padding == "reflection" and taps < 4:
                at = np.clip(_reflected(at, size, corners=corners), 0, size - 1)
            axes.append([(*pixel_of(pixel, size), weight) for pixel, weight in _taps(at, taps)])
        total = np.zeros((x.shape[0], *grid.shape[1:-1], x.shape[1]))
        for chosen in product(*axes):
            weight = np.ones(grid.shape[:-1])
            for _, inside, part in chosen:
                weight = weight * part * inside
            places = tuple(pixel for pixel, _, _ in chosen)
            total += weight[..., None] * np.moveaxis(x, 1, -1)[(batch, *places)]
        np.copyto(y, np.moveaxis(total, -1, 1), casting="unsafe")

    return run


def _no_gradient(d: Adjoint) -> list[Value | None]:
    raise EmulatorError(
        f"Op {d.node.op.label}: GridSample has no gradient here; detach its input or train without it"
    )


@flops
def _work(node: Node) -> int:
    taps: int = _TAPS[str(node.attribute("mode", "linear"))] ** (node.input(0).rank - 2)
    return 2 * taps * node.outputs[0].nelms


def _sizes(node: Node) -> list[int]:
    """The number of images, and pixels along each axis of one."""
    theta, size = node.input(0), list(node.attribute_or_constant("size", 1))
    axes = len(size) - 2
    if axes not in (2, 3) or theta.shape != (size[0], axes, axes + 1):
        raise node.fail(f"theta must be [N, 2, 3] or [N, 3, 4], and size (N, C, ...); found {theta} and {size}")
    return [size[0], *size[2:]]


def _grid_shape(node: Node) -> OutputTypes:
    sizes = _sizes(node)
    return [(node.input(0).dtype, (*sizes, len(sizes) - 1))]


def _places(count: int, *, corners: bool) -> NDArray[np.float64]:
    """Positions of ``count`` pixels from -1 to 1: their centres, or with ``corners`` evenly from border to border."""
    if corners:
        return np.linspace(-1, 1, count) if count > 1 else np.zeros(count)
    return (2 * np.arange(count) + 1) / count - 1


def _expand_grid(rewrite: Rewrite, node: Node) -> None:
    """(x, y, 1) of every pixel, times theta."""
    sizes, corners = _sizes(node), bool(node.attribute("align_corners", 0))
    axes = np.meshgrid(*(_places(count, corners=corners) for count in sizes[1:]), indexing="ij")
    pixels = np.stack([axis.reshape(-1) for axis in (*axes[::-1], np.ones(sizes[1:]))], 1)
    turned = rewrite.op("Transpose", node.op.inputs[0], perm=[0, 2, 1])
    grid = rewrite.op("MatMul", rewrite.constant(pixels.astype(node.input(0).dtype.numpy)), turned)
    rewrite.op("ReshapeTo", grid, into=node.op.outputs[0], shape=[*sizes, len(axes)])


@flops
def _grid_work(node: Node) -> int:
    return 2 * (len(_sizes(node)) - 1) * node.outputs[0].nelms


OPS = [
    OpDef("GridSample", (2, 2), _shape, _sample, _work, _no_gradient),
    expanded_op("AffineGrid", (2, 2), _grid_shape, _expand_grid, _grid_work, constant_inputs={1: "size"}),
]
