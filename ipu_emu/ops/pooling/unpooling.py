"""Unpooling: the positions of the largest elements of windows, and elements put back at such positions.

Positions are indices into the flattened tensor, as ONNX specifies.
"""

from __future__ import annotations

from itertools import product
from math import prod
from typing import Any

import numpy as np

from ipu_emu.graph.dtype import INT64
from ipu_emu.ops.core import Adjoint, Node, OpDef, OutputTypes, Value, copy_cost, flops
from ipu_emu.ops.core.kernel_helpers import allocating_kernel
from ipu_emu.ops.core.sliding_windows import Windows

_Array = Any


# Places of the largest elements


def _places(node: Node, x: _Array, y: _Array) -> _Array:
    """The flat index of the first element of each window of x that equals the maximum in y, or is NaN."""
    windows = Windows.of_pooling(node, x.shape)
    numbers = _numbered(x.shape, columns_first=bool(node.attribute("storage_order", 0)))
    indices = np.full(y.shape, -1, np.int64)
    for taps in product(*(windows.places(axis) for axis in range(len(windows.input)))):
        places = [np.array(tap) for tap in taps]
        within = [(p >= 0) & (p < n) for p, n in zip(places, windows.input, strict=True)]
        inside = np.logical_and.reduce(np.meshgrid(*within, indexing="ij"))
        at = np.ix_(*(np.clip(p, 0, n - 1) for p, n in zip(places, windows.input, strict=True)))
        window = (slice(None), slice(None), *at)
        fits = ((x[window] == y) | np.isnan(x[window])) & inside & (indices < 0)
        indices = np.where(fits, np.broadcast_to(numbers[window], y.shape), indices)
    return indices


def _numbered(shape: tuple[int, ...], *, columns_first: bool) -> _Array:
    """The index of each element; ``columns_first`` numbers the spatial axes in column-major order."""
    channels, inner = prod(shape[:2]), shape[2:]
    image = np.arange(prod(inner)).reshape(inner, order="F" if columns_first else "C")
    starts = np.arange(channels).reshape(*shape[:2], *[1] * len(inner)) * prod(inner)
    return starts + image


# Putting back


def _inferred(node: Node, x: tuple[int, ...]) -> tuple[int, ...]:
    """The smallest shape whose pooling gives ``x``."""
    kernel = list(node.attribute("kernel_shape", []))
    rank = len(kernel)
    strides, pads = (
        list(node.attribute(name, [])) or default
        for name, default in (("strides", [1] * rank), ("pads", [0] * 2 * rank))
    )
    if len(x) != rank + 2 or len(strides) != rank or len(pads) != 2 * rank:
        raise node.fail(f"kernel {kernel}, strides {strides} and pads {pads} do not fit {list(x)}")
    sizes = zip(x[2:], kernel, strides, pads[:rank], pads[rank:], strict=True)
    return (*x[:2], *((n - 1) * stride - low - high + k for n, k, stride, low, high in sizes))


def _shape(node: Node) -> OutputTypes:
    x, places = node.input(0), node.input(1)
    if places.shape != x.shape or not places.dtype.is_integer:
        raise node.fail(f"{places} must have one index for each element of {x}")
    inferred = _inferred(node, x.shape)
    wanted = node.attribute_or_constant("output_shape", 2)
    if wanted is not None and (len(wanted) != x.rank or any(a < n for a, n in zip(wanted, inferred, strict=True))):
        raise node.fail(f"output_shape {wanted} is smaller than {list(inferred)}")
    return [(x.dtype, inferred if wanted is None else tuple(wanted))]


def _corner(shape: tuple[int, ...]) -> tuple[slice, ...]:
    return tuple(slice(size) for size in shape)


def _unpool(node: Node, x: _Array, places: _Array) -> _Array:
    inner = np.zeros(_inferred(node, x.shape), x.dtype)
    inner.reshape(-1)[places.reshape(-1)] = x.reshape(-1)
    out = np.zeros(node.outputs[0].shape, x.dtype)
    out[_corner(inner.shape)] = inner
    return out


def _grad(d: Adjoint) -> list[Value | None]:
    return [d.g.op("MaxUnpoolGrad", d.input(1), **d.node.op.attributes), None]


def _back_shape(node: Node) -> OutputTypes:
    return [(node.input(0).dtype, node.input(1).shape)]


def _back(node: Node, g: _Array, places: _Array) -> _Array:
    inner = g[_corner(_inferred(node, places.shape))]
    return inner.reshape(-1)[places.reshape(-1)].reshape(places.shape)


_windows = flops(lambda node: node.outputs[0].nelms * prod(node.attribute("kernel_shape", [1])))

OPS = [
    # MaxPoolPlaces(x, the output of MaxPool for x)
    OpDef("MaxPoolPlaces", (2, 2), lambda node: [(INT64, node.input(1).shape)], allocating_kernel(_places), _windows),
    OpDef(
        "MaxUnpool", (2, 3), _shape, allocating_kernel(_unpool), copy_cost, _grad, constant_inputs={2: "output_shape"}
    ),
    OpDef("MaxUnpoolGrad", (2, 2), _back_shape, allocating_kernel(_back), copy_cost),
]
