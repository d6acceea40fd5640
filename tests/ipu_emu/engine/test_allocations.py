"""Allocations in a training step: for every op, none is as large as a tensor."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from ipu_emu import popart
from tests.ipu_emu.helpers.sessions import train

#: The tensors have 256 KiB: 65,536 numbers.
SQUARE, IMAGES = (256, 256), (8, 16, 16, 32)
_LIMIT = 100 * 1024

Build = Callable[[Any, str, Callable[[Any], str]], str]


def onnx(name: str, *values: Any) -> Build:
    """An op of one input."""

    def build(builder: Any, x: str, constant: Any) -> str:
        result = getattr(builder.aiOnnx, name)([x], *values)
        return str(result[0] if isinstance(result, list) else result)

    return build


def with_constant(name: str, *constants: Any) -> Build:
    """An op whose other inputs are constants."""

    def build(builder: Any, x: str, constant: Any) -> str:
        result = getattr(builder.aiOnnx, name)([x, *map(constant, constants)])
        return str(result[0] if isinstance(result, list) else result)

    return build


def graphcore(name: str, *values: Any) -> Build:
    return lambda builder, x, constant: str(getattr(builder.aiGraphcore, name)([x], *values))


def custom(name: str, opset: int, *constants: Any, **attributes: Any) -> Build:
    """An op that newer opsets have."""

    def build(builder: Any, x: str, constant: Any) -> str:
        return str(builder.customOp(name, opset, "ai.onnx", [x, *map(constant, constants)], attributes)[0])

    return build


def binary(name: str) -> Build:
    return lambda builder, x, constant: str(getattr(builder.aiOnnx, name)([x, constant(np.ones(256, np.float32))]))


def norm(builder: Any, x: str, constant: Any) -> str:
    values = [constant(np.full(16, v, np.float32)) for v in (1, 0, 0, 1)]
    return str(builder.aiOnnx.batchnormalization([x, *values], 5)[0])


def groups(builder: Any, x: str, constant: Any) -> str:
    values = [constant(np.full(16, v, np.float32)) for v in (1, 0)]
    return str(builder.aiGraphcore.groupnormalization([x, *values], 4)[0])


def where(builder: Any, x: str, constant: Any) -> str:
    return str(builder.aiOnnx.where([constant(np.eye(256, dtype=bool)), x, constant(np.float32(0))]))


def window(builder: Any, x: str, constant: Any) -> str:
    return str(builder.aiGraphcore.dynamicslice([x, constant(np.array([99], np.uint32))], [0], [200]))


def window_set(builder: Any, x: str, constant: Any) -> str:
    offset, part = constant(np.array([99], np.uint32)), builder.aiOnnx.slice([x, *map(constant, _BOUNDS)])
    return str(builder.aiGraphcore.dynamicupdate([x, offset, part], [0], [200]))


def recurrent(name: str, gates: int, outputs: int) -> Build:
    """16 steps of 16 sequences."""

    def build(builder: Any, x: str, constant: Any) -> str:
        data = builder.aiOnnx.reshape([x, constant(_LONG([16, 16, 256]))])
        weights = [constant(np.full((1, gates * 64, size), 0.01, np.float32)) for size in (256, 64)]
        return str(getattr(builder.aiOnnx, name)([data, *weights], outputs, hidden_size=64)[0])

    return build


def scattered(builder: Any, x: str, constant: Any) -> str:
    return str(builder.aiGraphcore.scatterreduce([x, constant(np.arange(256, dtype=np.int32) // 2)], 128, 0))


def grouped(builder: Any, x: str, constant: Any) -> str:
    data, places = builder.aiOnnx.reshape([x, constant(_LONG([4, 64, 256]))]), constant(np.zeros((4, 64), np.int32))
    return str(builder.aiGraphcore.groupedgather([data, places], 1, 4))


_BOUNDS = (np.array([0]), np.array([200]), np.array([0]))
_LONG = np.array
_W = np.ones((16, 16, 3, 3), np.float32)

_UNARY = """
    relu sigmoid tanh exp sqrt neg abs floor ceil reciprocal softplus softsign identity log sin cos erf sign softmax
    logsoftmax leakyrelu elu selu reducesum reducemean reducemax reducesumsquare reducel1 reducel2
"""

SQUARES: dict[str, Build] = {
    **{name: onnx(name) for name in _UNARY.split()},
    **{name: binary(name) for name in ("add", "sub", "mul", "div", "max", "min", "sum", "mean")},
    **{name: custom(name, 24) for name in ("HardSwish", "Mish", "Gelu", "Celu", "Swish")},
    **{name: graphcore(name) for name in ("gelu", "geluerf", "swish", "nop", "detach")},
    "pow": with_constant("pow", np.float32(2)),
    "clip": onnx("clip", 0.5, -0.5),
    "clip of inputs": custom("Clip", 11, np.float32(-1), np.float32(1)),
    "dropout": onnx("dropout", 1),
    "scale": graphcore("scale", 2.0),
    "matmul": with_constant("matmul", np.eye(256, dtype=np.float32)),
    "transpose": onnx("transpose", [1, 0]),
    "concat": lambda builder, x, constant: str(builder.aiOnnx.concat([x, x], 1)),
    "split": onnx("split", 2, 0),
    "slice": with_constant("slice", *_BOUNDS),
    "reshape": with_constant("reshape", _LONG([128, 512])),
    "expand": with_constant("expand", _LONG([2, 256, 256])),
    "gather": with_constant("gather", np.arange(0, 256, 2)),
    "tile": with_constant("tile", _LONG([1, 2])),
    "pad": onnx("pad", [1, 1, 1, 1]),
    "cast": onnx("cast", "FLOAT16"),
    "where": where,
    "dynamicslice": window,
    "dynamicupdate": window_set,
    "l1loss": graphcore("l1loss", 0.5),
    "topk": with_constant("topk", _LONG([2])),
    "sort": lambda builder, x, constant: str(builder.aiGraphcore.sort([x])[0]),
    "reducelogsumexp": onnx("reducelogsumexp"),
    "prelu": with_constant("prelu", np.full(256, 0.5, np.float32)),
    "hardmax": onnx("hardmax"),
    "cumsum": custom("CumSum", 11, np.array(0)),
    "scaledadd": lambda builder, x, constant: str(builder.aiGraphcore.scaledadd([x, x], 0.5, 0.5)),
    "gatherelements": custom("GatherElements", 11, np.zeros((256, 256), np.int32), axis=1),
    "scatterreduce": scattered,
    "groupedgather": grouped,
    "reduceprod": onnx("reduceprod"),
    "rnn": recurrent("rnn", 1, 2),
    "gru": recurrent("gru", 3, 2),
    "lstm": recurrent("lstm", 4, 3),
}

IMAGE_OPS: dict[str, Build] = {
    "conv": with_constant("conv", _W),
    "convtranspose": with_constant("convtranspose", _W),
    "maxpool": onnx("maxpool", 1, [3, 3]),
    "averagepool": onnx("averagepool", [3, 3]),
    "globalaveragepool": onnx("globalaveragepool"),
    "globalmaxpool": onnx("globalmaxpool"),
    "batchnormalization": norm,
    "groupnormalization": groups,
    "instancenormalization": with_constant(
        "instancenormalization", np.ones(16, np.float32), np.zeros(16, np.float32)
    ),
    "depthtospace": onnx("depthtospace", 2),
    "spacetodepth": onnx("spacetodepth", 2),
    "lrn": onnx("lrn", 3),
    "resize": with_constant("resize", np.array([1, 1, 2, 2], np.float32)),
}


def peak(shape: tuple[int, ...], build: Build) -> int:
    """The peak of the bytes that a step allocates, after a warm-up."""
    builder = popart.Builder()
    x = builder.addInitializedInputTensor(np.random.default_rng(0).uniform(0.5, 1, shape).astype(np.float32))

    def constant(value: Any) -> str:
        return str(builder.addInitializedInputTensor(np.asarray(value))) if np.size(value) > 4096 else fixed(value)

    def fixed(value: Any) -> str:
        return str(builder.customOp("Constant", 10, "ai.onnx", [], {"value": np.asarray(value)})[0])

    y = build(builder, x, constant)
    loss = builder.aiGraphcore.identityloss([y], popart.ReductionType.Sum)
    session = train(builder, popart.DataFlow(1, [loss]), loss, popart.ConstSGD(1e-6))
    stepio = popart.PyStepIO({}, session.initAnchorArrays())
    session.run(stepio)
    session.run(stepio)
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    session.run(stepio)
    highest = tracemalloc.get_traced_memory()[1] - before
    tracemalloc.stop()
    return highest


@pytest.mark.parametrize("name", SQUARES)
def test_matrices(name: str) -> None:
    assert peak(SQUARE, SQUARES[name]) < _LIMIT


@pytest.mark.parametrize("name", IMAGE_OPS)
def test_images(name: str) -> None:
    assert peak(IMAGES, IMAGE_OPS[name]) < _LIMIT
