"""Rules of sizes, which are known when a program is compiled, and of ops that reshape or join."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from ipu_emu.ops import Value, concatenated
from ipu_emu.tensorflow.importer.node import Rule, SourceNode
from ipu_emu.tensorflow.importer.values import Held, Known

#: For each axis of TensorFlow's images, the axis of images stored channels first.
PLACES = {0: 0, 1: 2, 2: 3, 3: 1}


# Sizes


def _integers(node: SourceNode, values: Any) -> Known:
    return Known(np.asarray(values, node.numpy_of("out_type")))


# Reshaping


def _target(shape: Sequence[int], size: int) -> tuple[int, ...]:
    known = prod(length for length in shape if length != -1)
    return tuple(size // max(known, 1) if length == -1 else length for length in shape)


def _expand(node: SourceNode) -> Value:
    shape, axis = list(node.shape(0)), node.integer(1)
    shape.insert(axis + len(shape) + 1 if axis < 0 else axis, 1)
    return node.x.shaped(tuple(shape))


def _squeeze(node: SourceNode) -> Value:
    shape, rank = node.shape(0), len(node.shape(0))
    chosen = {axis % rank for axis in node.attr("squeeze_dims")} or {a for a in range(rank) if shape[a] == 1}
    return node.x.shaped(tuple(size for axis, size in enumerate(shape) if axis not in chosen))


def _transpose(node: SourceNode) -> Held:
    """A transpose from or to channels first needs no op if images are stored channels first."""
    held, perm = node.held(0), node.integers(1)
    places = [PLACES[axis] for axis in perm] if held.channels_first else perm
    if places == sorted(places):
        return Held(held.value)
    if held.channels_first and perm == [0, 1, 2, 3]:
        return held
    return Held(held.value.op("Transpose", perm=places))


def _joined(node: SourceNode, inputs: Sequence[int], axis: int) -> Held:
    operands = [node.inputs[index] for index in inputs]
    images = all(isinstance(operand, Held) and len(operand.shape) == 4 for operand in operands)
    if images and any(isinstance(operand, Held) and operand.channels_first for operand in operands):
        values, first = [node.first(index) for index in inputs], True
    else:
        values, first = [node.value(index) for index in inputs], False
    rank = values[0].tensor.rank
    place = PLACES[axis % 4] if first else axis % rank
    return Held(concatenated(values, place), first)


def _pack(node: SourceNode) -> Value:
    axis = int(node.attr("axis"))
    values = []
    for index in range(len(node.inputs)):
        shape = list(node.shape(index))
        place = axis + len(shape) + 1 if axis < 0 else axis
        values.append(node.value(index).shaped((*shape[:place], 1, *shape[place:])))
    return concatenated(values, place)


RULES: dict[str, Rule] = {
    "Concat": lambda node: _joined(node, range(1, len(node.inputs)), node.integer(0)),
    "ConcatV2": lambda node: _joined(node, range(len(node.inputs) - 1), node.integer(len(node.inputs) - 1)),
    "ExpandDims": _expand,
    "Pack": _pack,
    "Reshape": lambda node: node.x.shaped(_target(node.integers(1), prod(node.shape(0)))),
    "Shape": lambda node: _integers(node, node.shape(0)),
    "ShapeN": lambda node: [_integers(node, node.shape(index)) for index in range(len(node.inputs))],
    "Squeeze": _squeeze,
    "Transpose": _transpose,
    "Rank": lambda node: Known(np.asarray(len(node.shape(0)), np.int32)),
    "Size": lambda node: _integers(node, prod(node.shape(0))),
}
