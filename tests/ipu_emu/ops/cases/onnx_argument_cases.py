"""ONNX argument cases: ops with attributes and optional inputs off their defaults that no other test gives.

A case is compared with the function in its row, or with ONNX's reference evaluator. ``REFUSED`` has models that are
not read, with words of the message.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from ml_dtypes import float8_e8m0fnu
from onnx import TensorProto, helper

from tests.ipu_emu.ops.cases.edge_tables import Array, ints, some

#: (op, opset, attributes, inputs, function for the results; None for ONNX's reference).
OnnxCase = tuple[str, int, dict[str, Any], list[Any], Callable[..., Any] | None]

X, CHANNELS = some((2, 3, 4)), some((3,), seed=2)
STATISTICS = [some((3,), seed=seed) for seed in (2, 3, 4, 5)]
BROADCAST: dict[str, Callable[..., Any]] = {
    "Add": operator.add, "Sub": operator.sub, "Mul": operator.mul, "Div": operator.truediv, "Pow": operator.pow,
    "Equal": operator.eq, "Less": operator.lt, "Greater": operator.gt,
    "And": operator.and_, "Or": operator.or_, "Xor": operator.xor,
}  # fmt: skip
REDUCTIONS = ("L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "SumSquare")


def cases() -> Iterator[OnnxCase]:
    yield from of_old_opsets()
    yield from of_quantities()
    yield from of_layers()
    yield from of_windows()
    for op in REDUCTIONS:
        yield f"Reduce{op}", 18, {"noop_with_empty_axes": 1}, [X], without_axes(op)
    yield "TopK", 11, {"sorted": 0, "largest": 0}, [X, ints(4)], lambda x, k: (np.sort(x, -1), np.argsort(x, -1))
    grams = {"max_gram_length": 1, "min_gram_length": 1, "max_skip_count": 0, "ngram_counts": [0]}
    grams |= {"ngram_indexes": [0, 1], "pool_int64s": [5, 7], "weights": [2.0, 3.0], "mode": "TFIDF"}
    yield "TfIdfVectorizer", 9, grams, [ints(5, 7, 7)], lambda x: np.array([2, 6], np.float32)
    for name in ("BlackmanWindow", "HammingWindow", "HannWindow"):
        yield name, 17, {"output_datatype": 10, "periodic": 0}, [np.array(5, np.int64)], None
    yield "Constant", 12, {"value_floats": [0.5, 2.0]}, [], None
    yield "Range", 27, {"stash_type": 11}, [np.array(v, np.float32) for v in (0, 20, 0.1)], None


def without_axes(op: str) -> Callable[[Array], Array]:
    """Reductions over no axes, which still apply their functions to each element."""
    logarithm = {"LogSum": np.log, "L1": np.abs, "L2": np.abs, "SumSquare": np.square}
    return logarithm.get(op, lambda x: x)


def of_old_opsets() -> Iterator[OnnxCase]:
    for op, function in BROADCAST.items():
        kind = bool if op in ("And", "Or", "Xor") else np.int32 if op == "Equal" else np.float32
        a, b = ((x > 0.5) if kind is bool else (x * 9).astype(kind) for x in (X, CHANNELS))
        yield op, 6, {"broadcast": 1, "axis": 1}, [a, b], lambda a, b, f=function: f(a, b[:, None])
        yield op, 6, {"broadcast": 1}, [a, a[0, 0]], function
    operands = [some((2, 3)), some((3, 4), seed=2), some((4,), seed=3)]
    yield "Gemm", 6, {"broadcast": 1}, operands, lambda a, b, c: a @ b + c
    yield "Dropout", 6, {"is_test": 1}, [X], lambda x: x
    yield "BatchNormalization", 6, {"is_test": 1, "momentum": 0.3}, [X, *STATISTICS], normalised(3)
    yield "BatchNormalization", 9, {"momentum": 0.3}, [X, *STATISTICS], normalised(3)
    yield (
        "BatchNormalization",
        7,
        {"spatial": 0},
        [X, *(some((3, 4), seed=k) for k in (2, 3, 4, 5))],
        normalised(3, 4),
    )
    yield "TopK", 6, {"k": 2}, [X], lambda x: (np.sort(x, -1)[..., :1:-1], np.argsort(x, -1)[..., :1:-1])
    image, scales = some((1, 1, 2, 3)), {"scales": [1.0, 1.0, 2.0, 2.0]}
    yield "Upsample", 6, {"width_scale": 2.0, "height_scale": 3.0}, [image], lambda x: x.repeat(3, 2).repeat(2, 3)
    yield "Upsample", 7, {"mode": "nearest", **scales}, [image], lambda x: x.repeat(2, 2).repeat(2, 3)


def normalised(*shape: int) -> Callable[..., Array]:
    """Normalisation by statistics of a shape, which is that of the second axis and those after it."""

    def function(x: Array, *statistics: Array) -> Array:
        s, b, mean, variance = (y.reshape(shape if len(shape) > 1 else (*shape, 1)) for y in statistics)
        return np.asarray(s * (x - mean) / np.sqrt(variance + 1e-5) + b)

    return function


def of_quantities() -> Iterator[OnnxCase]:
    x, zero = some((1, 2, 5, 5), "uint8"), np.array(3, np.uint8)
    w, scale, wide = some((4, 1, 3, 2), "uint8", 2), np.array(0.5, np.float32), np.array(8, np.float32)
    for options in (
        {"group": 2, "kernel_shape": [3, 2], "strides": [2, 1]},
        {"group": 2, "dilations": [1, 2]},
        {"group": 2, "auto_pad": "SAME_UPPER"},
        {"group": 2, "pads": [1, 0, 1, 1]},
    ):
        yield "ConvInteger", 10, options, [x, w, zero, zero], None
        bias = some((4,), "int32") - 4
        yield "QLinearConv", 10, options, [x, scale, zero, w, scale, zero, wide, zero, bias], None
    numbers, scales, zeros = some((2, 3), "uint8"), some((2,)), np.array([1, 2], np.uint8)
    yield "DequantizeLinear", 19, {"axis": 0}, [numbers, scales, zeros], None
    yield "DequantizeLinear", 23, {"axis": 0, "output_dtype": 10}, [numbers, scales], None
    yield "QuantizeLinear", 13, {"axis": 0}, [some((2, 3)) * 99, scales, zeros], None
    yield "QuantizeLinear", 23, {"axis": 0, "output_dtype": 3, "precision": 1}, [some((2, 3)) * 9, scales], None


def of_layers() -> Iterator[OnnxCase]:
    trained = {"training_mode": 1, "momentum": 0.3}
    yield "BatchNormalization", 15, trained, [X, *STATISTICS], None
    yield "MeanVarianceNormalization", 13, {"axes": [1]}, [X], None
    heads = [some((1, 2, 3, 4), seed=seed) for seed in (1, 2, 3)]
    yield "FlexAttention", 26, {"softmax_precision": 11}, heads, None
    for op, gates in (("RNN", 1), ("GRU", 3), ("LSTM", 4)):
        weights = [some((1, gates * 2, 4), seed=2), some((1, gates * 2, 2), seed=3)]
        yield op, 6, {"hidden_size": 2, "output_sequence": 1}, [X, *weights], None


def of_windows() -> Iterator[OnnxCase]:
    options = {"kernel_shape": [2], "strides": [2], "p": 1}
    yield "LpPool", 18, {**options, "ceil_mode": 1}, [some((1, 2, 5))], pairs_added
    image, indices = np.arange(16, dtype=np.float32).reshape(1, 1, 4, 4), ints(0)
    boxes, region = np.array([[0, 0, 6, 6]], np.float32), np.array([[0, 0, 0, 6, 6]], np.float32)
    yield "RoiAlign", 16, {"spatial_scale": 0.5, "output_height": 2}, [image, boxes, indices], None
    pooled = np.array([[[[5, 7], [13, 15]]]], np.float32)
    yield "MaxRoiPool", 6, {"pooled_shape": [2, 2], "spatial_scale": 0.5}, [image, region], lambda *_: pooled
    maxima, places = np.array([[[[5.0, 7.0], [13.0, 15.0]]]], np.float32), np.array([[[[0, 2], [6, 8]]]], np.int64)
    unpooled = np.zeros((1, 1, 3, 3), np.float32)
    unpooled.reshape(-1)[places.reshape(-1)] = maxima.reshape(-1)
    options = {"kernel_shape": [2, 2], "strides": [2, 2], "pads": [0, 0, 1, 1]}
    yield "MaxUnpool", 9, options, [maxima, places], lambda *_: unpooled
    linear = {"scales": [1.0, 1.0, 1.0, 2.0], "mode": "linear"}
    yield "Upsample", 7, linear, [some((1, 1, 1, 3))], halfway


def pairs_added(x: Array) -> Array:
    return np.pad(x, ((0, 0), (0, 0), (0, 1))).reshape(1, 2, 3, 2).sum(-1)


def halfway(x: Array) -> Array:
    """PopART's positions of an Upsample, which are PyTorch's."""
    return np.interp((np.arange(6) + 0.5) / 2 - 0.5, np.arange(3), x[0, 0, 0]).astype(np.float32).reshape(1, 1, 1, 6)


_ROWS = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [4]) for name in "srno"]
SUMS = helper.make_graph(
    [helper.make_node("Add", ["s", "r"], ["n"]), helper.make_node("Mul", ["n", "r"], ["o"])],
    "b",
    _ROWS[:2],
    _ROWS[2:],
)
#: (op, attribute): a model with an attribute that a warning names.
SAID: dict[tuple[str, str], tuple[int, dict[str, Any], list[Any]]] = {
    **{(op, "seed"): (15, {"seed": 1.0, **options}, inputs) for op, options, inputs in (
        ("RandomNormal", {"shape": [2]}, []), ("RandomUniform", {"shape": [2]}, []), ("RandomNormalLike", {}, [X]),
        ("RandomUniformLike", {}, [X]), ("Multinomial", {}, [X[0]]), ("Bernoulli", {}, [X]),
    )},
    ("Dropout", "seed"): (15, {"seed": 1}, [X]),
    ("LayerNormalization", "stash_type"): (17, {"stash_type": 10}, [X, some((4,))]),
    ("RMSNormalization", "stash_type"): (23, {"stash_type": 10}, [X, some((4,))]),
    ("GroupNormalization", "stash_type"): (
        21, {"stash_type": 10, "num_groups": 1}, [X, some((3,)), some((3,), seed=2)],
    ),
}  # fmt: skip


#: (op, attribute): a model that is refused, by its opset, attributes and inputs, and words of the message.
REFUSED: dict[tuple[str, str], tuple[int, dict[str, Any], list[Any], str]] = {
    ("Constant", "sparse_value"): (
        11,
        {"sparse_value": helper.make_sparse_tensor(
            helper.make_tensor("v", TensorProto.FLOAT, [1], [2.0]),
            helper.make_tensor("i", TensorProto.INT64, [1], [1]), [3],
        )},
        [], "sparse_value",
    ),
    ("Constant", "value_string"): (12, {"value_string": "text"}, [], "value_string "),
    ("Constant", "value_strings"): (12, {"value_strings": ["text"]}, [], "value_strings"),
    ("TfIdfVectorizer", "pool_strings"): (
        9,
        {"max_gram_length": 1, "min_gram_length": 1, "max_skip_count": 0, "ngram_counts": [0], "ngram_indexes": [0],
         "pool_strings": ["a"], "mode": "TF"},
        [ints(5)], "pool_strings",
    ),
    ("QuantizeLinear", "saturate"): (23, {"saturate": 0, "output_dtype": 17}, [X, CHANNELS[0]], "FLOAT8E4M3FN"),
    ("Cast", "round_mode"): (24, {"round_mode": "down", "to": 24}, [X], "FLOAT8E8M0"),
    ("CastLike", "round_mode"): (24, {"round_mode": "down"}, [X, X.astype(float8_e8m0fnu)], "FLOAT8E8M0"),
    ("Scan", "sequence_lens"): (
        8, {"num_scan_inputs": 1, "body": SUMS}, [ints(2), X[:1, 0], X[:1]], "sequence lengths",
    ),
    ("Conv", "shape"): (11, {"shape": [3, 3]}, [some((1, 1, 3, 3)), some((1, 1, 2, 2))], "shape"),
}  # fmt: skip
