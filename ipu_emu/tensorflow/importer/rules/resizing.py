"""Rules of resized images: the rows of the nearest pixels, or a product with the weights of their neighbours."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ipu_emu.ops import Value
from ipu_emu.tensorflow.importer.node import Rule, SourceNode


def _scale(node: SourceNode, size: int, wanted: int) -> np.float32:
    """The number of pixels of an axis of ``size`` per pixel of the ``wanted`` ones."""
    if node.attr("align_corners") and wanted > 1:
        return np.float32((size - 1) / np.float32(wanted - 1))
    return np.float32(size / np.float32(wanted))


def _nearest(node: SourceNode, size: int, wanted: int) -> NDArray[np.int32]:
    """The source pixel of each wanted pixel."""
    scale, places = _scale(node, size, wanted), np.arange(wanted, dtype=np.float32)
    if node.attr("half_pixel_centers"):
        places = places + np.float32(0.5)
    source = places * scale
    rounded = np.floor(source + np.float32(0.5)) if node.attr("align_corners") else np.floor(source)
    pixels: NDArray[np.int32] = np.clip(rounded, 0, size - 1).astype(np.int32)
    return pixels


def _weights(node: SourceNode, size: int, wanted: int) -> NDArray[np.float32]:
    """The weight of each pixel in each wanted pixel, [wanted, size]."""
    scale, places = _scale(node, size, wanted), np.arange(wanted, dtype=np.float32)
    half = np.float32(0.5)
    source = (places + half) * scale - half if node.attr("half_pixel_centers") else places * scale
    below = np.floor(source)
    share = (source - below).astype(np.float32)
    weights = np.zeros((wanted, size), np.float32)
    rows = np.arange(wanted)
    np.add.at(weights, (rows, np.maximum(below, 0).astype(int)), 1 - share)
    np.add.at(weights, (rows, np.minimum(np.ceil(source), size - 1).astype(int)), share)
    return weights


def _along(node: SourceNode, x: Value, weights: tuple[NDArray[np.float32], ...]) -> Value:
    """The products of the weights with the rows, then with the columns, of images [N, H, W, C]."""
    n, h, w, c = x.tensor.shape
    rows, columns = (node.constant(matrix, np.float32) for matrix in weights)
    high, wide = weights[0].shape[0], weights[1].shape[0]
    y = rows.op("MatMul", x.shaped((n, h, w * c))).shaped((n * high, w, c))
    return columns.op("MatMul", y).shaped((n, high, wide, c))


def _bilinear(node: SourceNode) -> Value:
    (_, h, w, _), wanted = node.shape(0), node.integers(1)
    return _along(node, node.x, (_weights(node, h, wanted[0]), _weights(node, w, wanted[1])))


def _bilinear_grad(node: SourceNode) -> Value:
    """(gradient, image)"""
    (_, high, wide, _), (_, h, w, _) = node.shape(0), node.shape(1)
    return _along(node, node.x, (_weights(node, h, high).T, _weights(node, w, wide).T))


def _nearest_image(node: SourceNode) -> Value:
    value, wanted = node.x, node.integers(1)
    for axis, size in ((1, wanted[0]), (2, wanted[1])):
        places = _nearest(node, value.tensor.shape[axis], size)
        value = value.op("Gather", node.constant(places, np.int32), axis=axis)
    return value


def _nearest_grad(node: SourceNode) -> Value:
    """(gradient, size of the image)"""
    value, sizes = node.x, node.integers(1)
    for axis, size in ((1, sizes[0]), (2, sizes[1])):
        shape = list(value.tensor.shape)
        places = node.constant(_nearest(node, size, shape[axis]), np.int32)
        shape[axis] = size
        value = value.op("GatherGrad", places, axis=axis, shape=shape)
    return value


RULES: dict[str, Rule] = {
    "ResizeBilinear": _bilinear,
    "ResizeBilinearGrad": _bilinear_grad,
    "ResizeNearestNeighbor": _nearest_image,
    "ResizeNearestNeighborGrad": _nearest_grad,
}
