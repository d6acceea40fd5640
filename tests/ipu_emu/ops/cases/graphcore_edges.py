"""A table of small checks of the ops of aiGraphcore, each with a function that defines the op."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ipu_emu import popart
from tests.ipu_emu.ops.cases.edge_tables import Array, Expected, Known, some

__all__ = ["graphcore"]


def graphcore() -> Iterator[Known]:
    """The ops of aiGraphcore; the function has the definition."""
    yield from elementwise()
    yield from places()
    yield from losses()


def elementwise() -> Iterator[Known]:
    def swish(x: Array) -> Array:
        return np.asarray(x / (1 + np.exp(-x)))

    def gelu(x: Array) -> Array:
        return np.asarray(0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))), np.float32)

    def gelu_erf(x: Array) -> Array:
        return np.asarray(0.5 * x * (1 + np.vectorize(math.erf, otypes=[float])(x / np.sqrt(2))), np.float32)

    alone = {
        "geluerf": gelu_erf,
        "round": np.rint,
        "expm1": np.expm1,
        "log1p": np.log1p,
        "swish": swish,
        "gelu": gelu,
        "nearbyint": np.rint,
    }
    alone |= {"detach": np.positive, "nop": np.positive, "tensorremap": np.positive}
    for (name, function), shape in itertools.product(alone.items(), ((2, 3), (1,), (), (0, 3))):
        yield (name, [np.asarray(some(shape) * np.float32(3))], {}, 10), single(function)
    halves = np.array([-2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 0.4], np.float32)
    yield ("nearbyint", [halves], {}, 10), single(np.rint)
    yield ("round", [halves], {}, 10), single(np.rint)  # ONNX's Round: halves go to the even number
    shapes = (((2, 3), (3,)), ((2, 3), ()), ((1,), (1,)), ((0, 3), (1, 3)))
    both = {"atan2": np.arctan2, "fmod": np.fmod, "remainder": np.remainder}
    for (name, function), (a, b) in itertools.product(both.items(), shapes):
        yield (name, [some(a) - np.float32(0.5), some(b, seed=2)], {}, 10), single(function)
        if name != "atan2":
            yield (name, [some(a, "int32") - 5, some(b, "int32", 2)], {}, 10), single(function)
    yield ("fmod", [-some((2, 3)), some((3,), seed=2)], {}, 10), single(np.fmod)
    bits = {"bitwiseand": np.bitwise_and, "bitwiseor": np.bitwise_or, "bitwisexor": np.bitwise_xor}
    bits["bitwisexnor"] = lambda a, b: ~(a ^ b)
    for (name, function), dtype in itertools.product(bits.items(), ("int32", "uint32")):
        yield (name, [some((2, 3), dtype), some((3,), dtype, 2)], {}, 10), single(function)
    for dtype in ("int32", "uint32"):
        yield ("bitwisenot", [some((2, 3), dtype)], {}, 10), single(np.invert)
    for factor in (0.5, -2.0, 0.0):
        yield ("scale", [some((2, 3))], {"scale": factor}, 10), lambda x, scale: [x * np.float32(scale)]
    for options in ({}, {"scale0": 0.5}, {"scale0": 2.0, "scale1": -1.5}):
        yield (
            ("scaledadd", [some((2, 3)), some((2, 3), seed=2)], options, 10),
            lambda a, b, scale0=1.0, scale1=1.0: [np.float32(scale0) * a + np.float32(scale1) * b],
        )
    for values, by, top in ((some((2, 3), "int32"), 3, 7), (some((3,)), 1.5, 2.0)):
        options = {"increment": by, "modulus": top}
        yield (
            ("incrementmod", [values], options, 10),
            lambda x, increment, modulus: [np.fmod(x + x.dtype.type(increment), x.dtype.type(modulus))],
        )


def places() -> Iterator[Known]:
    x = some((2, 3, 4))
    for target in ([4, 6], [-1], [2, -1, 2], [0, 12]):
        yield (
            ("reshape", [x], {"shape": target}, 10),
            lambda x, shape: [x.reshape([2 if n == 0 else n for n in shape])],
        )
    for dims in ([0], [1, 2], [0, 1, 2], []):
        yield ("reverse", [x], {"dimensions": dims}, 10), lambda x, dimensions: [np.flip(x, tuple(dimensions))]
    for steps in ([1, 1, 1], [2, 2, 3], [5, 1, 2]):
        yield (
            ("subsample", [x], {"strides": steps}, 10),
            lambda x, strides: [x[tuple(slice(None, None, s) for s in strides)]],
        )
    for options in ({"starts": [1], "ends": [3], "axes": [1]}, {"starts": [0, -2], "ends": [1, 9]}):
        yield ("slice", [x], options, 10), sliced
    for axis in (0, 1, 2, -1, -3):
        for down in (0, 1):
            yield ("sort", [x], {"axis": axis, "descending": down}, 10), ordered
    yield ("sort", [x], {}, 10), ordered
    yield ("sort", [some((1,))], {}, 10), ordered
    for axes, keep in itertools.product((None, [0], [-1], [0, 2], [1, -1]), (0, 1)):
        yield ("reducemedian", [x], {"axes": axes, "keepdims": keep}, 10), median
    at = np.array([1, 2], np.uint32)
    piece = some((2, 1, 2), seed=2)
    options = {"axes": [1, 2], "sizes": [1, 2]}
    for name, arrays in (
        ("dynamicslice", [x, at]),
        ("dynamicupdate", [x, at, piece]),
        ("dynamicadd", [x, at, piece]),
        ("dynamiczero", [x, at]),
    ):
        yield (name, arrays, options, 10), dynamic(name)
        yield (
            (name, [x, at[:1], *([some((1, 3, 4))] if len(arrays) > 2 else [])], {"axes": [0], "sizes": [1]}, 10),
            dynamic(name),
        )
    for options in ({"blocksize": 2}, {"blocksize": 2, "mode": "CRD"}):
        yield ("depthtospace", [some((1, 8, 2, 3))], options, 10), depth_to_space
    for axis in (0, 1, -1):
        yield (
            ("bucketize", [some((2, 3)), np.array([0.2, 0.5, 0.5, 0.8], np.float32)], {"right": axis > 0}, 10),
            lambda x, edges, right: [np.digitize(x, edges, right=not right).astype(np.int32)],
        )
    for groups, epsilon in ((1, 1e-5), (2, 0.1), (4, 1e-5)):
        arrays = [some((2, 4, 3)), some((4,), seed=2), some((4,), seed=3)]
        yield ("groupnormalization", arrays, {"num_groups": groups, "epsilon": epsilon}, 10), group_norm
    for axis in (1, 2, -1, -2):
        arrays = [some((2, 3, 4)), np.array([[0, 2], [1, 1]], np.int32)]
        yield ("groupedgather", arrays, {"axis": axis, "group_size": 2}, 10), gathered
    data, indices = some((3, 4)), np.array([[0, 1, 1, 2], [2, 0, 1, 2]], np.int32)
    for axis in (0, -2):
        for reduction in (popart.ScatterReduction.Sum, popart.ScatterReduction.Max, popart.ScatterReduction.Min):
            options = {"axis_size": 3, "axis": axis, "reduction": reduction}
            yield ("scatterreduce", [data[:2], indices], options, 10), scattered


def losses() -> Iterator[Known]:
    x, none = some((3, 4)) - np.float32(0.5), popart.ReductionType.NoReduction
    kinds = {popart.ReductionType.Mean: np.mean, popart.ReductionType.Sum: np.sum, none: np.positive}
    probabilities = np.exp(x) / np.exp(x).sum(1, keepdims=True)
    labels = np.array([0, 3, 2], np.int32)

    def nll(
        p: Array, at: Array, reduction: Any, ignoreIndex: int | None = None, inputIsLogProbability: bool = False
    ) -> list[Any]:
        logs = p if inputIsLogProbability else np.log(p)
        terms = np.where(at == ignoreIndex, 0, -np.take_along_axis(logs, at[:, None], 1)[:, 0])
        count = (at != ignoreIndex).sum()
        reduced = terms.sum() / count if reduction == popart.ReductionType.Mean else kinds[reduction](terms)
        return [np.asarray(reduced, np.float32)]

    for reduction in kinds:
        yield ("identityloss", [x], {"reduction": reduction}, 10), lambda x, reduction: [kinds[reduction](x)]
        options = {"lambda": 0.3, "reduction": reduction}
        yield ("l1loss", [x], options, 10), lambda x, reduction, **rest: [kinds[reduction](np.float32(0.3) * abs(x))]
        yield ("nllloss", [probabilities, labels], {"reduction": reduction}, 10), nll
        yield ("nllloss", [probabilities, labels], {"reduction": reduction, "ignoreIndex": 3}, 10), nll
        yield (
            ("nllloss", [np.log(probabilities), labels], {"reduction": reduction, "inputIsLogProbability": True}, 10),
            nll,
        )
    yield ("identityloss", [x], {}, 10), lambda x: [x.mean()]
    yield ("nllloss", [probabilities, labels], {}, 10), lambda p, at: nll(p, at, popart.ReductionType.Mean)


def single(function: Callable[..., Any]) -> Expected:
    return lambda *arrays: [function(*arrays)]


def sliced(x: Array, starts: list[int], ends: list[int], axes: list[int] | None = None) -> list[Array]:
    where = [slice(None)] * x.ndim
    for axis, first, last in zip(axes or range(len(starts)), starts, ends, strict=True):
        where[axis] = slice(first, last)
    return [x[tuple(where)]]


def ordered(x: Array, axis: int = -1, descending: int = 0) -> list[Array]:
    at = np.argsort(-x if descending else x, axis)
    return [np.take_along_axis(x, at, axis), at.astype(np.int32)]


def median(x: Array, axes: list[int] | None, keepdims: int) -> list[Array]:
    """The lower one of two in the middle, and its place."""
    chosen = sorted(axis % x.ndim for axis in (range(x.ndim) if axes is None else axes))
    rest = [axis for axis in range(x.ndim) if axis not in chosen]
    rows = x.transpose(*rest, *chosen).reshape([x.shape[axis] for axis in rest] + [-1])
    at = np.argsort(rows, -1)[..., (rows.shape[-1] - 1) // 2]
    values = np.take_along_axis(rows, at[..., None], -1)[..., 0]
    shape = [1 if axis in chosen else n for axis, n in enumerate(x.shape)] if keepdims else values.shape
    return [values.reshape(shape), at.reshape(shape).astype(np.int32)]


def dynamic(name: str) -> Expected:
    def expected(x: Array, index: Array, piece: Any = 0, *, axes: list[int], sizes: list[int]) -> list[Array]:
        where = [slice(None)] * x.ndim
        for axis, first, size in zip(axes, index.tolist(), sizes, strict=True):
            where[axis] = slice(first, first + size)
        if name == "dynamicslice":
            return [x[tuple(where)]]
        changed = x.copy()
        changed[tuple(where)] = changed[tuple(where)] + piece if name == "dynamicadd" else piece
        return [changed]

    return expected


def depth_to_space(x: Array, blocksize: int, mode: str = "DCR") -> list[Array]:
    n, c, h, w = x.shape
    depth = c // blocksize**2
    parts, order = (
        ((blocksize, blocksize, depth), (0, 3, 4, 1, 5, 2))
        if mode == "DCR"
        else ((depth, blocksize, blocksize), (0, 1, 4, 2, 5, 3))
    )
    return [x.reshape(n, *parts, h, w).transpose(order).reshape(n, depth, h * blocksize, w * blocksize)]


def group_norm(x: Array, scale: Array, bias: Array, num_groups: int, epsilon: float) -> list[Array]:
    rows = x.reshape(len(x) * num_groups, -1).astype(np.float64)
    mean, deviation = rows.mean(1), np.sqrt(rows.var(1) + epsilon)
    y = ((rows - mean[:, None]) / deviation[:, None]).reshape(x.shape) * scale[:, None] + bias[:, None]
    return [part.astype(np.float32) for part in (y, mean, 1 / deviation)]


def gathered(x: Array, indices: Array, axis: int, group_size: int) -> list[Array]:
    """The axis counts the dimension of the groups."""
    rows = zip(x, indices, strict=True)
    return [np.stack([np.take(part, at, axis - 1 if axis > 0 else axis) for part, at in rows])]


def scattered(x: Array, indices: Array, axis_size: int, axis: int, reduction: Any) -> list[Array]:
    kinds = {"Sum": np.add, "Max": np.maximum, "Min": np.minimum}
    sums, seen = np.zeros((axis_size, x.shape[1]), np.float32), np.zeros((axis_size, x.shape[1]), bool)
    for row, column in np.ndindex(x.shape):
        to = indices[row, column], column
        sums[to] = kinds[reduction.name](sums[to], x[row, column]) if seen[to] else x[row, column]
        seen[to] = True
    return [sums]
