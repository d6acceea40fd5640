"""Rules of random numbers: the engine's counter-based generator makes them independent of the layout of replicas."""

from __future__ import annotations

from math import sqrt
from typing import Any

import numpy as np

from ipu_emu.ops import Value
from ipu_emu.tensorflow.importer.node import Rule, SourceNode
from ipu_emu.tensorflow.importer.rules.arithmetic import cast_to

#: A truncated normal number is drawn between these probabilities, those of two standard deviations.
_LOW, _HIGH = 0.022750131948179195, 0.9772498680518208


def _salt(node: SourceNode) -> str:
    """The salt that makes the numbers of this op differ from those of others: its name and its seeds."""
    seeds = [str(node.attr(entry.name)) for entry in node.op.op_def.attr if entry.name in ("seed", "seed2")]
    return ":".join([node.op.name, *seeds])


def _drawn(node: SourceNode, type: str, shape: list[int], numpy: Any, values: tuple[float, float]) -> Value:
    return node.writer.random(type, shape, numpy, values, _salt(node))


def _standard(type: str) -> Rule:
    """The rule of uniform numbers between 0 and 1, or of normal numbers."""
    return lambda node: _drawn(node, type, node.integers(0), node.numpy_of("dtype"), (0.0, 1.0))


def _inverse_normal(p: Value) -> Value:
    """The inverse of the normal distribution in the middle (0.0227 to 0.977), by the inverse of erf (Giles, 2010)."""
    x = p * 2.0 - 1.0
    w = -((1 - x) * (x + 1.0)).op("Log") - 2.5
    result = w.constantly(2.81022636e-08)
    for factor in (3.43273939e-07, -3.5233877e-06, -4.39150654e-06, 0.00021858087, -0.00125372503, -0.00417768164,
                   0.246640727, 1.50140941):  # fmt: skip
        result = result * w + factor
    return result * x * sqrt(2)


def _truncated(node: SourceNode) -> Value:
    p = _drawn(node, "RandomUniforms", node.integers(0), np.float32, (_LOW, _HIGH))
    return cast_to(_inverse_normal(p), node.numpy_of("dtype"))


def _integers(node: SourceNode) -> Value:
    """(shape, ..., lowest, highest + 1)"""
    low, high = (node.integer(len(node.inputs) - place) for place in (2, 1))
    unit = _drawn(node, "RandomUniforms", node.integers(0), np.float32, (0.0, 1.0))
    number = (unit * float(high - low)).op("Floor").op("Min", unit.like(high - low - 1))
    return cast_to(number + float(low), node.numpy_of("dtype" if node.op.type.startswith("Stateless") else "Tout"))


def _bits(node: SourceNode, shape: list[int], numpy: Any) -> Value:
    """Integers in place of random bits: the state of a generator, a seed, a key or a counter."""
    unit = node.writer.random("RandomUniforms", shape, np.float32, (0.0, 2.0**24), f"{_salt(node)}:{shape}")
    return cast_to(unit.op("Floor"), numpy)


def _generator_state(node: SourceNode) -> Value:
    """The state of a ``tf.random.Generator``, which does not change: the program's own counters advance instead."""
    return _bits(node, [node.variable(0).shape[0]], np.int64)


def _bitcast(node: SourceNode) -> Value:
    """Integers with and without a sign."""
    kinds = [np.dtype(node.numpy_of(name)) for name in ("T", "type")]
    if any(kind.kind not in "iu" for kind in kinds) or kinds[0].itemsize != kinds[1].itemsize:
        raise node.refuse(f"it reads {kinds[0]} as {kinds[1]}; only integers of one width are read as each other")
    return cast_to(node.x, kinds[1])


def _multinomial(node: SourceNode) -> Value:
    """(logits, number of samples)"""
    logs, count = node.x.op("LogSoftmax", axis=1), node.integer(1)
    shape = [logs.tensor.shape[0], count]
    numbers = _drawn(node, "RandomUniforms", shape, np.float32, (0.0, 1.0))
    return cast_to(logs.op("DrawnClasses", numbers), node.numpy_of("output_dtype"))


RULES: dict[str, Rule] = {
    "Bitcast": _bitcast,
    "Multinomial": _multinomial,
    "RandomStandardNormal": _standard("RandomNormals"),
    "RandomUniform": _standard("RandomUniforms"),
    "RandomUniformInt": _integers,
    "RngReadAndSkip": _generator_state,
    "StatelessRandomGetKeyCounter": lambda node: [_bits(node, [size], np.uint64) for size in (1, 2)],
    "StatelessRandomNormalV2": _standard("RandomNormals"),
    "StatelessRandomUniformFullIntV2": lambda node: _bits(node, node.integers(0), node.numpy_of("dtype")),
    "StatelessRandomUniformIntV2": _integers,
    "StatelessRandomUniformV2": _standard("RandomUniforms"),
    "StatelessTruncatedNormalV2": _truncated,
    "TruncatedNormal": _truncated,
}
