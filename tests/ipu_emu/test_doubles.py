"""DOUBLE: ops whose kernels know FLOAT only, against ONNX's reference, and their gradients against those of FLOAT."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

from ipu_emu import popart
from tests.ipu_emu.onnx_cases import run
from tests.ipu_emu.sessions import train


@pytest.mark.parametrize(
    ("op", "shapes", "made"),
    [
        ("Softmax", [(3, 5)], (3, 5)),
        ("LogSoftmax", [(3, 5)], (3, 5)),
        ("LayerNormalization", [(3, 5), (5,), (5,)], (3, 5)),
        ("InstanceNormalization", [(2, 3, 5), (3,), (3,)], (2, 3, 5)),
        ("Conv", [(2, 3, 8, 8), (4, 3, 3, 3)], (2, 4, 6, 6)),
        ("ConvTranspose", [(2, 3, 8, 8), (3, 4, 3, 3)], (2, 4, 10, 10)),
    ],
)
def test_values(op: str, shapes: list[tuple[int, ...]], made: tuple[int, ...]) -> None:
    random = np.random.default_rng(0)
    inputs = {f"i{index}": random.standard_normal(shape) for index, shape in enumerate(shapes)}
    infos = [helper.make_tensor_value_info(id, TensorProto.DOUBLE, value.shape) for id, value in inputs.items()]
    y = helper.make_tensor_value_info("y", TensorProto.DOUBLE, made)
    graph = helper.make_graph([helper.make_node(op, list(inputs), ["y"])], "g", infos, [y])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    found = run(model, inputs)["y"]
    assert found.dtype == np.float64
    np.testing.assert_allclose(found, ReferenceEvaluator(model).run(None, inputs)[0], rtol=1e-4, atol=1e-5)


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
        made = op(builder, used)
        made = builder.aiOnnx.cast([made], "FLOAT") if double else made
        loss = builder.aiGraphcore.l1loss([builder.aiOnnx.mul([made, made])], 1.0)
        session = train(builder, popart.DataFlow(1, [loss]), loss, popart.ConstSGD(1.0))
        session.run(popart.PyStepIO({}, session.initAnchorArrays()))
        session.weightsToHost()
        after = [np.empty_like(value) for value in data]
        session.readWeights(popart.PyWeightsIO(dict(zip(ids, after, strict=True))))
        assert not np.array_equal(after[0], data[0])
        return after

    for found, wanted in zip(weights(True), weights(False), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)
