"""Supported types: a device without integers of 64 bits, and models that have them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from ipu_emu import popart
from tests.ipu_emu.helpers.sessions import device, infer, options

SCORES = np.random.default_rng(0).standard_normal((6, 4)).astype(np.float32)
BEST = SCORES.argmax(axis=1)


def accuracy(labels: str) -> tuple[popart.Builder, list[str]]:
    """The number of labels with the highest score, as programs count them."""
    builder = popart.Builder()
    x, y = builder.addInputTensor("FLOAT", [6, 4], "x"), builder.addInputTensor(labels, [6], "y")
    best = builder.aiOnnx.argmax([x], 1, 0)
    hits = builder.aiOnnx.cast([builder.aiOnnx.equal([best, y])], "FLOAT")
    return builder, [best, builder.aiOnnx.reducesum([hits], keepdims=0)]


@pytest.mark.parametrize("labels", ["INT32", "INT64"])
@pytest.mark.filterwarnings("ignore:Tensor y. INT64 step data is converted to INT32")
def test_an_accuracy(labels: str) -> None:
    builder, ids = accuracy(labels)
    targets = np.where(np.arange(6) < 4, BEST, -1)
    anchors = infer(builder, popart.DataFlow(1, ids), {"x": SCORES, "y": targets})
    assert anchors[ids[0]].dtype == np.int32
    np.testing.assert_array_equal(anchors[ids[0]], BEST)
    assert anchors[ids[1]] == 4


@pytest.mark.parametrize(
    ("casts", "kinds"),
    [
        (True, {"INT64": "INT32", "UINT64": "UINT32", "INT16": "INT16"}),
        (False, {"INT64": "INT64", "UINT64": "UINT64"}),
    ],
)
def test_types_on_the_device(casts: bool, kinds: dict[str, str]) -> None:
    opts = options(enableSupportedDataTypeCasting=casts)
    for wide, stored in kinds.items():
        builder = popart.Builder()
        x = builder.addInputTensor(wide, [3])
        double = builder.aiOnnx.add([x, x])
        cast = builder.aiOnnx.cast([builder.aiOnnx.cast([x], "FLOAT")], wide)
        flow = popart.DataFlow(1, [x, double, cast])
        session = popart.InferenceSession(builder.getModelProto(), flow, device(opts), userOptions=opts)
        assert {session.getInfo(id).data_type() for id in (x, double, cast)} == {stored}
        session.prepareDevice()
        anchors = session.initAnchorArrays()
        data = np.array([1, 2, 3], popart.TensorInfo(stored, []).data_type_lcase())
        session.run(popart.PyStepIO({x: data}, anchors))
        np.testing.assert_array_equal(anchors[double], 2 * data)
        np.testing.assert_array_equal(anchors[cast], data)


def test_constants_are_cast_where_they_meet_what_was_computed() -> None:
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [6, 4])
    offset = builder.aiOnnx.constant(np.array([10], np.int64))
    first = builder.addInitializedInputTensor(np.array([0, 2], np.int64))
    best = builder.aiOnnx.argmax([x], 1, 0)
    sums = [builder.aiOnnx.add([id, offset]) for id in (best, builder.aiOnnx.gather([best, first]))]
    flat = builder.reshape_const(builder.aiOnnx, [best], [2, -1])
    anchors = infer(builder, popart.DataFlow(1, [*sums, flat]), {x: SCORES})
    np.testing.assert_array_equal(anchors[sums[0]], BEST + 10)
    np.testing.assert_array_equal(anchors[sums[1]], BEST[[0, 2]] + 10)
    np.testing.assert_array_equal(anchors[flat], BEST.reshape(2, 3))


def foreign() -> onnx.ModelProto:
    """A model of another exporter: newer, with raw data, INT64 labels, and a shape among its initializers."""
    values = {"w": np.ones((4, 3), np.float32), "shape": np.array([2, -1], np.int64)}
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"], name="dense", doc_string="by hand"),
        helper.make_node("Reshape", ["h", "shape"], ["flat"]),
        helper.make_node("ReduceMean", ["flat"], ["loss"], keepdims=0),
        helper.make_node("Identity", ["labels"], ["same"]),
    ]
    inputs = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 4]),
        helper.make_tensor_value_info("labels", TensorProto.INT64, [2]),
    ]
    outputs = [helper.make_tensor_value_info("same", TensorProto.INT64, [2])]
    graph = helper.make_graph(nodes, "by hand", inputs, outputs, [])
    graph.initializer.extend(numpy_helper.from_array(value, name) for name, value in values.items())
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 15)], ir_version=8, producer_name="test")


@pytest.mark.filterwarnings("ignore:Tensor labels. INT64 step data is converted to INT32")
def test_a_saved_model_is_the_one_that_was_given(tmp_path: Path) -> None:
    model, file = foreign(), str(tmp_path / "model.onnx")
    optimizer = popart.SGD({"defaultLearningRate": (0.5, True), "defaultMomentum": (0.9, True)})
    flow = popart.DataFlow(1, ["loss", "same"])
    session: Any = popart.TrainingSession(
        model.SerializeToString(), flow, "loss", optimizer, popart.DeviceManager().createCpuDevice()
    )
    session.prepareDevice()
    session.weightsFromHost()
    data = {"x": np.ones((2, 4), np.float32), "labels": np.array([1, 2])}
    session.run(popart.PyStepIO(data, session.initAnchorArrays()))
    session.modelToHost(file)
    saved = onnx.load(file)
    onnx.checker.check_model(saved, full_check=True)
    values = {proto.name: numpy_helper.to_array(proto) for proto in saved.graph.initializer}
    assert list(values) == ["w", "shape", "Accl___w"]
    np.testing.assert_allclose(values["w"], np.ones((4, 3)) - 0.5 / 3, rtol=1e-6)
    assert values["shape"].dtype == np.int64
    assert (saved.graph.node, saved.graph.output) == (model.graph.node, model.graph.output)
    assert list(saved.graph.input)[:2] == list(model.graph.input)
    assert (saved.producer_name, saved.ir_version, saved.opset_import) == ("test", 8, model.opset_import)
