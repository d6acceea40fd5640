"""Indexing: ops that read or write elements at places that a tensor says."""

from __future__ import annotations

from functools import partial
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gcl.jit import jit
from ipu_emu.graph import DType, Tensor
from ipu_emu.graph.op import GRAPHCORE
from ipu_emu.ops.adjoint import Adjoint, Value
from ipu_emu.ops.arrays import computed, contiguous, view
from ipu_emu.ops.cost import moves
from ipu_emu.ops.node import Made, Node
from ipu_emu.ops.registry import Bound, OpDef, Step
from ipu_emu.ops.shapes import axis_of, same

__all__ = ["OPS"]

#: An array; numpy's stubs call most results Any.
_Array = Any


def _integers(node: Node, tensor: Tensor) -> None:
    if not tensor.dtype.is_integer:
        raise node.fail(f"indices must be integers, found {tensor}; cast them")


def _by_attribute(node: Node) -> Made:
    return [(node.input(0).dtype, tuple(node.attribute("shape", [])))]


# Gather


def _gather_shape(node: Node) -> Made:
    x, indices = node.input(0), node.input(1)
    _integers(node, indices)
    axis = axis_of(node, node.attribute("axis", 0))
    if not x.shape[axis] and indices.nelms:
        raise node.fail(f"axis {axis} of {x} has nothing to gather")
    return [(x.dtype, (*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :]))]


def _gather(bound: Bound) -> Step:
    """Indices count from the end if they are negative; those outside wrap round."""
    axis = axis_of(bound.node, bound.node.attribute("axis", 0))
    return partial(np.take, bound.input(0), bound.input(1), axis, bound.outputs[0], "wrap")


def _gather_grad(d: Adjoint) -> list[Value | None]:
    axis = axis_of(d.node, d.attribute("axis", 0))
    return [d.g.op("GatherGrad", d.input(1), axis=axis, shape=list(d.shape)), None]


@jit
def add_rows(g: NDArray[Any], indices: NDArray[Any], out: NDArray[Any]) -> None:
    """out[o, indices[i], :] += g[o, i, :] for g [outer, n, inner]; out starts at 0."""
    out[:] = 0
    count = out.shape[1]
    for o in range(g.shape[0]):
        for i in range(indices.size):
            row = indices[i] % count
            for k in range(g.shape[2]):
                out[o, row, k] += g[o, i, k]


def _gather_back(bound: Bound) -> Step:
    g, indices, out = bound.input(0), bound.input(1), bound.outputs[0]
    axis = bound.node.attribute("axis", 0)
    outer, inner = prod(out.shape[:axis]), prod(out.shape[axis + 1 :])
    return partial(
        add_rows,
        view(g, (outer, indices.size, inner)),
        view(indices, (indices.size,)),
        view(out, (outer, out.shape[axis], inner)),
    )


# Gather and scatter of single elements


def _elements_shape(node: Node) -> Made:
    x, indices = node.input(0), node.input(1)
    _integers(node, indices)
    axis_of(node, node.attribute("axis", 0))
    if indices.rank != x.rank:
        raise node.fail(f"indices {indices} must have the rank of {x}")
    return [(x.dtype, indices.shape)]


def _wrapped(indices: _Array, size: int) -> _Array:
    made: _Array = np.where(indices < 0, indices + size, indices).astype(np.int64)
    return np.clip(made, 0, max(size - 1, 0))


def _places(indices: _Array, axis: int, size: int) -> tuple[_Array, ...]:
    """Index arrays of the elements that ``indices`` stand for along ``axis``."""
    grid: list[Any] = list(np.indices(indices.shape, sparse=True))
    grid[axis] = _wrapped(indices, size)
    return tuple(grid)


def _gather_elements(node: Node, x: _Array, indices: _Array) -> _Array:
    axis = axis_of(node, node.attribute("axis", 0))
    return x[_places(indices, axis, x.shape[axis])]


def _gather_elements_grad(d: Adjoint) -> list[Value | None]:
    axis = axis_of(d.node, d.attribute("axis", 0))
    return [d.g.op("ElementsInto", d.input(1), axis=axis, shape=list(d.shape)), None]


def _elements_into(node: Node, g: _Array, indices: _Array) -> _Array:
    out, axis = np.zeros(node.attribute("shape", []), g.dtype), node.attribute("axis", 0)
    np.add.at(out, _places(indices, axis, out.shape[axis]), g)
    return out


#: How a scatter combines what is there with what comes.
_COMBINE: dict[str, Any] = {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}


def _scatter_shape(node: Node) -> Made:
    x, indices, updates = (node.input(index) for index in range(3))
    _integers(node, indices)
    axis_of(node, node.attribute("axis", 0))
    if indices.shape != updates.shape or indices.rank != x.rank:
        raise node.fail(f"indices {indices} and updates {updates} must have one shape, of the rank of {x}")
    if updates.dtype is not x.dtype:
        raise node.fail(f"updates {updates} must have the type of {x}")
    return same(node)


def _put(node: Node, out: _Array, place: Any, updates: _Array) -> _Array:
    reduction = node.attribute("reduction", "none")
    if reduction == "none":
        out[place] = updates
    else:
        _COMBINE[reduction].at(out, place, updates)
    return out


def _scatter(node: Node, x: _Array, indices: _Array, updates: _Array) -> _Array:
    axis = axis_of(node, node.attribute("axis", 0))
    return _put(node, x.copy(), _places(indices, axis, x.shape[axis]), updates)


def _scatter_grad(d: Adjoint) -> list[Value | None]:
    reduction, axis = d.attribute("reduction", "none"), axis_of(d.node, d.attribute("axis", 0))
    if reduction not in ("none", "add"):
        raise d.node.fail(f"a scatter with reduction {reduction} has no gradient; use none or add")
    updates = d.g.op("GatherElements", d.input(1), axis=axis)
    if reduction == "add":
        return [d.g, None, updates]
    zeros = d.input(2).constantly(0.0)
    return [d.g.op("ScatterElements", d.input(1), zeros, axis=axis), None, updates]


# Gather and scatter of slices at index vectors


def _nd_shapes(node: Node) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Shapes of what is gathered, and of the index vectors without their last axis."""
    x, indices, batch = node.input(0), node.input(1), node.attribute("batch_dims", 0)
    _integers(node, indices)
    depth = indices.shape[-1]
    if depth > x.rank - batch or x.shape[:batch] != indices.shape[:batch]:
        raise node.fail(f"index vectors {indices} do not fit {x} with {batch} batch axes")
    return x.shape[batch + depth :], indices.shape[:-1]


def _gather_nd_shape(node: Node) -> Made:
    inner, outer = _nd_shapes(node)
    return [(node.input(0).dtype, (*outer, *inner))]


def _nd_places(x: _Array, indices: _Array, batch: int) -> tuple[_Array, ...]:
    depth = indices.shape[-1]
    lead: Any = np.indices(indices.shape[:batch], sparse=True)
    more = indices.ndim - 1 - batch
    grid = [axis.reshape(axis.shape + (1,) * more) for axis in lead]
    return (*grid, *(_wrapped(indices[..., i], x.shape[batch + i]) for i in range(depth)))


def _gather_nd(node: Node, x: _Array, indices: _Array) -> _Array:
    return x[_nd_places(x, indices, node.attribute("batch_dims", 0))]


def _gather_nd_grad(d: Adjoint) -> list[Value | None]:
    batch = d.attribute("batch_dims", 0)
    return [d.g.op("SlicesInto", d.input(1), batch_dims=batch, shape=list(d.shape)), None]


def _slices_into(node: Node, g: _Array, indices: _Array) -> _Array:
    out = np.zeros(node.attribute("shape", []), g.dtype)
    np.add.at(out, _nd_places(out, indices, node.attribute("batch_dims", 0)), g)
    return out


def _scatter_nd_shape(node: Node) -> Made:
    inner, outer = _nd_shapes(node)
    if node.input(2).shape != (*outer, *inner) or node.input(2).dtype is not node.input(0).dtype:
        raise node.fail(f"updates {node.input(2)} must have shape {[*outer, *inner]} and the type of {node.input(0)}")
    return same(node)


def _scatter_nd(node: Node, x: _Array, indices: _Array, updates: _Array) -> _Array:
    return _put(node, x.copy(), _nd_places(x, indices, 0), updates)


def _scatter_nd_grad(d: Adjoint) -> list[Value | None]:
    reduction = d.attribute("reduction", "none")
    if reduction not in ("none", "add"):
        raise d.node.fail(f"a scatter with reduction {reduction} has no gradient; use none or add")
    updates = d.g.op("GatherND", d.input(1))
    if reduction == "add":
        return [d.g, None, updates]
    return [d.g.op("ScatterND", d.input(1), d.input(2).constantly(0.0)), None, updates]


# One-hot rows


def _one_hot_shape(node: Node) -> Made:
    indices, depth = node.input(0), _depth(node)
    axis = node.attribute("axis", -1)
    if not -indices.rank - 1 <= axis <= indices.rank or depth < 0:
        raise node.fail(f"axis {axis} and depth {depth} do not fit {indices}")
    place = axis % (indices.rank + 1)
    dtype: DType = node.input(2).dtype
    return [(dtype, (*indices.shape[:place], depth, *indices.shape[place:]))]


def _depth(node: Node) -> int:
    depth = node.given("depth", 1)
    return int(depth[0] if isinstance(depth, list) else depth)


def _hot(node: Node, indices: _Array) -> _Array:
    """Where the result has its second value."""
    depth, axis = _depth(node), node.attribute("axis", -1) % (indices.ndim + 1)
    wanted = np.where(indices < 0, indices + depth, indices)
    classes = np.arange(depth).reshape((-1,) + (1,) * (indices.ndim - axis))
    return np.expand_dims(wanted, axis) == classes


def _one_hot(bound: Bound) -> Step:
    node, indices, values, y = bound.node, bound.input(0), bound.input(2), bound.outputs[0]
    return lambda: np.copyto(y, np.where(_hot(node, indices), values[1], values[0]))


def _one_hot_grad(d: Adjoint) -> list[Value | None]:
    return [None, None, d.g.op("OneHotGrad", d.x, **d.node.op.attributes)]


def _one_hot_back(node: Node, g: _Array, indices: _Array) -> _Array:
    hot = _hot(node, indices)
    return np.array([g[~hot].sum(), g[hot].sum()])


def _pair_shape(node: Node) -> Made:
    return [(node.input(0).dtype, (2,))]


# Slices at offsets that are known only when they are read (aiGraphcore)


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
    _integers(node, node.input(1))
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


# Gathers and scatters of rows in groups (aiGraphcore)


def _grouped_shape(node: Node) -> Made:
    x, indices, axis = node.input(0), node.input(1), node.attribute("axis", 0)
    _integers(node, indices)
    groups = node.attribute("group_size", 1)
    if x.shape[:1] != (groups,) or indices.shape[:1] != (groups,) or not 0 < axis < x.rank:
        raise node.fail(f"{x} and {indices} need a first axis of {groups} groups, and an axis above 0")
    return [(x.dtype, (groups, *x.shape[1:axis], *indices.shape[1:], *x.shape[axis + 1 :]))]


def _grouped_gather(node: Node, x: _Array, indices: _Array) -> _Array:
    axis = node.attribute("axis", 0) - 1
    return np.stack([np.take(rows, at, axis, mode="wrap") for rows, at in zip(x, indices, strict=True)])


def _grouped_grad(d: Adjoint) -> list[Value | None]:
    return [d.g.op("GroupedGatherGrad", d.input(1), shape=list(d.shape), axis=d.attribute("axis", 0)), None]


def _grouped_back(node: Node, g: _Array, indices: _Array) -> _Array:
    out, axis = np.zeros(node.attribute("shape", []), g.dtype), node.attribute("axis", 0) - 1
    whole = (slice(None),) * axis
    for total, rows, at in zip(out, g, indices, strict=True):
        np.add.at(total, (*whole, at % total.shape[axis]), rows)
    return out


def _reduce_shape(node: Node) -> Made:
    data, indices, axis = node.input(0), node.input(1), node.attribute("axis", -1)
    _integers(node, indices)
    axis = axis_of(node, axis)
    size = int(node.attribute("axis_size", 0))
    if node.attribute("reduction", "sum") not in _SCATTERS:
        raise node.fail(f"reduction {node.attribute('reduction', '')} is not one of {', '.join(_SCATTERS)}")
    _spread(node, data.shape, indices.shape, axis)
    return [(data.dtype, (*data.shape[:axis], size, *data.shape[axis + 1 :]))]


def _spread(node: Node, data: tuple[int, ...], indices: tuple[int, ...], axis: int) -> tuple[int, ...]:
    """The shape in which ``indices`` broadcast to the data: a vector belongs to ``axis``."""
    if len(indices) == 1:
        indices = tuple(indices[0] if i == axis else 1 for i in range(len(data)))
    try:
        if np.broadcast_shapes(data, indices) == data:
            return indices
    except ValueError:
        pass
    raise node.fail(f"indices {list(indices)} do not broadcast to the data {list(data)}")


#: (how elements combine, what an empty place holds)
_SCATTERS: dict[str, tuple[Any, float]] = {
    "sum": (np.add, 0.0),
    "max": (np.maximum, -np.inf),
    "min": (np.minimum, np.inf),
    "mul": (np.multiply, 1.0),
    "none": (None, 0.0),
}


def _reduce_places(node: Node, data: tuple[int, ...], indices: _Array, size: int) -> tuple[_Array, ...]:
    axis = node.attribute("axis", -1) % len(data)
    wide = np.broadcast_to(indices.reshape(_spread(node, data, indices.shape, axis)), data)
    return _places(wide, axis, size)


def _scatter_reduce(node: Node, data: _Array, indices: _Array, *initial: _Array) -> _Array:
    function, empty = _SCATTERS[node.attribute("reduction", "sum")]
    axis, size = node.attribute("axis", -1) % data.ndim, int(node.attribute("axis_size", 0))
    shape = (*data.shape[:axis], size, *data.shape[axis + 1 :])
    places = _reduce_places(node, data.shape, indices, size)
    if initial:
        out = initial[0].astype(data.dtype, copy=True)
    else:
        empty = empty if np.isfinite(empty) or data.dtype.kind == "f" else np.iinfo(data.dtype).min
        out = np.full(shape, empty, data.dtype)
    if function is None:
        out[places] = data
    else:
        function.at(out, places, data)
    if not initial and np.isinf(empty):
        reached = np.zeros(shape, bool)
        reached[places] = True
        out[~reached] = 0
    return out


def _scatter_reduce_grad(d: Adjoint) -> list[Value | None]:
    reduction, axis = d.attribute("reduction", "sum"), axis_of(d.node, d.attribute("axis", -1))
    if reduction == "mul":
        raise d.node.fail("a scatter with reduction mul has no gradient; use sum, max or min")
    taken = d.g.op("ScatterReduceGrad", d.input(1), axis=axis, shape=list(d.shape))
    if reduction in ("max", "min"):
        largest = d.y.op("ScatterReduceGrad", d.input(1), axis=axis, shape=list(d.shape))
        taken = d.x.op("Equal", largest).op("Where", taken, taken.like(0.0))
    return [taken, None]


def _scatter_reduce_back(node: Node, g: _Array, indices: _Array) -> _Array:
    shape = tuple(node.attribute("shape", []))
    return g[_reduce_places(node, shape, indices, g.shape[node.attribute("axis", -1)])]


OPS = [
    OpDef("Gather", (2, 2), _gather_shape, _gather, moves, _gather_grad),
    OpDef("GatherGrad", (2, 2), _by_attribute, contiguous(_gather_back), moves),
    OpDef("GatherElements", (2, 2), _elements_shape, computed(_gather_elements), moves, _gather_elements_grad),
    OpDef("ElementsInto", (2, 2), _by_attribute, computed(_elements_into), moves),
    OpDef("Scatter", (3, 3), _scatter_shape, computed(_scatter), moves, _scatter_grad),
    OpDef("ScatterElements", (3, 3), _scatter_shape, computed(_scatter), moves, _scatter_grad),
    OpDef("GatherND", (2, 2), _gather_nd_shape, computed(_gather_nd), moves, _gather_nd_grad),
    OpDef("SlicesInto", (2, 2), _by_attribute, computed(_slices_into), moves),
    OpDef("ScatterND", (3, 3), _scatter_nd_shape, computed(_scatter_nd), moves, _scatter_nd_grad),
    OpDef("OneHot", (3, 3), _one_hot_shape, _one_hot, moves, _one_hot_grad, given={1: "depth"}),
    OpDef("OneHotGrad", (2, 2), _pair_shape, computed(_one_hot_back), moves),
    *_both("DynamicSlice", 2, _dynamic_slice_shape, _dynamic_slice, _dynamic_slice_grad),
    *_both("DynamicUpdate", 3, _dynamic_update_shape, _dynamic_update, _dynamic_update_grad),
    *_both("DynamicAdd", 3, _dynamic_update_shape, _dynamic_add, _dynamic_add_grad),
    *_both("DynamicZero", 2, _dynamic_update_shape, _dynamic_zero, _dynamic_zero_grad),
    OpDef("GroupedGather", (2, 2), _grouped_shape, computed(_grouped_gather), moves, _grouped_grad, domain=GRAPHCORE),
    OpDef("GroupedGatherGrad", (2, 2), _by_attribute, computed(_grouped_back), moves),
    OpDef(
        "ScatterReduce",
        (2, 3),
        _reduce_shape,
        computed(_scatter_reduce),
        moves,
        _scatter_reduce_grad,
        domain=GRAPHCORE,
    ),
    OpDef("ScatterReduceGrad", (2, 2), _by_attribute, computed(_scatter_reduce_back), moves),
]
