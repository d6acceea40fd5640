"""Shape rules: those that several families share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod

import numpy as np

from ipu_emu.errors import EmulatorError
from ipu_emu.graph import Tensor
from ipu_emu.ops.core.node import Node, OutputTypes, ShapeRule, listed
from popdist_py.messages.suggestion import did_you_mean


def same(node: Node) -> OutputTypes:
    """The type and shape of input 0."""
    tensor = node.input(0)
    return [(tensor.dtype, tensor.shape)]


def like_second(node: Node) -> OutputTypes:
    """The type and shape of input 1."""
    return [(node.input(1).dtype, node.input(1).shape)]


def like_inputs(*indices: int) -> ShapeRule:
    """The types and shapes of these inputs."""
    return lambda node: [(node.input(index).dtype, node.input(index).shape) for index in indices]


def as_declared(node: Node) -> OutputTypes:
    """The types and shapes of the outputs, which their values give."""
    return [(tensor.dtype, tensor.shape) for tensor in node.outputs]


def broadcasts_to(shape: tuple[int, ...], target: tuple[int, ...]) -> bool:
    """Whether ``shape`` broadcasts to ``target``."""
    try:
        return np.broadcast_shapes(shape, target) == target
    except ValueError:
        return False


def norm_gradients(node: Node) -> OutputTypes:
    """The gradients of a normalisation: of input 1, and of its scale, input 2, and its bias."""
    x, scale = node.input(1), node.input(2)
    return [(x.dtype, x.shape), (scale.dtype, scale.shape), (scale.dtype, scale.shape)]


def shape_attribute(node: Node) -> OutputTypes:
    """The type of input 0, and the shape in the attribute ``shape``."""
    return [(node.input(0).dtype, tuple(node.attribute("shape", [])))]


def broadcast(node: Node) -> OutputTypes:
    """NumPy's broadcasting of two operands of one type."""
    a, b = node.input(0), node.input(1)
    if a.dtype != b.dtype:
        raise unequal_types(node, a, b)
    try:
        return [(a.dtype, np.broadcast_shapes(a.shape, aligned_shape(node)))]
    except ValueError:
        raise not_aligned(node, a, b) from None


def unequal_types(node: Node, a: Tensor, b: Tensor) -> EmulatorError:
    """The error for operands of two types; text as in PopART."""
    return EmulatorError(
        f"np broadcasting failed on {node.described}, incompatible types {a.dtype} and {b.dtype} (shapes "
        f"{listed(a.shape)} and {listed(b.shape)})",
        note="Cast one of them",
    )


def not_aligned(node: Node, a: Tensor, b: Tensor) -> EmulatorError:
    """The error for shapes that do not broadcast; text as in PopART."""
    return EmulatorError(
        f"np broadcasting failed on '{node.described}', frames {list(a.shape)} and {list(b.shape)} are not aligned"
    )


def aligned_shape(node: Node) -> tuple[int, ...]:
    """The shape in which input 1 broadcasts; in opset 6 its axes are those of input 0 from ``axis`` on."""
    a, b = node.input(0), node.input(1)
    axis: int | None = node.attribute("axis", None)
    if axis is None:
        return b.shape
    axis = axis + a.rank if axis < 0 else axis
    if (
        axis < 0
        or axis + b.rank > a.rank
        or any(m not in (1, n) for n, m in zip(a.shape[axis:], b.shape, strict=False))
    ):
        raise node.fail(f"axis {axis} does not align {b} with axes of {a}")
    return b.shape + (1,) * (a.rank - axis - b.rank)


def broadcast_all(node: Node) -> OutputTypes:
    """NumPy's broadcasting of any number of operands of one type."""
    tensors = [node.input(index) for index in range(len(node.inputs))]
    if len({tensor.dtype for tensor in tensors}) > 1:
        raise unequal_types(node, tensors[0], next(t for t in tensors if t.dtype != tensors[0].dtype))
    try:
        return [(tensors[0].dtype, np.broadcast_shapes(*(tensor.shape for tensor in tensors)))]
    except ValueError:
        raise not_aligned(node, *_first_unlike(tensors)) from None


def _first_unlike(tensors: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """The broadcast shape of the first operands, and the first operand that does not broadcast with it."""
    together = tensors[0]
    for tensor in tensors[1:]:
        try:
            together = replace(together, shape=np.broadcast_shapes(together.shape, tensor.shape))
        except ValueError:
            return together, tensor
    raise AssertionError("all operands broadcast")


def scalar_or_same(node: Node) -> OutputTypes:
    """The output of a loss: a scalar, or with NoReduction one number per element."""
    tensor = node.input(0)
    return [(tensor.dtype, tensor.shape if reduction_of(node) == "NoReduction" else ())]


_REDUCTIONS = "Mean", "Sum", "NoReduction"


def reduction_of(node: Node) -> str:
    """The reduction of a loss; raise EmulatorError for an unknown name."""
    name = str(node.attribute("reduction", "Mean"))
    if name not in _REDUCTIONS:
        hint = did_you_mean(name, _REDUCTIONS)
        raise node.fail(f"reduction '{name}' is not one of {', '.join(_REDUCTIONS)}{hint}")
    return name


def axes_of(node: Node, axes: list[int] | None) -> tuple[int, ...]:
    """Sorted axes of input 0, all of them for None; raise where one is out of range."""
    if not axes:
        return tuple(range(node.input(0).rank))
    return tuple(sorted({axis_of(node, axis) for axis in axes}))


def reduced_axes(node: Node, axes: list[int] | None) -> tuple[int, ...]:
    """Sorted axes of input 0 that a reduction removes: all for None, none for an empty list; texts as in PopART."""
    rank = node.input(0).rank
    if axes is None:
        return tuple(range(rank))
    if axes and not rank:
        raise EmulatorError(f"Reduce input rank must be greater than 0, invalid Reduce {node.op.label}.")
    for axis in axes:
        if not -rank <= axis < rank:
            raise EmulatorError(f"Axis {axis} is out of acceptable range [{-rank}, {rank - 1}]")
    return tuple(sorted({axis % rank for axis in axes}))


def axis_of(node: Node, axis: int) -> int:
    """``axis`` of input 0, counted from the front; raise where it is out of range."""
    rank = node.input(0).rank
    if not -rank <= axis < rank:
        raise node.fail(f"axis {axis} is out of range for {node.input(0)}; use {-rank} to {rank - 1}")
    return axis % rank


def reshape_target(node: Node, target: list[int], *, copies: bool = True) -> tuple[int, ...]:
    """The shape that ``target`` gives input 0; one -1 is inferred; with ``copies`` 0 keeps the input's size."""
    data = node.input(0)
    copies = copies and not node.attribute("allowzero", 0)
    if list(target).count(-1) > 1:
        raise EmulatorError(
            f"shape input to ReshapeOp can only use -1 to specify one unknown dimension: {list(target)}"
        )
    shape = [data.shape[i] if size == 0 and copies and i < data.rank else int(size) for i, size in enumerate(target)]
    if shape.count(-1) == 1:
        known = prod(size for size in shape if size != -1)
        shape[shape.index(-1)] = data.nelms // known if known else 0
    if any(size < 0 for size in shape) or prod(shape) != data.nelms:
        raise node.fail(f"cannot reshape {data} ({data.nelms} elements) to {list(target)}")
    return tuple(shape)
