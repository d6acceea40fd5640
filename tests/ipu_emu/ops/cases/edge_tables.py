"""Tables of small checks of layers: defaults, optional inputs, directions, sizes 0 and 1.

An input None is an optional input that is left out by its empty name. A case of ONNX's ops is compared with ONNX's
reference evaluator, the others with the function in their row.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

__all__ = [
    "Array",
    "Case",
    "Expected",
    "Known",
    "ints",
    "optional",
    "recurrent",
    "some",
    "windows",
    "without_reference",
]

Array = np.ndarray[Any, Any]
#: (name of the method, arrays of the inputs, further arguments, opset).
Case = tuple[str, list[Any], dict[str, Any], int]
#: From the arrays of the inputs and the further arguments to the outputs.
Expected = Callable[..., Sequence[Any]]
Known = tuple[Case, Expected]

GATES = {"rnn": 1, "gru": 3, "lstm": 4}


def some(shape: Sequence[int], dtype: str = "float32", seed: int = 1) -> Array:
    values = np.random.default_rng(seed).uniform(0.1, 0.9, shape)
    return np.asarray(values if dtype.startswith("float") else values * 10, dtype)


def ints(*values: int) -> Array:
    return np.array(values, np.int64)


def windows() -> Iterator[Case]:
    """Convolutions and pooling."""
    x, w, b = some((2, 4, 5, 6)), some((6, 4, 3, 2), seed=2), some((6,), seed=3)
    yield "conv", [x, w], {}, 10
    yield "conv", [x, w, None], {}, 10
    yield "conv", [x, w, b], {}, 11
    for options in (
        {"pads": [1, 0, 2, 1]},
        {"strides": [2, 1]},
        {"dilations": [1, 3]},
        {"kernel_shape": [3, 2]},
        {"dilations": [2, 2], "pads": [2, 1, 0, 3], "strides": [3, 2]},
    ):
        yield "conv", [x, w, b], options, 10
    yield "conv", [x, some((6, 2, 3, 3))], {"group": 2}, 10
    yield "conv", [x, some((4, 1, 1, 1)), some((4,))], {"group": 4}, 10
    yield "conv", [some((1, 1, 1)), some((1, 1, 1))], {}, 10
    yield "conv", [some((1, 2, 7)), some((3, 2, 3))], {"pads": [1, 1]}, 10
    yield "conv", [some((1, 2, 3, 4, 3)), some((2, 2, 2, 2, 2))], {"strides": [1, 2, 1]}, 10
    yield "conv", [some((0, 4, 5, 6)), w, b], {}, 10
    small = some((1, 3, 3, 4))
    for options in (
        {},
        {"strides": [2, 2]},
        {"pads": [1, 0, 0, 1]},
        {"output_padding": [1, 0], "strides": [2, 2]},
        {"kernel_shape": [2, 3]},
    ):
        yield "convtranspose", [small, some((3, 2, 2, 3), seed=2)], options, 11
    yield "convtranspose", [small, some((3, 2, 2, 3), seed=2), some((2,))], {}, 10
    operands = [some((1, 1, 3, 3), "uint8"), some((1, 1, 2, 2), "uint8", 2)]
    yield "convinteger", operands, {}, 10
    yield "convinteger", [*operands, np.array(3, np.uint8)], {"pads": [1, 1, 1, 1]}, 10
    for options in (
        {},
        {"strides": [2, 2]},
        {"pads": [1, 0, 0, 1]},
        {"pads": [1, 1, 1, 1], "strides": [2, 3]},
        {"ceil_mode": 1, "strides": [2, 2]},
    ):
        yield "averagepool", [x], {"kernel_shape": [2, 3], **options}, 10
        yield "maxpool", [x], {"num_outputs": 1, "kernel_shape": [2, 3], **options}, 10
    yield "averagepool", [x], {"kernel_shape": [2, 2], "pads": [1, 1, 1, 1], "count_include_pad": 1}, 10
    yield "maxpool", [x], {"num_outputs": 1, "kernel_shape": [2, 2], "dilations": [2, 1]}, 10
    yield "maxpool", [x - np.float32(2)], {"num_outputs": 1, "kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}, 10
    yield "maxpool", [some((1, 1, 1))], {"num_outputs": 1, "kernel_shape": [1]}, 10
    yield "maxpool", [some((1, 2, 3, 3, 3))], {"num_outputs": 1, "kernel_shape": [2, 2, 2]}, 10
    yield "averagepool", [some((0, 2, 3))], {"kernel_shape": [2]}, 10
    for p, options in itertools.product((1, 2, 3), ({}, {"pads": [1, 0, 0, 1], "strides": [2, 1]})):
        yield "lppool", [x], {"kernel_shape": [2, 2], "p": p, **options}, 10
    for shape in ((2, 3, 4, 5), (1, 1, 1), (2, 3, 4)):
        yield "globalaveragepool", [some(shape)], {}, 10
        yield "instancenormalization", [some(shape), some(shape[1:2]), some(shape[1:2], seed=2)], {}, 10
    for options in ({}, {"epsilon": 0.1}):
        yield "instancenormalization", [some((2, 3, 4)), some((3,)), some((3,), seed=2)], options, 10
    # The reference has errors elsewhere: in LRN where N < C, in GlobalMaxPool but for two dimensions.
    yield "globalmaxpool", [some((2, 3, 4, 5))], {}, 10
    yield "globalmaxpool", [some((1, 1, 1, 1))], {}, 10
    for options in ({"size": 3}, {"size": 4, "alpha": 0.1, "beta": 0.5, "bias": 2.0}, {"size": 1}, {"size": 9}):
        yield "lrn", [some((5, 5, 2, 2))], options, 10


def optional() -> Iterator[Case]:
    """Optional inputs that are absent: trailing ones, or by the empty name."""
    x = some((2, 3))
    low, high = np.array(0.3, np.float32), np.array(0.6, np.float32)
    for limits in ([], [low], [low, high], [None, high], [low, None], [None, None]):
        yield "clip", [x, *limits], {}, 11
    yield "gemm", [x, some((3, 4)), None], {}, 11
    yield "pad", [x, ints(1, 0, 0, 1), None], {}, 11
    yield "slice", [x, ints(1, 1), ints(2, 3)], {}, 10
    yield "slice", [x, ints(2, 1), ints(0, 0), None, ints(-1, -1)], {}, 10
    operands = [some((2, 3), "uint8"), some((3, 2), "uint8", 2)]
    yield "matmulinteger", operands, {}, 10
    yield "matmulinteger", [*operands, None, np.array(3, np.uint8)], {}, 10
    yield "matmulinteger", [*operands, np.array(2, np.uint8)], {}, 10
    yield "quantizelinear", [some((2, 3)), low], {}, 10
    yield "quantizelinear", [some((2, 3)), low, None], {}, 10
    yield "resize", [some((1, 1, 2, 2)), None, np.array([1, 1, 2, 2], np.float32)], {}, 11
    yield "resize", [some((1, 1, 2, 2)), None, None, ints(1, 1, 4, 3)], {"mode": "linear"}, 11
    boxes = np.array([[[0, 0, 1, 1], [0, 0, 1, 0.9], [2, 2, 3, 3]]], np.float32)
    scores = np.array([[[0.9, 0.8, 0.7]]], np.float32)
    yield "nonmaxsuppression", [boxes, scores, ints(3), np.array([0.5], np.float32), None], {}, 10


def without_reference() -> Iterator[Known]:
    """Cases that the reference does not support in these opsets, or computes in another way than documented."""
    yield ("maxpool", [some((2, 4, 5, 6))], {"num_outputs": 2, "kernel_shape": [2, 3]}, 10), largest
    yield ("convtranspose", [some((2, 4, 3)), some((4, 3, 2), seed=2)], {"group": 2}, 10), transposed_in_groups
    values, scale = some((2, 3), "uint8"), np.array(0.3, np.float32)
    for zero in ([], [None], [np.array(4, np.uint8)]):
        yield ("dequantizelinear", [values, scale, *zero], {}, 10), dequantized
    statistics = [some((3,), seed=n) for n in range(2, 6)]
    for shape, options in itertools.product(((2, 3, 4, 5), (2, 3, 1), (1, 3, 4)), ({}, {"epsilon": 0.1})):
        yield ("batchnormalization", [some(shape), *statistics], {"num_outputs": 1, **options}, 10), batch_norm
    for shape in ((2, 3, 4), (1, 1, 1), (1, 2, 2, 3, 2)):
        yield ("globalmaxpool", [some(shape)], {}, 10), lambda x: [x.max(tuple(range(2, x.ndim)), keepdims=True)]
        for p in (1, 2, 3):
            yield ("globallppool", [some(shape)], {"p": p}, 10), global_lp
    yield ("globallppool", [some((2, 3, 4))], {}, 10), global_lp


def largest(x: Array, num_outputs: int, kernel_shape: list[int]) -> list[Array]:
    """The largest values and their places in the whole tensor."""
    views = [
        np.lib.stride_tricks.sliding_window_view(a, kernel_shape, (2, 3))
        for a in (x, np.arange(x.size).reshape(x.shape))
    ]
    values, at = (view.reshape(*view.shape[:4], -1) for view in views)
    chosen = values.argmax(-1)[..., None]
    return [np.take_along_axis(part, chosen, -1)[..., 0] for part in (values, at)]


def transposed_in_groups(x: Array, w: Array, group: int) -> list[Array]:
    """One spatial dimension."""
    parts = []
    for inputs, weights in zip(np.split(x, group, 1), np.split(w, group), strict=True):
        part = np.zeros((len(x), w.shape[1], x.shape[2] + w.shape[2] - 1), np.float32)
        for k in range(w.shape[2]):
            part[:, :, k : k + x.shape[2]] += np.einsum("nct,co->not", inputs, weights[:, :, k])
        parts.append(part)
    return [np.concatenate(parts, 1)]


def dequantized(x: Array, scale: Array, zero: Array | None = None) -> list[Array]:
    return [(x.astype(np.int32) - (0 if zero is None else int(zero))).astype(np.float32) * scale]


def batch_norm(x: Array, *statistics: Array, epsilon: float = 1e-5, **_: Any) -> list[Array]:
    scale, bias, mean, variance = (value.reshape(-1, *[1] * (x.ndim - 2)) for value in statistics)
    return [(x - mean) / np.sqrt(variance + np.float32(epsilon)) * scale + bias]


def global_lp(x: Array, p: int = 2) -> list[Array]:
    return [(abs(x) ** p).sum(tuple(range(2, x.ndim)), keepdims=True) ** np.float32(1 / p)]


def recurrent() -> Iterator[Known]:
    """All inputs and directions of RNN, GRU and LSTM, with T 4, N 2, I 3 and H 5."""
    for name, gates in GATES.items():
        outputs = 3 if name == "lstm" else 2
        for direction in ("forward", "reverse", "bidirectional"):
            ways = 2 if direction == "bidirectional" else 1
            x = some((4, 2, 3)) - np.float32(0.5)
            w, r = some((ways, gates * 5, 3), seed=2), some((ways, gates * 5, 5), seed=3) - np.float32(0.5)
            b = some((ways, 2 * gates * 5), seed=4) - np.float32(0.5)
            lengths, start = np.array([4, 2], np.int32), some((ways, 2, 5), seed=5)
            options = {"num_outputs": outputs, "direction": direction, "hidden_size": 5}
            inputs = [[x, w, r], [x, w, r, b], [x, w, r, None, None, start], [x, w, r, b, lengths, start]]
            if name == "lstm":
                cell, peepholes = some((ways, 2, 5), seed=6), some((ways, 15), seed=7)
                inputs += [[x, w, r, None, None, None, cell], [x, w, r, b, lengths, start, cell, peepholes]]
                inputs += [[x, w, r, b, None, None, None, peepholes]]
            for arrays in inputs:
                yield (name, arrays, options, 10), unrolled(name)
        plain = [x[:, :, :3], w[:1], r[:1], b[:1]]
        yield (name, plain, {"num_outputs": 1}, 10), unrolled(name)
        yield (name, plain, {"num_outputs": outputs, "clip": 0.2}, 10), unrolled(name)
        yield (name, [x[:1], *plain[1:]], {"num_outputs": outputs}, 11), unrolled(name)
        yield (name, [x[:, :1].copy(), *plain[1:]], {"num_outputs": outputs}, 11), unrolled(name)
        if name == "gru":
            yield (name, plain, {"num_outputs": 2, "linear_before_reset": 1}, 10), unrolled(name)
            yield (name, plain[:3], {"num_outputs": 2, "linear_before_reset": 1}, 10), unrolled(name)
        if name == "lstm":
            yield (name, plain, {"num_outputs": 3, "input_forget": 1}, 10), unrolled(name)


def unrolled(name: str) -> Expected:
    def expected(x: Array, w: Array, r: Array, *rest: Array | None, **options: Any) -> list[Array]:
        """Y, Y_h and Y_c by the formulas of ONNX's documents."""
        bias, lengths, start, cell, peepholes = (*rest, *[None] * (5 - len(rest)))
        ways, hidden = len(w), r.shape[2]
        results = []
        for way in range(ways):
            backwards = way == 1 or options.get("direction") == "reverse"
            results.append(
                one_way(
                    name,
                    x.astype(np.float64),
                    (w[way], r[way], np.zeros(2 * GATES[name] * hidden) if bias is None else bias[way]),
                    np.full(x.shape[1], len(x)) if lengths is None else lengths,
                    [np.zeros((x.shape[1], hidden)) if state is None else state[way] for state in (start, cell)],
                    np.zeros(3 * hidden) if peepholes is None else peepholes[way],
                    range(len(x))[:: -1 if backwards else 1],
                    options,
                )
            )
        y, h, c = (np.stack(parts, axis) for parts, axis in zip(zip(*results, strict=True), (1, 0, 0), strict=True))
        return [part.astype(np.float32) for part in (y, h, c)[: options["num_outputs"]]]

    return expected


def one_way(
    name: str,
    x: Array,
    weights: tuple[Array, Array, Array],
    lengths: Array,
    states: list[Array],
    peepholes: Array,
    order: Sequence[int],
    options: dict[str, Any],
) -> tuple[Array, Array, Array]:
    (w, r, bias), (h, c), limit = weights, states, options.get("clip") or np.inf
    wb, rb = np.split(bias, 2)
    y = np.zeros((len(x), *h.shape))

    def bound(value: Array) -> Array:
        return np.clip(value, -limit, limit)

    def sigmoid(value: Array) -> Array:
        return np.asarray(1 / (1 + np.exp(-bound(value))))

    for t in order:
        a, k, after = x[t] @ w.T + wb, h @ r.T + rb, c
        if name == "rnn":
            new = np.tanh(bound(a + k))
        elif name == "gru":
            (az, ar, ah), (kz, kr, kh) = np.split(a, 3, 1), np.split(k, 3, 1)
            z, reset = sigmoid(az + kz), sigmoid(ar + kr)
            inner = (reset * h) @ np.split(r, 3)[2].T + np.split(rb, 3)[2]
            hat = np.tanh(bound(ah + (reset * kh if options.get("linear_before_reset") else inner)))
            new = (1 - z) * hat + z * h
        else:
            ai, ao, af, ac = np.split(a + k, 4, 1)
            pi, po, pf = np.split(peepholes, 3)
            i = sigmoid(ai + pi * c)
            f = 1 - i if options.get("input_forget") else sigmoid(af + pf * c)
            after = f * c + i * np.tanh(bound(ac))
            new = sigmoid(ao + po * after) * np.tanh(after)
        active = (t < lengths)[:, None]
        y[t] = np.where(active, new, 0)
        h, c = np.where(active, new, h), np.where(active, after, c)
    return y, h, c
