"""Non-maximum suppression: of boxes that overlap, keeps only the one with the highest score."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ipu_emu.ops.core import Node, OpDef, copy_cost
from ipu_emu.ops.core.shape_rules import as_declared

_Array = Any


def _value(node: Node, index: int, default: float) -> Any:
    if not node.has_input(index):
        return default
    value = node.values[index]
    if value is None:
        raise node.fail(f"input {index} is not a constant, so the shape of the result is not known")
    return value if index < 2 else value.reshape(-1)[0]


def _corners(boxes: _Array, *, centred: bool) -> _Array:
    """[low, low, high, high] of each box."""
    if centred:
        return np.concatenate([boxes[:, :2] - boxes[:, 2:] / 2, boxes[:, :2] + boxes[:, 2:] / 2], 1)
    first, second = boxes[:, :2], boxes[:, 2:]
    return np.concatenate([np.minimum(first, second), np.maximum(first, second)], 1)


def _area(sides: _Array) -> _Array:
    return sides[..., 0] * sides[..., 1]


def _overlap(box: _Array, others: _Array) -> _Array:
    """Intersection over union of a box with each of the others."""
    sides = np.minimum(box[2:], others[:, 2:]) - np.maximum(box[:2], others[:, :2])
    shared = _area(np.maximum(sides, 0))
    areas = _area(others[:, 2:] - others[:, :2])
    together = _area(box[2:] - box[:2]) + areas - shared
    return np.divide(shared, together, out=np.zeros_like(shared), where=together > 0)


def _kept(boxes: _Array, scores: _Array, most: int, limit: float) -> Iterator[int]:
    """Indices of the boxes that are kept, by falling score; equal scores in the order of the boxes."""
    left = np.argsort(-scores, kind="stable")
    for _ in range(most):
        if not left.size:
            return
        yield int(left[0])
        left = left[1:][_overlap(boxes[left[0]], boxes[left[1:]]) <= limit]


def _selected(node: Node) -> list[_Array]:
    """[image, class, box] of every box that is kept."""
    boxes, scores = _value(node, 0, 0), _value(node, 1, 0)
    most, limit, least = int(_value(node, 2, 0)), _value(node, 3, 0.0), _value(node, 4, -np.inf)
    rows: list[tuple[int, int, int]] = []
    for image, places in enumerate(boxes):
        corners = _corners(places, centred=bool(node.attribute("center_point_box", 0)))
        for label, values in enumerate(scores[image]):
            (chosen,) = np.nonzero(values > least)
            rows += [(image, label, int(chosen[k])) for k in _kept(corners[chosen], values[chosen], most, limit)]
    return [np.array(rows, np.int64).reshape(-1, 3)]


OPS = [OpDef("NonMaxSuppression", (2, 5), as_declared, None, copy_cost, constant_outputs=_selected)]
