"""RoI pooling: regions of interest of an image, each pooled into a grid of the same size.

    X [N, C, H, W]   regions   ->   Y [R, C, height, width]

RoiAlign takes the mean or maximum of samples that are interpolated between pixels; MaxRoiPool the largest pixel.
"""

from __future__ import annotations

from functools import partial
from math import ceil, floor
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gcl.kernels.jit import jit, part
from ipu_emu.graph import Tensor
from ipu_emu.ops.core import Adjoint, BoundOp, Call, Node, OpDef, OutputTypes, Value, call_chain, per_element
from ipu_emu.ops.core.kernel_helpers import with_contiguous_operands
from ipu_emu.ops.core.shape_rules import same

# Samples between the pixels


@part
def _between(at: Any, size: int) -> tuple[int, int, Any]:
    """Pixels below and above a coordinate, and the weight of the latter; coordinates are clamped to the image."""
    at = max(at, 0.0)
    low = min(int(at), size - 1)
    high = min(low + 1, size - 1)
    return low, high, at - low if high > low else 0.0


@part
def _samples(size: Any, bins: int, ratio: int) -> int:
    return ratio if ratio > 0 else ceil(size / bins)


@jit
def roi_align(
    x: NDArray[Any],
    regions: NDArray[Any],
    images: NDArray[Any],
    y: NDArray[Any],
    dx: NDArray[Any],
    ratio: int,
    scale: float,
    half_pixel: bool,
    largest: bool,
    backwards: bool,
) -> None:
    """y = mean, or with ``largest`` maximum, of the samples of each bin; ``backwards`` adds the gradient y to dx.

    ``regions`` [R, 4] are x and y of two corners, ``images`` [R] the image of each region. A sample outside of its
    image counts as 0.
    """
    height, width, rows, columns = x.shape[2], x.shape[3], y.shape[2], y.shape[3]
    shift, least = (0.5, -np.inf) if half_pixel else (0.0, 1.0)
    for r in range(y.shape[0]):
        image = images[r] % x.shape[0]
        left, top = regions[r, 0] * scale - shift, regions[r, 1] * scale - shift
        across = max(regions[r, 2] * scale - shift - left, least)
        down = max(regions[r, 3] * scale - shift - top, least)
        many_v, many_h = _samples(down, rows, ratio), _samples(across, columns, ratio)
        count = max(many_v * many_h, 1)
        for c in range(y.shape[1]):
            for i in range(rows):
                for j in range(columns):
                    total, best, u_best, v_best, w_best = 0.0, -np.inf, 0, 0, 0.0
                    for sample in range(many_v * many_h):
                        v = top + (i + (sample // many_h + 0.5) / many_v) * down / rows
                        u = left + (j + (sample % many_h + 0.5) / many_h) * across / columns
                        outside = v < -1 or v > height or u < -1 or u > width
                        v_low, v_high, v_share = _between(v, height)
                        u_low, u_high, u_share = _between(u, width)
                        for corner in range(4):
                            a = v_high if corner // 2 else v_low
                            b = u_high if corner % 2 else u_low
                            w = (v_share if corner // 2 else 1 - v_share) * (u_share if corner % 2 else 1 - u_share)
                            w = 0.0 if outside else w
                            value = w * x[image, c, a, b]
                            total += value
                            if value > best:
                                best, u_best, v_best, w_best = value, b, a, w
                            if backwards and not largest:
                                dx[image, c, a, b] += y[r, c, i, j] * w / count
                    if not backwards:
                        y[r, c, i, j] = (best if many_v * many_h else 0.0) if largest else total / count
                    elif largest and many_v * many_h:
                        dx[image, c, v_best, u_best] += y[r, c, i, j] * w_best


def _grid(node: Node, x: Tensor) -> tuple[int, int]:
    if x.rank != 4:
        raise node.fail(f"data must be [N, C, H, W], found {x}")
    return int(node.attribute("output_height", 1)), int(node.attribute("output_width", 1))


def _align_shape(node: Node) -> OutputTypes:
    x, regions, images = (node.input(index) for index in range(3))
    if regions.rank != 2 or regions.shape[1] != 4 or images.shape != regions.shape[:1]:
        raise node.fail(f"inputs must be regions [R, 4] and images [R], found {regions} and {images}")
    if node.attribute("mode", "avg") not in ("avg", "max"):
        raise node.fail(f"mode {node.attribute('mode', '')} is not one of avg, max")
    return [(x.dtype, (regions.shape[0], x.shape[1], *_grid(node, x)))]


def _settings(node: Node) -> tuple[int, float, bool, bool]:
    half = "half_pixel" if node.op.version >= 16 else "output_half_pixel"
    return (
        int(node.attribute("sampling_ratio", 0)),
        float(node.attribute("spatial_scale", 1.0)),
        node.attribute("coordinate_transformation_mode", half) == "half_pixel",
        node.attribute("mode", "avg") == "max",
    )


def _align(bound: BoundOp) -> Call:
    x, regions, images = (bound.input(index) for index in range(3))
    return partial(roi_align, x, regions, images, bound.outputs[0], x, *_settings(bound.node), False)


def _align_rule(d: Adjoint) -> list[Value | None]:
    ratio, scale, half_pixel, largest = _settings(d.node)
    attributes = {
        "sampling_ratio": ratio,
        "spatial_scale": scale,
        "coordinate_transformation_mode": "half_pixel" if half_pixel else "output_half_pixel",
        "mode": "max" if largest else "avg",
    }
    return [d.x.op("RoiAlignGrad", d.input(1), d.input(2), d.g, **attributes), None, None]


def _align_back(bound: BoundOp) -> Call:
    x, regions, images, g = (bound.input(index) for index in range(4))
    dx = bound.outputs[0]
    step = partial(roi_align, x, regions, images, g, dx, *_settings(bound.node), True)
    return call_chain(partial(dx.fill, 0), step)


# Whole pixels


@jit
def max_roi_pool(
    x: NDArray[Any], regions: NDArray[Any], y: NDArray[Any], dx: NDArray[Any], scale: float, backwards: bool
) -> None:
    """y = the largest pixel of each bin, 0 for an empty bin; ``backwards`` adds the gradient y to that pixel of dx.

    ``regions`` [R, 5] are the index of the image, and x and y of two corners, which are rounded to pixels.
    """
    height, width, rows, columns = x.shape[2], x.shape[3], y.shape[2], y.shape[3]
    for r in range(y.shape[0]):
        image = int(regions[r, 0]) % x.shape[0]
        left, top = floor(regions[r, 1] * scale + 0.5), floor(regions[r, 2] * scale + 0.5)
        across = max(floor(regions[r, 3] * scale + 0.5) - left + 1, 1) / columns
        down = max(floor(regions[r, 4] * scale + 0.5) - top + 1, 1) / rows
        for c in range(y.shape[1]):
            for i in range(rows):
                for j in range(columns):
                    best, a_best, b_best = -np.inf, -1, -1
                    for a in range(max(top + floor(i * down), 0), min(top + ceil((i + 1) * down), height)):
                        for b in range(max(left + floor(j * across), 0), min(left + ceil((j + 1) * across), width)):
                            if x[image, c, a, b] > best:
                                best, a_best, b_best = x[image, c, a, b], a, b
                    if not backwards:
                        y[r, c, i, j] = best if a_best >= 0 else 0.0
                    elif a_best >= 0:
                        dx[image, c, a_best, b_best] += y[r, c, i, j]


def _pool_shape(node: Node) -> OutputTypes:
    x, regions, grid = node.input(0), node.input(1), list(node.attribute("pooled_shape", []))
    if x.rank != 4 or regions.rank != 2 or regions.shape[1] != 5 or len(grid) != 2:
        raise node.fail(f"inputs must be data [N, C, H, W], regions [R, 5], two sizes; found {x}, {regions}, {grid}")
    return [(x.dtype, (regions.shape[0], x.shape[1], *grid))]


def _scale(node: Node) -> float:
    return float(node.attribute("spatial_scale", 1.0))


def _pool(bound: BoundOp) -> Call:
    x, regions = bound.input(0), bound.input(1)
    return partial(max_roi_pool, x, regions, bound.outputs[0], x, _scale(bound.node), False)


def _pool_back(bound: BoundOp) -> Call:
    x, regions, g = (bound.input(index) for index in range(3))
    dx = bound.outputs[0]
    return call_chain(partial(dx.fill, 0), partial(max_roi_pool, x, regions, g, dx, _scale(bound.node), True))


_cost = per_element(40)

OPS = [
    OpDef("RoiAlign", (3, 3), _align_shape, with_contiguous_operands(_align), _cost, _align_rule),
    # RoiAlignGrad(x, regions, images, g)
    OpDef("RoiAlignGrad", (4, 4), same, with_contiguous_operands(_align_back), _cost),
    OpDef(
        "MaxRoiPool",
        (2, 2),
        _pool_shape,
        with_contiguous_operands(_pool),
        _cost,
        lambda d: [d.x.op("MaxRoiPoolGrad", d.input(1), d.g, **d.node.op.attributes), None],
    ),
    # MaxRoiPoolGrad(x, regions, g)
    OpDef("MaxRoiPoolGrad", (3, 3), same, with_contiguous_operands(_pool_back), _cost),
]
