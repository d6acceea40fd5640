"""Dynamic slicing: slices at offsets that are known only when the op runs (aiGraphcore)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from math import prod
from typing import Any

import numpy as np

from ipu_emu.graph.op import GRAPHCORE
from ipu_emu.ops.core import Adjoint, BoundOp, Call, Kernel, Node, OpDef, OutputTypes, Value, copy_cost
from ipu_emu.ops.core.shape_rules import same
from ipu_emu.ops.indexing.index_arrays import check_integer_indices

#: An array; numpy's stubs call most results Any.
_Array = Any
_Place = tuple[slice, ...]


def _window(node: Node, shape: tuple[int, ...]) -> tuple[list[int], tuple[int, ...]]:
    """The axes of a dynamic slice, and the shape of the slice."""
    axes, sizes = list(node.attribute("axes", [])), list(node.attribute("sizes", []))
    if len(axes) != len(sizes) or any(not 0 <= axis < len(shape) for axis in axes):
        raise node.fail(f"axes {axes} and sizes {sizes} do not fit {list(shape)}")
    window = list(shape)
    for axis, size in zip(axes, sizes, strict=True):
        if not 0 <= size <= shape[axis]:
            raise node.fail(f"size {size} does not fit axis {axis} of {list(shape)}; use 0 to {shape[axis]}")
        window[axis] = size
    return axes, tuple(window)


def _offset_checked(node: Node) -> None:
    axes = node.attribute("axes", [])
    check_integer_indices(node, node.input(1))
    if node.input(1).nelms != len(axes):
        raise node.fail(f"the offset {node.input(1)} needs one number for each of the axes {list(axes)}")


def _dynamic_slice_shape(node: Node) -> OutputTypes:
    _offset_checked(node)
    window = _window(node, node.input(0).shape)[1]
    if node.has_input(2):
        if node.input(2).nelms != prod(window):
            raise node.fail(f"the slice {node.input(2)} must have {prod(window)} elements, as {list(window)}")
        window = node.input(2).shape
    return [(node.input(0).dtype, window)]


def _dynamic_update_shape(node: Node) -> OutputTypes:
    _offset_checked(node)
    _, window = _window(node, node.input(0).shape)
    if len(node.inputs) > 2 and node.input(2).shape not in (window, window[1:] if window[:1] == (1,) else window):
        raise node.fail(f"the slice {node.input(2)} must have shape {list(window)}")
    return same(node)


def _pieces(node: Node, shape: tuple[int, ...], offset: _Array) -> Iterator[tuple[_Place, _Place]]:
    """The slices of the tensor and of the window that correspond; a window wraps round the end of an axis."""
    axes, window = _window(node, shape)
    starts = dict(zip(axes, offset.reshape(-1).tolist(), strict=True))
    parts = []
    for axis, (size, length) in enumerate(zip(shape, window, strict=True)):
        start = starts.get(axis, 0) % max(size, 1)
        first = min(length, size - start)
        parts.append([(slice(start, start + first), slice(0, first))])
        if first < length:
            parts[-1].append((slice(0, length - first), slice(first, length)))
    for pairs in product(*parts):
        yield tuple(place for place, _ in pairs), tuple(inside for _, inside in pairs)


def _dynamic_slice(bound: BoundOp) -> Call:
    node, x, offset, y = bound.node, bound.input(0), bound.input(1), bound.outputs[0]
    y = y.reshape(_window(node, x.shape)[1])

    def run() -> None:
        for place, inside in _pieces(node, x.shape, offset):
            np.copyto(y[inside], x[place])

    return run


def _changed(change: Callable[[_Array, Any], object], *, part: bool = True) -> Kernel:
    """A kernel that copies x and applies ``change`` to its window, with the slice that is input 2, or with 0."""

    def kernel(bound: BoundOp) -> Call:
        node, x, offset, y = bound.node, bound.input(0), bound.input(1), bound.outputs[0]
        update = bound.input(2).reshape(_window(node, x.shape)[1]) if part else None

        def run() -> None:
            np.copyto(y, x)
            for place, inside in _pieces(node, x.shape, offset):
                change(y[place], 0 if update is None else update[inside])

        return run

    return kernel


def _add(place: _Array, part: _Array) -> None:
    np.add(place, part, out=place)


def _dynamic(d: Adjoint, type: str, *values: Value) -> Value:
    attributes = {name: d.attribute(name, []) for name in ("axes", "sizes")}
    return values[0].op(type, d.input(1), *values[1:], **attributes)


def _dynamic_slice_grad(d: Adjoint) -> list[Value | None]:
    return [_dynamic(d, "DynamicUpdateLocal", d.x.constantly(0.0), d.g), None]


def _dynamic_update_grad(d: Adjoint) -> list[Value | None]:
    gradient = d.g if d.attribute("noOverlap", 0) else _dynamic(d, "DynamicZeroLocal", d.g)
    return [gradient, None, _dynamic(d, "DynamicSliceLocal", d.g).shaped(d.input(2).tensor.shape)]


def _dynamic_add_grad(d: Adjoint) -> list[Value | None]:
    return [d.g, None, _dynamic(d, "DynamicSliceLocal", d.g).shaped(d.input(2).tensor.shape)]


def _dynamic_zero_grad(d: Adjoint) -> list[Value | None]:
    return [_dynamic(d, "DynamicZeroLocal", d.g), None]


def _both(type: str, inputs: int, shape: Any, kernel: Kernel, grad: Any, most: int = 0) -> list[OpDef]:
    """The entries of the op in aiGraphcore, and in the default domain for use by gradients."""
    return [
        OpDef(name, (inputs, most or inputs), shape, kernel, copy_cost, grad, domain=domain)
        for name, domain in ((type, GRAPHCORE), (f"{type}Local", ""))
    ]


OPS = [
    *_both("DynamicSlice", 2, _dynamic_slice_shape, _dynamic_slice, _dynamic_slice_grad, most=3),
    *_both("DynamicUpdate", 3, _dynamic_update_shape, _changed(np.copyto), _dynamic_update_grad),
    *_both("DynamicAdd", 3, _dynamic_update_shape, _changed(_add), _dynamic_add_grad),
    *_both("DynamicZero", 2, _dynamic_update_shape, _changed(np.copyto, part=False), _dynamic_zero_grad),
]
