"""Slices at offsets that are known only when they are read (aiGraphcore)."""

from __future__ import annotations

from typing import Any

import numpy as np

from ipu_emu.graph.op import GRAPHCORE
from ipu_emu.ops.adjoint import Adjoint, Value
from ipu_emu.ops.arrays import computed
from ipu_emu.ops.cost import moves
from ipu_emu.ops.node import Made, Node
from ipu_emu.ops.places import integers
from ipu_emu.ops.registry import OpDef
from ipu_emu.ops.shapes import same

__all__ = ["OPS"]

#: An array; numpy's stubs call most results Any.
_Array = Any


def _window(node: Node, shape: tuple[int, ...]) -> tuple[list[int], tuple[int, ...]]:
    """The axes of a dynamic slice, and the shape of the slice."""
    axes, sizes = list(node.attribute("axes", [])), list(node.attribute("sizes", []))
    if len(axes) != len(sizes) or any(not 0 <= axis < len(shape) for axis in axes):
        raise node.fail(f"axes {axes} and sizes {sizes} do not fit {list(shape)}")
    made = list(shape)
    for axis, size in zip(axes, sizes, strict=True):
        if not 0 <= size <= shape[axis]:
            raise node.fail(f"size {size} was asked for, axis {axis} has {shape[axis]}")
        made[axis] = size
    return axes, tuple(made)


def _offset_checked(node: Node) -> None:
    axes = node.attribute("axes", [])
    integers(node, node.input(1))
    if node.input(1).nelms != len(axes):
        raise node.fail(f"the offset {node.input(1)} needs one number for each of the axes {list(axes)}")


def _dynamic_slice_shape(node: Node) -> Made:
    _offset_checked(node)
    return [(node.input(0).dtype, _window(node, node.input(0).shape)[1])]


def _dynamic_update_shape(node: Node) -> Made:
    _offset_checked(node)
    _, window = _window(node, node.input(0).shape)
    if len(node.inputs) > 2 and node.input(2).shape != window:
        raise node.fail(f"the slice {node.input(2)} must have shape {list(window)}")
    return same(node)


def _at(node: Node, array: _Array, offset: _Array) -> _Array:
    """The elements of a window; it wraps round the end of an axis."""
    axes, window = _window(node, array.shape)
    starts = dict(zip(axes, offset.reshape(-1).tolist(), strict=True))
    return np.ix_(*((starts.get(i, 0) + np.arange(n)) % array.shape[i] for i, n in enumerate(window)))


def _dynamic_slice(node: Node, x: _Array, offset: _Array) -> _Array:
    return x[_at(node, x, offset)]


def _dynamic_update(node: Node, x: _Array, offset: _Array, part: _Array) -> _Array:
    out = x.copy()
    out[_at(node, x, offset)] = part
    return out


def _dynamic_add(node: Node, x: _Array, offset: _Array, part: _Array) -> _Array:
    out = x.copy()
    out[_at(node, x, offset)] += part
    return out


def _dynamic_zero(node: Node, x: _Array, offset: _Array) -> _Array:
    out = x.copy()
    out[_at(node, x, offset)] = 0
    return out


def _dynamic(d: Adjoint, type: str, *values: Value) -> Value:
    attributes = {name: d.attribute(name, []) for name in ("axes", "sizes")}
    return values[0].op(type, d.input(1), *values[1:], **attributes)


def _dynamic_slice_grad(d: Adjoint) -> list[Value | None]:
    return [_dynamic(d, "DynamicUpdateLocal", d.x.constantly(0.0), d.g), None]


def _dynamic_update_grad(d: Adjoint) -> list[Value | None]:
    return [_dynamic(d, "DynamicZeroLocal", d.g), None, _dynamic(d, "DynamicSliceLocal", d.g)]


def _dynamic_add_grad(d: Adjoint) -> list[Value | None]:
    return [d.g, None, _dynamic(d, "DynamicSliceLocal", d.g)]


def _dynamic_zero_grad(d: Adjoint) -> list[Value | None]:
    return [_dynamic(d, "DynamicZeroLocal", d.g), None]


def _both(type: str, inputs: int, shape: Any, function: Any, grad: Any) -> list[OpDef]:
    """The op of aiGraphcore, and its twin among the ops that gradients are made of."""
    return [
        OpDef(name, (inputs, inputs), shape, computed(function), moves, grad, domain=domain)
        for name, domain in ((type, GRAPHCORE), (f"{type}Local", ""))
    ]


OPS = [
    *_both("DynamicSlice", 2, _dynamic_slice_shape, _dynamic_slice, _dynamic_slice_grad),
    *_both("DynamicUpdate", 3, _dynamic_update_shape, _dynamic_update, _dynamic_update_grad),
    *_both("DynamicAdd", 3, _dynamic_update_shape, _dynamic_add, _dynamic_add_grad),
    *_both("DynamicZero", 2, _dynamic_update_shape, _dynamic_zero, _dynamic_zero_grad),
]
