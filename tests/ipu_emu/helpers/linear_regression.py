"""Regression: a line through points, in sessions of both kinds."""

from __future__ import annotations

from typing import Any

import numpy as np

from ipu_emu import popart
from tests.ipu_emu.helpers.sessions import device, options

__all__ = ["Regression", "assert_equal", "weights"]

SEPARATE = popart.SGDAccumulatorAndMomentum.Separate


class Regression:
    """y = x w + b with an L1 loss."""

    def __init__(self) -> None:
        random = np.random.default_rng(0)
        self.builder = popart.Builder()
        self.x = self.builder.addInputTensor("FLOAT", [4, 3])
        self.first = {"w": random.standard_normal((3, 2)).astype(np.float32), "b": np.zeros(2, np.float32)}
        ids = [self.builder.addInitializedInputTensor(value, name) for name, value in self.first.items()]
        self.y = self.builder.aiOnnx.gemm([self.x, *ids])
        self.loss = self.builder.aiGraphcore.l1loss([self.y], 1.0)
        self.data = random.standard_normal((20, 4, 3)).astype(np.float32)
        self.optimizer = popart.SGD(
            {"defaultLearningRate": (0.1, False), "defaultMomentum": (0.9, True), "defaultWeightDecay": 0.01},
            accumulatorAndMomentum=SEPARATE,
        )

    def training(self, model: Any = None) -> popart.TrainingSession:
        flow = popart.DataFlow(1, [self.loss])
        opts = options()
        session = popart.TrainingSession(
            model or self.builder.getModelProto(), flow, self.loss, self.optimizer, device(opts), userOptions=opts
        )
        session.prepareDevice()
        session.weightsFromHost()
        return session

    def inference(self, model: Any = None, **values: Any) -> popart.InferenceSession:
        opts = options(**values)
        session = popart.InferenceSession(
            model or self.builder.getModelProto(), popart.DataFlow(1, [self.y]), device(opts), userOptions=opts
        )
        session.prepareDevice()
        return session

    def steps(self, session: Any, numbers: range) -> None:
        for number in numbers:
            session.run(popart.PyStepIO({self.x: self.data[number]}, session.initAnchorArrays()))

    def answer(self, session: Any) -> np.ndarray:
        anchors = session.initAnchorArrays()
        session.run(popart.PyStepIO({self.x: self.data[0]}, anchors))
        return anchors[self.y]


def weights(session: Any, *ids: str) -> dict[str, np.ndarray]:
    shapes = {id: session.getInfo(id).shape() for id in ids or ("w", "b")}
    arrays = {id: np.empty(shape, np.float32) for id, shape in shapes.items()}
    session.weightsToHost()
    session.readWeights(popart.PyWeightsIO(arrays))
    return arrays


def assert_equal(actual: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> None:
    assert actual.keys() == other.keys()
    for id, value in actual.items():
        np.testing.assert_array_equal(value, other[id])
