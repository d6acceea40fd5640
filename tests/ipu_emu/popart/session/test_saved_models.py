"""Saved models: trained here and run by ONNX Runtime; and training that continues as if it had not stopped."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from ipu_emu import popart
from tests.ipu_emu.helpers.sessions import device, options

RATE = {"defaultLearningRate": (0.02, False)}
ADAM, ADAPTIVE = popart.AdamMode, popart.AdaptiveMode
OPTIMIZERS: dict[str, Any] = {
    "sgd": popart.SGD(RATE),
    "sgd combined": popart.SGD(RATE | {"defaultMomentum": (0.9, False), "defaultWeightDecay": (0.01, True)}),
    "sgd separate": popart.SGD(
        RATE | {"defaultMomentum": (0.9, True)},
        accumulatorAndMomentum=popart.SGDAccumulatorAndMomentum.Separate,
    ),
    **{mode.name: popart.Adam(RATE, mode) for mode in ADAM},
    **{mode.name: popart.Adaptive(RATE | {"defaultMomentum": (0.5, True)}, mode) for mode in ADAPTIVE},
    "tf": popart.Adaptive(RATE | {"defaultMomentum": (0.5, True)}, ADAPTIVE.RMSProp, rmsprop_tf_variant=True),
}


class Convolution:
    """Convolution, pooling, a layer and a mean square, all in ops of ai.onnx."""

    def __init__(self) -> None:
        self.random = np.random.default_rng(3)
        self.builder = popart.Builder()
        a = self.builder.aiOnnx
        self.x = self.builder.addInputTensor("FLOAT", [4, 2, 6, 6], "x")
        self.want = self.builder.addInputTensor("FLOAT", [4, 5], "want")
        h = a.conv([self.x, self._weight("w1", 3, 2, 3, 3), self._weight("b1", 3)], pads=[1, 1, 1, 1])
        (h,) = a.maxpool([a.relu([h])], 1, [2, 2], strides=[2, 2])
        h = a.gemm([a.flatten([h]), self._weight("w2", 27, 5), self._weight("b2", 5)])
        self.y = a.softmax([h])
        error = a.sub([self.y, self.want])
        self.loss = a.reducesum([a.mul([error, error])], keepdims=0)
        for id in (self.y, self.loss):
            self.builder.addOutputTensor(id)
        self.data = self.random.standard_normal((20, 2, 4, 2, 6, 6)).astype(np.float32)
        self.wanted = self.random.random((20, 2, 4, 5)).astype(np.float32)

    def _weight(self, name: str, *shape: int) -> str:
        value = (self.random.standard_normal(shape) * 0.3).astype(np.float32)
        return self.builder.addInitializedInputTensor(value, name)

    def session(self, optimizer: Any, model: Any = None, **values: Any) -> popart.TrainingSession:
        opts = options(A=2, **values)
        training = popart.TrainingSession(
            model or self.builder.getModelProto(),
            popart.DataFlow(1, [self.loss]),
            self.loss,
            optimizer,
            device(opts),
            userOptions=opts,
        )
        training.prepareDevice()
        training.weightsFromHost()
        return training

    def steps(self, session: popart.TrainingSession, numbers: range) -> None:
        for n in numbers:
            data = {self.x: self.data[n], self.want: self.wanted[n]}
            session.run(popart.PyStepIO(data, session.initAnchorArrays()))


def saved(session: popart.TrainingSession, path: Path) -> dict[str, bytes]:
    session.modelToHost(str(path))
    return {proto.name: onnx.numpy_helper.to_array(proto).tobytes() for proto in onnx.load(path).graph.initializer}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_ten_steps_and_ten_more_are_twenty(name: str, tmp_path: Path) -> None:
    """Bitwise, including the states of the optimiser."""
    net, optimizer = Convolution(), OPTIMIZERS[name]
    unbroken, half = net.session(optimizer), net.session(optimizer)
    net.steps(unbroken, range(20))
    net.steps(half, range(10))
    first = saved(half, tmp_path / "half.onnx")
    rest = net.session(optimizer, str(tmp_path / "half.onnx"))
    net.steps(rest, range(10, 20))
    want = saved(unbroken, tmp_path / "whole.onnx")
    assert saved(rest, tmp_path / "rest.onnx") == want
    assert first.keys() == want.keys() >= {"w1", "b1", "w2", "b2"}
    assert first["w1"] != want["w1"]


def test_trained_halves_are_read_by_onnx_onnx_runtime_and_again(tmp_path: Path) -> None:
    runtime, path = pytest.importorskip("onnxruntime"), tmp_path / "halves.onnx"
    builder = popart.Builder(opsets={"ai.onnx": 10})
    weight = builder.addInitializedInputTensor(np.linspace(-1, 1, 7).astype(np.float16), "w")
    y = builder.aiOnnx.mul([weight, weight])
    builder.addOutputTensor(y)
    loss = builder.aiGraphcore.l1loss([y], 0.5, popart.ReductionType.Sum)
    flow, cpu = popart.DataFlow(1, []), popart.DeviceManager().createCpuDevice()
    session = popart.TrainingSession(builder.getModelProto(), flow, loss, popart.ConstSGD(0.25), cpu)
    session.prepareDevice()
    session.weightsFromHost()
    session.run(popart.PyStepIO({}, session.initAnchorArrays()))
    trained = np.frombuffer(saved(session, path)["w"], np.float16)
    onnx.checker.check_model(onnx.load(path), full_check=True)
    assert trained[0] > -1
    model = onnx.load(path)
    del model.graph.node[1:]  # the loss, an op of PopART's own domain
    settings = runtime.SessionOptions()
    settings.log_severity_level = 3
    (result,) = runtime.InferenceSession(model.SerializeToString(), settings).run([y], {})
    np.testing.assert_array_equal(result, trained * trained)
    again = popart.InferenceSession(str(path), popart.DataFlow(1, [y]), cpu)
    again.prepareDevice()
    anchors = again.initAnchorArrays()
    again.run(popart.PyStepIO({}, anchors))
    np.testing.assert_array_equal(anchors[y], result)


def test_onnx_runtime_agrees(tmp_path: Path) -> None:
    runtime = pytest.importorskip("onnxruntime")
    net, path = Convolution(), tmp_path / "trained.onnx"
    session = net.session(OPTIMIZERS["Adam"])
    net.steps(session, range(10))
    saved(session, path)
    onnx.checker.check_model(onnx.load(path))
    opts = options()
    flow = popart.DataFlow(1, [net.y, net.loss])
    ours = popart.InferenceSession(str(path), flow, device(opts), userOptions=opts)
    ours.prepareDevice()
    anchors, data = ours.initAnchorArrays(), {net.x: net.data[0, 0], net.want: net.wanted[0, 0]}
    ours.run(popart.PyStepIO(data, anchors))
    settings = runtime.SessionOptions()
    settings.log_severity_level = 3
    theirs = runtime.InferenceSession(str(path), settings).run([net.y, net.loss], data)
    for id, expected in zip((net.y, net.loss), theirs, strict=True):
        np.testing.assert_allclose(anchors[id], expected, rtol=1e-5, atol=1e-6)


def test_accumulators_are_saved_as_zeros_unless_they_are_not_streamed(tmp_path: Path) -> None:
    model, path = Convolution(), tmp_path / "model.onnx"
    session = model.session(popart.SGD(RATE))
    model.steps(session, range(1))
    saved_states = saved(session, path)
    ids = [popart.reservedAccumPrefix() + id for id in ("w1", "b1", "w2", "b2")]
    assert list(saved_states) == ["w1", "b1", "w2", "b2", *ids]
    assert not any(saved_states[id].strip(b"\0") for id in ids)
    session.resetHostWeights(str(path))
    session.weightsFromHost()
    again = model.session(popart.SGD(RATE), str(path))
    for trained in (session, again):
        model.steps(trained, range(1, 2))
    assert saved(session, path) == saved(again, path)
    without = model.session(popart.SGD(RATE), disableGradAccumulationTensorStreams=True)
    assert list(saved(without, path)) == ["w1", "b1", "w2", "b2"]
