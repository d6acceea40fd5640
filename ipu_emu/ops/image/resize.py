"""Resize: interpolation along each axis separately, as a gather (nearest) or a matrix product (the other modes)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from math import ceil, floor, fsum
from typing import Any

import numpy as np

from ipu_emu.errors import EmulatorError
from ipu_emu.ops.core import Adjoint, Node, OutputTypes, Rewrite, Value, copy_cost, per_element
from ipu_emu.ops.core.gather_kernels import added_rows
from ipu_emu.ops.core.kernel_helpers import ufunc, with_contiguous_operands
from ipu_emu.ops.core.op_definition import BoundOp, Call, OpDef, expanded_op
from ipu_emu.ops.core.shape_rules import axis_of, same, shape_attribute

_CROP = "tf_crop_and_resize"
_HALF = Fraction(1, 2)


@dataclass(frozen=True)
class _Axis:
    """One axis: its sizes, the scale (output / input; exact if sizes are given), and the region that is resized."""

    index: int
    size: int
    output: int
    scale: float | Fraction
    start: float = 0.0
    end: float = 1.0

    @property
    def stays(self) -> bool:
        return self.output == self.size and self.scale == 1 and (self.start, self.end) == (0.0, 1.0)


def _numbers(node: Node, name: str, index: int) -> list[Any]:
    return list(node.attribute_or_constant(name, index) or [])


def _is_old(node: Node) -> bool:
    """Opset 10 and before: nearest is always "pytorch", the other modes are "half_pixel", and there is no region."""
    return node.op.type == "Upsample" or node.op.version < 11


def _is_in_popart(node: Node) -> bool:
    """The opsets of PopART, whose rules are not those of newer ONNX everywhere."""
    return node.op.type == "Upsample" or node.op.version <= 11


def _axes(node: Node) -> list[_Axis]:
    """All axes that are resized; opset 10 has the scales where newer ones have a region."""
    x = node.input(0)
    if _is_old(node):
        scales, sizes = _numbers(node, "scales" if node.op.type == "Upsample" else "roi", 1), []
        if node.op.type == "Upsample" and "height_scale" in node.op.attributes:  # opsets 1 to 6, of images only
            scales = [1.0, 1.0, node.op.attributes["height_scale"], node.op.attributes["width_scale"]]
    else:
        scales, sizes = _numbers(node, "scales", 2), _numbers(node, "sizes", 3)
    if scales and sizes:
        raise EmulatorError(
            f"Resize op has inputs for `sizes` and `scales`. Only one of them may be given; Op {node.op.label}"
        )
    chosen = [axis_of(node, axis) for axis in node.attribute("axes", [])] or list(range(x.rank))
    if len(scales or sizes) != len(chosen):
        raise node.fail(f"scales {scales} or sizes {sizes} are needed, a number for each of the axes {chosen} of {x}")
    if _where(node) == _CROP:
        return _cropped(node, chosen, scales, sizes)
    if scales:
        return [_Axis(i, x.shape[i], _scaled(x.shape[i], s), float(s)) for i, s in zip(chosen, scales, strict=True)]
    ratios = [Fraction(int(size), max(x.shape[i], 1)) for i, size in zip(chosen, sizes, strict=True)]
    policy = node.attribute("keep_aspect_ratio_policy", "stretch")
    if policy != "stretch":
        ratio = min(ratios) if policy == "not_larger" else max(ratios)
        return [_Axis(i, x.shape[i], floor(x.shape[i] * ratio + _HALF), ratio) for i in chosen]
    return [_Axis(i, x.shape[i], int(n), r) for i, n, r in zip(chosen, sizes, ratios, strict=True)]


def _scaled(size: int, scale: float) -> int:
    return floor(np.float32(size) * np.float32(scale))


def _cropped(node: Node, chosen: list[int], scales: list[Any], sizes: list[Any]) -> list[_Axis]:
    """The resized axes, cropped to the region: all starts, then all ends, as fractions of the input."""
    x, region = node.input(0), _numbers(node, "roi", 1)
    if len(region) != 2 * len(chosen):
        raise node.fail(f"the region must be {2 * len(chosen)} numbers, found {region}")
    axes = []
    for index, (i, start, end) in enumerate(zip(chosen, region, region[len(chosen) :], strict=False)):
        size = x.shape[i]
        output = int(sizes[index]) if sizes else floor(size * (end - start) * scales[index] + 1e-6)
        scale = scales[index] if scales else output / max(size * (end - start), 1e-9)
        axes.append(_Axis(i, size, output, float(scale), float(start), float(end)))
    return axes


def _shape(node: Node) -> OutputTypes:
    mode = node.attribute("mode", "nearest")
    if mode not in ("nearest", "linear", "bilinear", "trilinear", "cubic"):
        raise EmulatorError(f"Unrecognised resize mode {mode}; use nearest, linear or cubic in Op {node.op.label}")
    if _where(node) not in _COORDINATES or (_where(node) == _CROP and _is_in_popart(node)):
        raise EmulatorError(f"Unsupported coordinate transformation mode {_where(node)} in Op {node.op.label}")
    if _rounding(node) not in _NEAREST:
        known = ", ".join(_NEAREST)
        raise EmulatorError(
            f"Unrecognised resize nearest mode {_rounding(node)}; use one of {known} in Op {node.op.label}"
        )
    shape = list(node.input(0).shape)
    for axis in _axes(node):
        shape[axis.index] = axis.output
    return [(node.input(0).dtype, tuple(shape))]


def _where(node: Node) -> str:
    """The coordinate transformation."""
    if _rounding(node) == "pytorch" and _is_nearest(node):
        return "asymmetric"
    return "half_pixel" if _is_old(node) else str(node.attribute("coordinate_transformation_mode", "half_pixel"))


def _rounding(node: Node) -> str:
    return "pytorch" if _is_old(node) else str(node.attribute("nearest_mode", "round_prefer_floor"))


def _is_nearest(node: Node) -> bool:
    return bool(node.attribute("mode", "nearest") == "nearest")


def _symmetric(o: int, axis: _Axis) -> float | Fraction:
    """Align the centres of input and output, even if the output size was rounded."""
    middle = axis.size * _HALF
    return middle * (1 - axis.output / (axis.scale * axis.size)) + (o + _HALF) / axis.scale - _HALF


def _corners(o: int, axis: _Axis) -> float | Fraction:
    """Align the first and the last elements; the output length before rounding may be a fraction."""
    length = axis.scale * axis.size
    return o * (axis.size - 1) / (length - 1) if length != 1 else 0.0


def _in_region(o: int, axis: _Axis) -> float:
    last = axis.size - 1
    if axis.output == 1:
        return 0.5 * (axis.start + axis.end) * last
    return (axis.start + o * (axis.end - axis.start) / (axis.output - 1)) * last


#: The input coordinate of output element o, by coordinate_transformation_mode.
_COORDINATES: dict[str, Callable[[int, _Axis], float | Fraction]] = {
    "half_pixel": lambda o, axis: (o + _HALF) / axis.scale - _HALF,
    "half_pixel_symmetric": _symmetric,
    "pytorch_half_pixel": lambda o, axis: (o + _HALF) / axis.scale - _HALF if axis.size * axis.scale > 1 else 0.0,
    "align_corners": _corners,
    "asymmetric": lambda o, axis: o / axis.scale,
    _CROP: _in_region,
}

_NEAREST: dict[str, Callable[[float | Fraction], int]] = {
    "round_prefer_floor": lambda x: ceil(x - _HALF),
    "round_prefer_ceil": lambda x: floor(x + _HALF),
    "floor": floor,
    "ceil": ceil,
    "pytorch": floor,
}


def _bicubic(x: float, a: float) -> float:
    x = abs(x)
    if x < 1:
        return ((a + 2) * x - (a + 3)) * x * x + 1
    return (((x - 5) * x + 8) * x - 4) * a if x < 2 else 0.0


def _matrix(node: Node, axis: _Axis) -> Any:
    """Weights [size, output]; elements outside are clamped to the nearest one inside, or have no weight.

    With antialias, downscaling widens the filter by the inverse of the scale, so that every element has a weight.
    """
    filter, reach = (_bicubic, 2) if node.attribute("mode", "") == "cubic" else (lambda x, a: max(1 - abs(x), 0.0), 1)
    a, left_out = float(node.attribute("cubic_coeff_a", -0.75)), bool(node.attribute("exclude_outside", 0))
    matrix, place = np.zeros((axis.size, axis.output)), _COORDINATES[_where(node)]
    narrowed = min(float(axis.scale), 1.0) if node.attribute("antialias", 0) else 1.0
    reach = ceil(reach / narrowed)
    for o in range(axis.output):
        x = float(place(o, axis))
        for tap in range(floor(x) - reach, ceil(x) + reach + 1):
            weight = filter((tap - x) * narrowed, a)
            if not left_out or 0 <= tap < axis.size:
                matrix[min(max(tap, 0), axis.size - 1), o] += weight
        matrix[:, o] /= fsum(matrix[:, o])
    return matrix


def _expand(rewrite: Rewrite, node: Node) -> None:
    x, rank, id = node.input(0), node.input(0).rank, node.op.inputs[0]
    for axis in _axes(node):
        if _stays(node, axis):
            continue
        if _is_nearest(node):
            places, back = _nearest_places(node, axis)
            id = rewrite.op("NearestAlong", id, axis=axis.index, places=places, gradient_places=back)
            continue
        perm = [i for i in range(rank) if i != axis.index] + [axis.index]
        weights = rewrite.constant(_matrix(node, axis).astype(x.dtype.numpy))
        turned = rewrite.op("MatMul", rewrite.op("Transpose", id, perm=perm), weights)
        id = rewrite.op("Transpose", turned, perm=[perm.index(i) for i in range(rank)])
    if _where(node) == _CROP:
        id = _with_outside(node, rewrite, id)
    linear = _is_in_popart(node) and node.attribute("mode", "nearest") in ("linear", "bilinear", "trilinear")
    rewrite.op("ResizedLinearly" if linear else "Identity", id, into=node.op.outputs[0])


def _stays(node: Node, axis: _Axis) -> bool:
    """Whether nothing changes along an axis; of PopART's own mode only the size counts."""
    if _is_nearest(node) and _rounding(node) == "pytorch":
        return axis.output == axis.size
    return axis.stays


def _nearest_places(node: Node, axis: _Axis) -> tuple[list[int], list[int]]:
    """The input element of each output element, forward and for the gradient, which in PopART is always i / scale."""
    rounding, last = _NEAREST[_rounding(node)], max(axis.size - 1, 0)
    places = [min(max(rounding(_COORDINATES[_where(node)](o, axis)), 0), last) for o in range(axis.output)]
    back = [min(floor(o / axis.scale), last) for o in range(axis.output)] if _is_in_popart(node) else places
    return places, back


def _nearest_shape(node: Node) -> OutputTypes:
    x, axis = node.input(0), node.attribute("axis", 0)
    return [(x.dtype, (*x.shape[:axis], len(node.attribute("places", [])), *x.shape[axis + 1 :]))]


def _nearest(bound: BoundOp) -> Call:
    places = np.array(bound.node.attribute("places", []), np.int64)
    return partial(np.take, bound.input(0), places, bound.node.attribute("axis", 0), bound.outputs[0], "clip")


def _nearest_grad(d: Adjoint) -> Value:
    axis, places = d.attribute("axis", 0), d.attribute("gradient_places", [])
    return d.g.op("NearestAlongGrad", axis=axis, places=places, shape=list(d.shape))


def _nearest_back(bound: BoundOp) -> Call:
    axis, places = bound.node.attribute("axis", 0), np.array(bound.node.attribute("places", []), np.int64)
    return added_rows(bound.input(0), places, bound.outputs[0], axis)


def _refuse_training(d: Adjoint) -> Value:
    raise EmulatorError("Resize mode 'linear' is not supported when training.")


def _with_outside(node: Node, rewrite: Rewrite, id: str) -> str:
    """Replace output elements that lie outside of the input by the extrapolation value."""
    x, inside = node.input(0), np.ones((1,) * node.input(0).rank, bool)
    for axis in _axes(node):
        places = np.array([_in_region(o, axis) for o in range(axis.output)])
        shape = [axis.output if i == axis.index else 1 for i in range(x.rank)]
        inside = inside & ((places >= 0) & (places <= axis.size - 1)).reshape(shape)
    if inside.all():
        return id
    value = rewrite.constant(np.array(node.attribute("extrapolation_value", 0.0), x.dtype.numpy))
    return rewrite.op("Where", rewrite.constant(inside), id, value)


_COST = per_element(8)

OPS = [
    expanded_op("Resize", (2, 4), _shape, _expand, _COST, constant_inputs={1: "roi", 2: "scales", 3: "sizes"}),
    expanded_op("Upsample", (1, 2), _shape, _expand, _COST, constant_inputs={1: "scales"}),
    OpDef("NearestAlong", (1, 1), _nearest_shape, with_contiguous_operands(_nearest), copy_cost, _nearest_grad),
    OpDef("NearestAlongGrad", (1, 1), shape_attribute, with_contiguous_operands(_nearest_back), copy_cost),
    OpDef("ResizedLinearly", (1, 1), same, ufunc(np.positive), copy_cost, _refuse_training),
]
