"""Views: ops whose result has the elements of their input, in its order; no copy where the storage allows that."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from math import prod

import numpy as np

from ipu_emu.graph.op import GRAPHCORE
from ipu_emu.ops.core import Adjoint, Node, OutputTypes, Value, call_chain, copy_cost
from ipu_emu.ops.core.kernel_helpers import copy, view
from ipu_emu.ops.core.op_definition import BoundOp, Call, GradRule, Kernel, OpDef, ShapeRule
from ipu_emu.ops.core.shape_rules import axes_of, reshape_target, same


def _reshape(bound: BoundOp) -> Call:
    """Copy through a buffer in logical order, because the storage orders differ."""
    x, y = bound.input(0), bound.outputs[0]
    between = bound.scratch[0].view(x.dtype)[: x.size]
    return call_chain(partial(np.copyto, view(between, x.shape), x), partial(np.copyto, y, view(between, y.shape)))


def _reshape_by_input(node: Node) -> OutputTypes:
    return [(node.input(0).dtype, reshape_target(node, node.attribute_or_constant("shape", 1)))]


def _reshape_by_attribute(node: Node) -> OutputTypes:
    return [(node.input(0).dtype, reshape_target(node, node.attribute("shape", [])))]


def _reshape_to(node: Node) -> OutputTypes:
    """The type of a reshape that the emulator inserts, in which a size of 0 means an empty axis."""
    return [(node.input(0).dtype, reshape_target(node, node.attribute("shape", []), copies=False))]


def _flatten(node: Node) -> OutputTypes:
    x, axis = node.input(0), node.attribute("axis", 1)
    if not -x.rank <= axis <= x.rank:
        raise node.fail(f"axis {axis} is out of range for {x}; use {-x.rank} to {x.rank}")
    axis = axis + x.rank if axis < 0 else axis
    return [(x.dtype, (prod(x.shape[:axis]), prod(x.shape[axis:])))]


def _axes(node: Node) -> list[int]:
    """The axes of the op; the attribute may also be a single number."""
    axes = node.attribute_or_constant("axes", 1)
    return [axes] if isinstance(axes, int) else list(axes or [])


def _squeeze(node: Node) -> OutputTypes:
    x, axes = node.input(0), _axes(node)
    chosen = axes_of(node, axes) if axes else [axis for axis, size in enumerate(x.shape) if size == 1]
    for axis in chosen:
        if x.shape[axis] != 1:
            raise node.fail(f"axis {axis} of {x} does not have size 1; only axes of size 1 can be squeezed")
    return [(x.dtype, tuple(size for axis, size in enumerate(x.shape) if axis not in chosen))]


def _unsqueeze(node: Node) -> OutputTypes:
    x, axes = node.input(0), _axes(node)
    rank = x.rank + len(axes)
    places = [axis + rank if axis < 0 else axis for axis in axes]
    if len(set(places)) < len(places) or any(place not in range(rank) for place in places):
        raise node.fail(f"axes {axes} repeat or are out of range; use distinct axes from {-rank} to {rank - 1}")
    sizes = iter(x.shape)
    return [(x.dtype, tuple(1 if axis in places else next(sizes) for axis in range(rank)))]


def _view(
    type: str,
    shape: ShapeRule,
    grad: GradRule | None,
    *,
    domain: str = "",
    inputs: tuple[int, int] = (1, 1),
    kernel: Kernel = _reshape,
    constant_inputs: Mapping[int, str] | None = None,
) -> OpDef:
    return OpDef(
        type,
        inputs,
        shape,
        kernel,
        copy_cost,
        grad,
        lambda node: [-(-node.input(0).nelms * max(node.input(0).dtype.itemsize, 4) // 4)],
        view_of=0,
        domain=domain,
        constant_inputs=constant_inputs or {},
    )


def _back(d: Adjoint) -> Value:
    return d.g.shaped(d.shape)


def _pass(d: Adjoint) -> Value:
    return d.g


OPS = [
    _view("Identity", same, _pass, kernel=copy),
    _view("Nop", same, _pass, kernel=copy, domain=GRAPHCORE),
    _view("TensorRemap", same, _pass, inputs=(1, 2), kernel=copy, domain=GRAPHCORE),
    _view("Detach", same, None, kernel=copy, domain=GRAPHCORE),
    _view("Reshape", _reshape_by_input, _back, inputs=(2, 2), constant_inputs={1: "shape"}),
    _view("Reshape", _reshape_by_attribute, _back, domain=GRAPHCORE),
    _view("ReshapeTo", _reshape_to, _back),
    _view("Flatten", _flatten, _back),
    _view("Squeeze", _squeeze, _back, inputs=(1, 2), constant_inputs={1: "axes"}),
    _view("Unsqueeze", _unsqueeze, _back, inputs=(1, 2), constant_inputs={1: "axes"}),
]
