"""DOUBLE: ops whose kernels compute in FLOAT, compared with ONNX's reference; gradients equal those of FLOAT."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from ipu_emu import popart
from tests.ipu_emu.helpers.sessions import train
from tests.ipu_emu.ops.cases.onnx_cases import run


@pytest.mark.parametrize(
    ("op", "shapes", "result_shape"),
    [
        ("Softmax", [(3, 5)], (3, 5)),
        ("LogSoftmax", [(3, 5)], (3, 5)),
        ("LayerNormalization", [(3, 5), (5,), (5,)], (3, 5)),
        ("InstanceNormalization", [(2, 3, 5), (3,), (3,)], (2, 3, 5)),
        ("Conv", [(2, 3, 8, 8), (4, 3, 3, 3)], (2, 4, 6, 6)),
        ("ConvTranspose", [(2, 3, 8, 8), (3, 4, 3, 3)], (2, 4, 10, 10)),
    ],
)
def test_values(op: str, shapes: list[tuple[int, ...]], result_shape: tuple[int, ...]) -> None:
    random = np.random.default_rng(0)
    inputs = {f"i{index}": random.standard_normal(shape) for index, shape in enumerate(shapes)}
    infos = [helper.make_tensor_value_info(id, TensorProto.DOUBLE, value.shape) for id, value in inputs.items()]
    y = helper.make_tensor_value_info("y", TensorProto.DOUBLE, result_shape)
    graph = helper.make_graph([helper.make_node(op, list(inputs), ["y"])], "g", infos, [y])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    actual = run(model, inputs)["y"]
    assert actual.dtype == np.float64
    np.testing.assert_allclose(actual, ReferenceEvaluator(model).run(None, inputs)[0], rtol=1e-4, atol=1e-5)


def _softmax(builder: popart.Builder, ids: list[str]) -> str:
    return str(builder.aiOnnx.softmax(ids[:1]))


def _group(builder: popart.Builder, ids: list[str]) -> str:
    return str(builder.aiGraphcore.groupnormalization(ids, 2)[0])


def _batch(builder: popart.Builder, ids: list[str]) -> str:
    variance = builder.aiOnnx.mul([ids[1], ids[1]])
    return str(builder.aiOnnx.batchnormalization([*ids, ids[2], variance], 1)[0])


def _conv(builder: popart.Builder, ids: list[str]) -> str:
    x = builder.reshape_const(builder.aiOnnx, ids[:1], [1, 2, 4, 4])
    w = builder.reshape_const(builder.aiOnnx, ids[1:2], [1, 2, 1, 2])
    return str(builder.aiOnnx.conv([x, w]))


@pytest.mark.parametrize("op", [_softmax, _group, _batch, _conv])
def test_gradients(op: Callable[[popart.Builder, list[str]], str]) -> None:
    def weights(double: bool) -> list[np.ndarray]:
        random = np.random.default_rng(1)
        builder = popart.Builder()
        data: list[Any] = [random.standard_normal(shape).astype(np.float32) for shape in ((8, 4), (4,), (4,))]
        ids = [builder.addInitializedInputTensor(value) for value in data]
        used = [builder.aiOnnx.cast([id], "DOUBLE") for id in ids] if double else ids
        result = op(builder, used)
        result = builder.aiOnnx.cast([result], "FLOAT") if double else result
        loss = builder.aiGraphcore.l1loss([builder.aiOnnx.mul([result, result])], 1.0)
        session = train(builder, popart.DataFlow(1, [loss]), loss, popart.ConstSGD(1.0), limits=False)
        session.run(popart.PyStepIO({}, session.initAnchorArrays()))
        session.weightsToHost()
        after = [np.empty_like(value) for value in data]
        session.readWeights(popart.PyWeightsIO(dict(zip(ids, after, strict=True))))
        assert not np.array_equal(after[0], data[0])
        return after

    for actual, wanted in zip(weights(True), weights(False), strict=True):
        np.testing.assert_allclose(actual, wanted, rtol=1e-5, atol=1e-6)


def _trained(kind: type[Any], optimizer: popart.Optimizer) -> np.ndarray:
    """Weights of a model from a file after three steps: the loss is the sum of (x w) (x w)."""
    random = np.random.default_rng(3)
    x, w = (random.standard_normal(shape).astype(np.float32).astype(kind) for shape in ((4, 3), (3, 2)))
    number = helper.np_dtype_to_tensor_dtype(np.dtype(kind))
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["y"]),
        helper.make_node("Mul", ["y", "y"], ["z"]),
        helper.make_node("ReduceSum", ["z"], ["loss"], keepdims=0),
    ]
    infos = [helper.make_tensor_value_info(id, number, shape) for id, shape in (("x", (4, 3)), ("loss", ()))]
    graph = helper.make_graph(nodes, "g", infos[:1], infos[1:], [numpy_helper.from_array(w, "w")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 10)])
    device = popart.DeviceManager().createCpuDevice()
    session = popart.TrainingSession(
        model.SerializeToString(), popart.DataFlow(3, ["loss"]), "loss", optimizer, device
    )
    session.prepareDevice()
    session.weightsFromHost()
    session.run(popart.PyStepIO({"x": np.stack([x] * 3)}, session.initAnchorArrays()))
    session.weightsToHost()
    weights = np.empty_like(w)
    session.readWeights(popart.PyWeightsIO({"w": weights}))
    return weights


@pytest.mark.parametrize(
    "optimizer",
    [
        popart.ConstSGD(0.01, 0.1),
        popart.SGD({"defaultLearningRate": (0.01, False), "defaultMomentum": (0.9, True)}),
        popart.SGD(
            {"defaultLearningRate": (0.01, False), "defaultMomentum": (0.9, True)},
            accumulatorAndMomentum=popart.SGDAccumulatorAndMomentum.Separate,
        ),
        popart.Adam({"defaultLearningRate": (0.01, False)}),
        popart.Adaptive({"defaultLearningRate": (0.01, False)}),
    ],
    ids=["plain", "combined", "separate", "adam", "adaptive"],
)
def test_weights_train_as_those_of_float(optimizer: popart.Optimizer) -> None:
    weights = _trained(np.float64, optimizer)
    assert weights.dtype == np.float64
    np.testing.assert_allclose(weights, _trained(np.float32, optimizer), rtol=1e-5)
