"""Wide cases: ops on arrays of odd sizes that fill several vectors of any processor, and in other storage orders."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tests.ipu_emu.ops.cases.case import Case, NoReduction, Sum, custom_op, onnx_op

__all__ = ["WIDE"]

Shape = tuple[int, ...]
Build = Callable[[Any, list[str]], str]


def wide(name: str, shapes: list[Shape], build: Build, **more: Any) -> Case:
    return Case(f"wide {name}", (name,), tuple(shapes), build, lambda *_: None, **more)


def turned(build: Build, perm: tuple[int, ...] = (2, 0, 1)) -> Build:
    """``build`` of a transpose of the input."""
    return lambda builder, ids: build(builder, [builder.aiOnnx.transpose(ids[:1], list(perm)), *ids[1:]])


def elementwise(method: str, **more: Any) -> Case:
    return wide(method, [(7, 61)], onnx_op(method), **more)


def reductions(method: str) -> list[Case]:
    axes = {"last": [2], "middle": [1], "first": [0], "ends": [0, 2], "all": [0, 1, 2]}
    rows = [wide(f"{method} {name}", [(5, 37, 19)], onnx_op(method, some)) for name, some in axes.items()]
    long = [wide(f"{method} long", [(9001,)], onnx_op(method, [0]))]
    return [*rows, *long, wide(f"{method} turned", [(5, 37, 19)], turned(onnx_op(method, [1])))]


def labelled(name: str, shape: Shape, build: Build) -> Case:
    return wide(name, [shape], build, labels=(np.arange(shape[0]) * 7 % shape[1]).astype(np.int32))


def nll(builder: Any, ids: list[str], reduction: Any) -> str:
    return str(builder.aiGraphcore.nllloss([builder.aiOnnx.softmax(ids[:1], 1), ids[1]], reduction))


def recurrent(op: str, gates: int, hidden: int) -> Case:
    shapes: list[Shape] = [(4, 9, 21), (1, gates * hidden, 21), (1, gates * hidden, hidden), (1, 2 * gates * hidden)]
    attributes = {"hidden_size": hidden}

    def build(builder: Any, ids: list[str]) -> str:
        return str(builder.customOp(op, 7, "ai.onnx", ids, attributes, 3 if op == "LSTM" else 2)[0])

    return wide(f"{op} of {hidden}", shapes, build, span=0.3)


def conv(name: str, x: Shape, w: Shape, **attributes: Any) -> Case:
    return wide(f"conv {name}", [x, w], onnx_op("conv", **attributes), span=0.5)


def normalised(method: str, groups: tuple[int, ...], x: Shape) -> Case:
    def build(builder: Any, ids: list[str]) -> str:
        return str(getattr(builder.aiGraphcore, method)(ids, *groups, 1e-3)[0])

    return wide(f"{method} {x}", [x, x[1:2], x[1:2]], build)


def batch_normalised(builder: Any, ids: list[str]) -> str:
    kind = builder.getTensorDtypeString(ids[0])
    zeros, ones = (builder.aiOnnx.constant(np.full(5, value, kind)) for value in (0, 1))
    return str(builder.aiOnnx.batchnormalization([*ids, zeros, ones], 5, 1e-3, 0.9)[0])


def gathered(builder: Any, ids: list[str]) -> str:
    places = builder.aiOnnx.constant((np.arange(40) * 7 % 11).astype(np.int32))
    return str(builder.aiOnnx.gather([ids[0], places]))


def of_zeros(method: str) -> Build:
    """A reduction of rows of 0.0 and -0.0."""

    def build(builder: Any, ids: list[str]) -> str:
        zero = builder.aiOnnx.constant(np.zeros((), builder.getTensorDtypeString(ids[0])))
        return str(getattr(builder.aiOnnx, method)([builder.aiOnnx.mul([ids[0], zero])], [1]))

    return build


def as_double(build: Build) -> Build:
    def in_double(builder: Any, ids: list[str]) -> str:
        result = build(builder, [builder.aiOnnx.cast([id], "DOUBLE") for id in ids])
        return str(builder.aiOnnx.cast([result], "FLOAT"))

    return in_double


WIDE = [
    *map(elementwise, ["exp", "tanh", "sigmoid", "erf", "softplus", "sin", "cos", "atan", "sqrt", "softsign"]),
    *map(elementwise, ["elu", "selu", "reciprocal"]),
    elementwise("log", positive=True),
    wide("pow", [(7, 61), (7, 61)], onnx_op("pow"), positive=True),
    *(case for method in ("reducesum", "reducemean", "reducel2", "reducelogsumexp") for case in reductions(method)),
    *(wide(f"{method} of zeros", [(90, 16)], of_zeros(method)) for method in ("reducemax", "reducemin")),
    wide("reduceprod", [(5, 37)], onnx_op("reduceprod", [1]), positive=True, span=0.6),
    wide("reducesum of DOUBLE", [(5, 37, 19)], as_double(onnx_op("reducesum", [0, 2]))),
    wide("sum to", [(7, 61), (61,)], onnx_op("mul")),
    wide("softmax", [(7, 61)], onnx_op("softmax", 1)),
    wide("logsoftmax", [(7, 61)], onnx_op("logsoftmax", 1)),
    labelled("nll", (37, 23), lambda b, ids: nll(b, ids, Sum)),
    labelled("nll of each", (37, 23), lambda b, ids: nll(b, ids, NoReduction)),
    wide("l1", [(7, 61)], lambda b, ids: str(b.aiGraphcore.l1loss(ids, 0.1, Sum))),
    normalised("groupnormalization", (1,), (7, 61)),
    normalised("groupnormalization", (2,), (3, 6, 5, 7)),
    wide("batchnormalization", [(9, 5, 7, 3), (5,), (5,)], batch_normalised, positive=True),
    wide("matmul", [(13, 37), (37, 29)], onnx_op("matmul")),
    wide("matmul turned", [(5, 13, 37), (5, 37, 29)], onnx_op("matmul")),
    wide("matmul of DOUBLE", [(13, 37), (37, 29)], as_double(onnx_op("matmul"))),
    wide("gemm", [(45, 70), (70, 90), (90,)], onnx_op("gemm")),
    conv("3 x 3", (5, 7, 9, 11), (19, 7, 3, 3), pads=[1, 1, 1, 1]),
    conv("with strides", (5, 7, 9, 11), (19, 7, 3, 3), strides=[2, 2]),
    conv("in groups", (5, 6, 9, 11), (9, 2, 3, 3), group=3),
    conv("depthwise", (5, 18, 9, 11), (18, 1, 3, 3), group=18, pads=[1, 1, 1, 1]),
    conv("depthwise of 5", (3, 6, 9, 21), (6, 1, 5, 5), group=6, strides=[2, 1], pads=[2, 2, 2, 2]),
    conv("1 x 1", (5, 33, 4, 4), (17, 33, 1, 1)),
    wide("averagepool", [(5, 7, 9, 11)], onnx_op("averagepool", [3, 3], strides=[2, 2])),
    wide("maxpool", [(5, 7, 9, 11)], onnx_op("maxpool", 1, [3, 3], strides=[2, 2])),
    wide("globalaveragepool", [(21, 7, 5, 3)], onnx_op("globalaveragepool")),
    wide("gather", [(11, 37)], gathered),
    *(recurrent(op, gates, hidden) for op, gates in (("RNN", 1), ("GRU", 3), ("LSTM", 4)) for hidden in (32, 11)),
    wide("det", [(5, 9, 9)], custom_op("Det", 11)),
]
