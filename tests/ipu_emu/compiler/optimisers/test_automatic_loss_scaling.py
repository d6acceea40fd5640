"""Automatic loss scaling: the factor follows the gradients, and changes nothing else."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ipu_emu import popart
from tests.ipu_emu.helpers.sessions import device, options
from tests.ipu_emu.helpers.threaded_instances import Instance, on_instances, session_on

FACTOR, FINAL = "lossScaleUpdateFactor", "finalLossScale"


def settings(**values: Any) -> Any:
    return popart.AutomaticLossScalingSettings(enabled=True, **values)


class Scaled:
    """loss = sum(x * w) with half-precision w, so that the gradient is x times the loss scaling."""

    def __init__(self, dtype: Any = np.float16, scaling: float = 64.0, *, constant: bool = False) -> None:
        self.dtype = dtype
        self.builder = popart.Builder()
        self.x = self.builder.addInputTensor(popart.TensorInfo(dtype, [4]))
        self.w = self.builder.addInitializedInputTensor(np.zeros(4, dtype))
        product = self.builder.aiOnnx.mul([self.x, self.w])
        self.loss = self.builder.aiGraphcore.identityloss([product], popart.ReductionType.Sum)
        self.optimizer = popart.SGD(
            {
                "defaultLearningRate": (0.125, False),
                "defaultMomentum": (0.5, True),
                "lossScaling": (scaling, constant),
            }
        )

    @property
    def model(self) -> tuple[Any, ...]:
        anchors = {id: popart.AnchorReturnType("Final") for id in (FACTOR, FINAL, self.w)}
        return self.builder.getModelProto(), popart.DataFlow(1, anchors), self.loss, self.optimizer

    def session(self, opts: Any, model: tuple[Any, ...] | None = None) -> Any:
        session = popart.TrainingSession(*(model or self.model), device(opts), userOptions=opts)
        session.prepareDevice()
        session.weightsFromHost()
        return session

    def factors(self, sizes: list[float], **values: Any) -> list[float]:
        """The factor after each step whose data has these sizes."""
        found = []
        session = self.session(options(automaticLossScalingSettings=settings(**values)))
        for size in sizes:
            anchors = session.initAnchorArrays()
            session.run(popart.PyStepIO({self.x: np.full(4, size, self.dtype)}, anchors))
            found.append(float(anchors[FACTOR]))
        return found


def test_the_factor_follows_the_gradients() -> None:
    """Edge 0.125 of 65504 is 8188; a gradient of 100 is scaled by 64 f."""
    assert Scaled().factors([1.0] * 4) == [2, 4, 8, 16]
    assert Scaled().factors([100.0, 100.0, 100.0, 1.0]) == [2, 1, 2, 4]
    assert Scaled().factors([100.0] * 4, binEdgeLocation=0.5) == [2, 4, 8, 4]
    assert Scaled().factors([1.0] * 6, updatePeriod=3) == [1, 1, 2, 2, 2, 4]
    assert Scaled().factors([0.01] * 12)[-3:] == [512, 512, 512]


def test_a_share_of_large_elements_is_allowed() -> None:
    model = Scaled()
    for most, want in ((0.3, 2.0), (0.2, 0.5)):
        session = model.session(options(automaticLossScalingSettings=settings(thresholdUpperCountProportion=most)))
        anchors = session.initAnchorArrays()
        session.run(popart.PyStepIO({model.x: np.array([1000, 1, 1, 1], np.float16)}, anchors))
        assert float(anchors[FACTOR]) == want


@pytest.mark.parametrize("values", [{}, {"A": 3}, {"R": 2}, {"A": 3, "R": 2}])
def test_training_is_the_same_as_without(values: dict[str, int]) -> None:
    """Powers of two are exact in float32."""
    model = Scaled(np.float32)
    A, R = values.get("A", 1), values.get("R", 1)
    plain = (model.builder.getModelProto(), popart.DataFlow(1, [model.w]), model.loss, model.optimizer)
    sessions = [
        model.session(options(**values), plain),
        model.session(options(automaticLossScalingSettings=settings(), **values)),
    ]
    for step in range(5):
        data = np.random.default_rng(step).standard_normal((A, R, 4)).astype(np.float32)
        for session in sessions:
            session.run(popart.PyStepIO({model.x: data}, session.initAnchorArrays()))
    found = []
    for session in sessions:
        session.weightsToHost()
        found.append(session._weights.values[model.w])
    assert np.abs(found[0]).max() > 0
    np.testing.assert_array_equal(found[0], found[1])


def test_instances_agree_on_the_factor() -> None:
    model = Scaled()
    data = np.array([[1, 1, 1, 1], [1000, 1, 1, 1]], np.float16)

    def work(instance: Instance) -> float:
        opts = instance.configure(options(automaticLossScalingSettings=settings()))
        session = session_on(instance, popart.TrainingSession, *model.model, userOptions=opts)
        session.prepareDevice()
        session.weightsFromHost()
        anchors = session.initAnchorArrays()
        session.run(popart.PyStepIO({model.x: np.ascontiguousarray(data[instance.offset])}, anchors))
        return float(anchors[FACTOR])

    assert on_instances((1, 1), work) == [0.5, 0.5]


def test_a_constant_loss_scaling_is_refused() -> None:
    with pytest.raises(popart.popart_exception) as error:
        Scaled(constant=True).session(options(automaticLossScalingSettings=settings()))
    assert error.value.args[0].startswith(
        "[AutomaticLossScale transform] The optimizer must have non-const loss scaling"
    )
