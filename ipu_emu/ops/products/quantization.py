"""Quantisation: numbers as small integers, x = scale (q - zero point), and products of such integers.

Integer products are summed in DOUBLE, which is exact below 2^53.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from ipu_emu.graph import DType, dtype_named
from ipu_emu.graph.dtype import FLOAT, INT32, dtype_numbered
from ipu_emu.ops.core import Node, OpDef, OutputTypes, flops, per_element
from ipu_emu.ops.core.kernel_helpers import allocating_kernel
from ipu_emu.ops.core.sliding_windows import Windows

_Array = Any
_UINT8 = dtype_named("UINT8")


# Scales and zero points: one for all elements, one per index of an axis, or one per block along the axis


def _aligned(node: Node, data: tuple[int, ...], scale: tuple[int, ...]) -> tuple[tuple[int, ...], int, int]:
    """(shape in which scales broadcast, the axis along which they are repeated, the number of repeats)"""
    axis, block = int(node.attribute("axis", 1)), int(node.attribute("block_size", 0))
    if prod(scale) == 1 and not block:
        return (1,) * len(data), 0, 1
    if not -len(data) <= axis < len(data):
        raise node.fail(f"axis {axis} is out of range for data {list(data)}; use {-len(data)} to {len(data) - 1}")
    axis %= len(data)
    if block:
        return scale, axis, block
    if scale != (data[axis],):
        raise node.fail(f"scales {list(scale)} do not fit axis {axis} of {list(data)}")
    return tuple(size if i == axis else 1 for i, size in enumerate(data)), axis, 1


def _spread(node: Node, data: tuple[int, ...], values: _Array) -> _Array:
    """Scales or zero points, reshaped and repeated so that they broadcast to the data."""
    shape, axis, block = _aligned(node, data, values.shape)
    repeated = np.repeat(values.reshape(shape), block, axis)
    return repeated[(slice(None),) * axis + (slice(data[axis]),)] if block > 1 else repeated


def _quantized_type(node: Node) -> DType:
    if node.has_input(2):
        return node.input(2).dtype
    return dtype_numbered(node.attribute("output_dtype", 0) or _UINT8.onnx)


def _quantize_shape(node: Node) -> OutputTypes:
    x, dtype = node.input(0), _quantized_type(node)
    if not dtype.is_integer:
        raise node.fail(f"results of type {dtype} are not supported; use integers")
    _aligned(node, x.shape, node.input(1).shape)
    return [(dtype, x.shape)]


def _saturated(values: _Array, zero: _Array, dtype: Any) -> _Array:
    """Rounded to integers (ties to even), plus the zero point, clamped to the range of ``dtype``."""
    limits = np.iinfo(dtype)
    return np.clip(np.rint(values) + np.float64(zero), limits.min, limits.max).astype(dtype)


def _quantize(node: Node, x: _Array, scale: _Array, zero: _Array | None = None) -> _Array:
    dtype = node.outputs[0].dtype.numpy
    start = np.zeros((), dtype) if zero is None else _spread(node, x.shape, zero)
    return _saturated(x / _spread(node, x.shape, scale), start, dtype)


def _dequantize_shape(node: Node) -> OutputTypes:
    x, scale = node.input(0), node.input(1)
    _aligned(node, x.shape, scale.shape)
    return [(dtype_numbered(node.attribute("output_dtype", 0) or scale.dtype.onnx), x.shape)]


def _dequantize(node: Node, x: _Array, scale: _Array, zero: _Array | None = None) -> _Array:
    start = 0 if zero is None else _spread(node, x.shape, zero).astype(np.float64)
    return (x - start) * _spread(node, x.shape, scale)


def _dynamic_shape(node: Node) -> OutputTypes:
    return [(_UINT8, node.input(0).shape), (FLOAT, ()), (_UINT8, ())]


def _dynamic(node: Node, x: _Array) -> tuple[_Array, ...]:
    """Quantise with a scale and zero point such that 0 is exact and all elements are in the range."""
    low, high = min(x.min(initial=0), np.float32(0)), max(x.max(initial=0), np.float32(0))
    scale = np.float32((high - low) / np.float32(255)) or np.float32(1)
    zero = _saturated(-low / scale, np.array(0), np.uint8)
    return _saturated(x / scale, zero, np.uint8), scale, zero


# Products of integers


def _centred(x: _Array, zero: _Array | None, axis: int) -> _Array:
    """``x`` as DOUBLE minus its zero points: one, or one per index of ``axis``."""
    if zero is None or zero.ndim == 0 or zero.size == 1:
        return x.astype(np.float64) - (0 if zero is None else zero.reshape(()))
    shape = [1] * x.ndim
    shape[axis] = zero.size
    return x.astype(np.float64) - (zero.reshape(shape) if zero.ndim == 1 else zero)


def _product_shape(node: Node, a: int, b: int) -> tuple[int, ...]:
    first, second = node.input(a).shape, node.input(b).shape
    try:
        return tuple(np.matmul(np.broadcast_to(0, first), np.broadcast_to(0, second)).shape)
    except ValueError:
        raise node.fail(f"{node.input(a)} and {node.input(b)} cannot be multiplied") from None


def _matmul_shape(node: Node) -> OutputTypes:
    return [(INT32, _product_shape(node, 0, 1))]


def _matmul(node: Node, a: _Array, b: _Array, a_zero: _Array | None = None, b_zero: _Array | None = None) -> _Array:
    return _centred(a, a_zero, max(a.ndim - 2, 0)) @ _centred(b, b_zero, b.ndim - 1)


def _scaled_matmul_shape(node: Node) -> OutputTypes:
    return [(node.input(7).dtype, _product_shape(node, 0, 3))]


def _scaled_matmul(node: Node, *inputs: _Array) -> _Array:
    a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero = inputs
    rows, columns = max(a.ndim - 2, 0), b.ndim - 1
    product = _centred(a, a_zero, rows) @ _centred(b, b_zero, columns)
    factor = a_scale.astype(np.float64).reshape(-1, 1) * b_scale.astype(np.float64) / y_scale
    return _saturated(product * (factor if factor.size > 1 else factor.reshape(())), y_zero, y_zero.dtype)


# Convolutions


def _output(node: Node, x: int, w: int) -> tuple[int, ...]:
    data, weights = node.input(x), node.input(w)
    if data.rank < 3 or weights.rank != data.rank:
        raise node.fail(f"data must be [N, C, ...] and weights [M, C / group, ...], found {data} and {weights}")
    return (data.shape[0], weights.shape[0], *Windows.of(node, data.shape[2:], weights.shape[2:]).output)


def _scaled_shape(node: Node) -> OutputTypes:
    return [(node.input(7).dtype, _output(node, 0, 3))]


def _convolved(node: Node, x: _Array, w: _Array) -> _Array:
    """The convolution of x [N, C, ...] with w [M, C / group, ...], both without their zero points."""
    windows, group = Windows.of(node, x.shape[2:], w.shape[2:]), int(node.attribute("group", 1))
    rank, places = len(windows.input), [np.array(windows.places(axis)) for axis in range(len(windows.input))]
    pads = [(-min(p.min(), 0), max(p.max() + 1 - n, 0)) for p, n in zip(places, windows.input, strict=True)]
    padded = np.pad(x, [(0, 0), (0, 0), *pads])
    at = [p.reshape(*[1] * 2 * i, *p.shape, *[1] * 2 * (rank - 1 - i)) for i, p in enumerate(places)]
    taken = padded[(slice(None), slice(None), *(p + low for p, (low, _) in zip(at, pads, strict=True)))]
    order = [2 + 2 * axis for axis in range(rank)] + [3 + 2 * axis for axis in range(rank)]
    columns = taken.transpose(0, 1, *order).reshape(x.shape[0], group, w[0].size, prod(windows.output))
    return (w.reshape(group, -1, w[0].size) @ columns).reshape(x.shape[0], w.shape[0], *windows.output)


def _integer(node: Node, x: _Array, w: _Array, x_zero: _Array | None = None, w_zero: _Array | None = None) -> _Array:
    return _convolved(node, _centred(x, x_zero, 1), _centred(w, w_zero, 0))


def _scaled(node: Node, *inputs: _Array) -> _Array:
    """The quantised convolution; the bias has the scale of the products."""
    x, x_scale, x_zero, w, w_scale, w_zero, y_scale, y_zero = inputs[:8]
    products = _convolved(node, _centred(x, x_zero, 1), _centred(w, w_zero, 0))
    wide = (-1, *[1] * (x.ndim - 2))
    if len(inputs) > 8:
        products = products + inputs[8].reshape(wide)
    factor = x_scale.astype(np.float64) * w_scale.astype(np.float64).reshape(-1) / y_scale
    return _saturated(products * factor.reshape(wide), y_zero.reshape(()), y_zero.dtype)


_products = flops(lambda node: 2 * node.outputs[0].nelms * node.input(0).shape[-1])
_windows = flops(lambda node: 2 * node.outputs[0].nelms * node.input(1).nelms)

OPS = [
    OpDef("QuantizeLinear", (2, 3), _quantize_shape, allocating_kernel(_quantize), per_element(3)),
    OpDef("DequantizeLinear", (2, 3), _dequantize_shape, allocating_kernel(_dequantize), per_element(2)),
    OpDef("DynamicQuantizeLinear", (1, 1), _dynamic_shape, allocating_kernel(_dynamic), per_element(5)),
    OpDef("MatMulInteger", (2, 4), _matmul_shape, allocating_kernel(_matmul), _products),
    OpDef("QLinearMatMul", (8, 8), _scaled_matmul_shape, allocating_kernel(_scaled_matmul), _products),
    OpDef("ConvInteger", (2, 4), lambda node: [(INT32, _output(node, 0, 1))], allocating_kernel(_integer), _windows),
    OpDef("QLinearConv", (8, 9), _scaled_shape, allocating_kernel(_scaled), _windows),
]
