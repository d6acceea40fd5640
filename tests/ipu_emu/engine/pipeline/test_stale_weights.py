"""Stale weights: a training pipeline without gradient accumulation, compared with a slow, obvious model."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

from ipu_emu import popart
from tests.helpers.sampling import sampled_product
from tests.ipu_emu.helpers.pipelined_models import EXPLICIT, KEPT, PIPELINE, Tower, threads
from tests.ipu_emu.helpers.sessions import options

RATE, MOMENTUM, SIZE = np.float32(0.125), np.float32(0.5), 16


class Products:
    """Stage s computes y = x * weight + shift element by element; the loss is half the sum of |y|.

    No sum has more than one term, so that every float32 result is rounded in one way only.
    """

    def __init__(self, stages: int) -> None:
        random = np.random.default_rng(stages)
        self.stages = stages
        self.builder = builder = popart.Builder()
        self.x = y = builder.addInputTensor("FLOAT", [SIZE])
        self.weights: dict[str, np.ndarray] = {}
        for stage in range(stages):
            with builder.virtualGraph(stage), builder.pipelineStage(stage):
                y = builder.aiOnnx.mul([y, self.weight(f"weight{stage}", random.uniform(0.5, 1.5, SIZE))])
                y = builder.aiOnnx.add([y, self.weight(f"shift{stage}", random.uniform(-0.5, 0.5, SIZE))])
                if stage == stages - 1:
                    self.loss = builder.aiGraphcore.l1loss([y], 0.5, popart.ReductionType.Sum)
        self.y = y

    def weight(self, name: str, value: np.ndarray) -> str:
        self.weights[name] = value.astype(np.float32)
        id: str = self.builder.addInitializedInputTensor(self.weights[name], name)
        return id

    def by_session(
        self, x: np.ndarray, optimizer: Any, replicas: int = 1
    ) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """(y of each micro-batch, weights) after one step; x is [micro-batches, replicas, SIZE]."""
        opts = options(R=replicas, **PIPELINE)
        flow = popart.DataFlow(len(x), {self.y: popart.AnchorReturnType("All")})
        device = popart.DeviceManager().createSimDevice({"numIPUs": self.stages * replicas, "tilesPerIPU": 1472})
        session = popart.TrainingSession(
            self.builder.getModelProto(), flow, self.loss, optimizer, device, userOptions=opts
        )
        session.prepareDevice()
        session.weightsFromHost()
        anchors = session.initAnchorArrays()
        session.run(popart.PyStepIO({self.x: x}, anchors))
        arrays = {id: np.zeros_like(value) for id, value in self.weights.items()}
        session.weightsToHost()
        session.readWeights(popart.PyWeightsIO(arrays))
        session.close()
        return anchors[self.y].reshape(x.shape), arrays

    def by_hand(self, x: np.ndarray, momentum: np.float32) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """Keep the weights after every update, and look up those that each stage has seen.

        With F stages, the forward of micro-batch j in stage s has seen the updates of micro-batches up to
        j - 1 - 2 (F - 1 - s), and its backward those up to j - 1.
        """
        history = [dict(self.weights)]
        speeds = {id: np.zeros_like(value) for id, value in self.weights.items()}
        outputs = []
        for j, replicas in enumerate(x):
            totals = {id: np.zeros(SIZE, np.float32) for id in self.weights}
            for y in replicas:
                inputs = []
                for s in range(self.stages):
                    seen = history[max(0, j - 2 * (self.stages - 1 - s))]
                    inputs.append(y)
                    y = y * seen[f"weight{s}"] + seen[f"shift{s}"]
                outputs.append(y)
                gradient = np.float32(0.5) * np.sign(y)
                for s in reversed(range(self.stages)):
                    totals[f"shift{s}"] = totals[f"shift{s}"] + gradient
                    totals[f"weight{s}"] = totals[f"weight{s}"] + gradient * inputs[s]
                    gradient = gradient * history[j][f"weight{s}"]
            speeds = {id: momentum * speeds[id] + total for id, total in totals.items()}
            history.append({id: value - RATE * speeds[id] for id, value in history[j].items()})
        return np.array(outputs).reshape(x.shape), history[-1]


def momentum() -> Any:
    return popart.SGD({"defaultLearningRate": (float(RATE), True), "defaultMomentum": (float(MOMENTUM), True)})


AXES = {"stages": (2, 3, 4, 5), "replicas": (1, 2), "cpus": (1, 3)}


@pytest.mark.parametrize(tuple(AXES), sampled_product(AXES))
def test_weights_and_outputs_are_those_of_a_slow_obvious_model(
    monkeypatch: pytest.MonkeyPatch, stages: int, replicas: int, cpus: int
) -> None:
    threads(monkeypatch, cpus)
    model = Products(stages)
    x = np.random.default_rng(7).uniform(-1, 1, (2 * stages + 3, replicas, SIZE)).astype(np.float32)
    for optimizer, keep in ((popart.ConstSGD(float(RATE)), np.float32(0)), (momentum(), MOMENTUM)):
        y, weights = model.by_session(x, optimizer, replicas)
        want, expected = model.by_hand(x, keep)
        np.testing.assert_array_equal(y, want)
        for id, value in expected.items():
            np.testing.assert_array_equal(weights[id], value, err_msg=id)


OTHERS = {"explicit": EXPLICIT} | {name: PIPELINE | options for name, options in KEPT.items()}


def adam() -> Any:
    return popart.Adam({"defaultLearningRate": (0.01, True)})


@cache
def trained_with_weights_on_chip(replicas: int) -> dict[str, np.ndarray]:
    return Tower(3).trained(bps=7, R=replicas, optimizer=adam(), **PIPELINE)


@pytest.mark.filterwarnings("ignore:Replicated tensor sharding has no effect")
@pytest.mark.parametrize(
    ("name", "replicas"), sampled_product({"name": tuple(OTHERS), "replicas": (1, 2)}, strength=1)
)
def test_weights_are_equally_stale_in_every_memory(monkeypatch: pytest.MonkeyPatch, name: str, replicas: int) -> None:
    threads(monkeypatch, 3)
    weights = Tower(3).trained(bps=7, R=replicas, optimizer=adam(), **OTHERS[name])
    for id, value in trained_with_weights_on_chip(replicas).items():
        np.testing.assert_array_equal(weights[id], value, err_msg=id)


def test_every_step_starts_with_an_empty_pipeline() -> None:
    """Two runs of seven batches are not one of fourteen, but each is what the model says."""
    tower = Tower(3)
    session = tower.session(bps=7, **PIPELINE)
    twice = tower.run(session, steps=2, bps=7)
    again = tower.run(tower.session(bps=7, **PIPELINE), steps=2, bps=7)
    for id, value in twice.items():
        np.testing.assert_array_equal(value, again[id], err_msg=id)


def test_the_first_micro_batch_alone_is_exact() -> None:
    tower = Tower(3, plain=True)
    stale, exact = (tower.trained(bps=6, steps=1, **values)["Nll:0 in step 0"] for values in (PIPELINE, {}))
    np.testing.assert_array_equal(stale[0], exact[0])
    assert (stale[1:] != exact[1:]).any()


def test_the_error_against_exact_updates_goes_to_zero_with_the_learning_rate() -> None:
    tower, errors = Tower(3, plain=True), []
    for rate in (0.1, 0.01, 0.001):
        stale, exact = (
            tower.trained(bps=8, steps=1, optimizer=popart.ConstSGD(rate), **values) for values in (PIPELINE, {})
        )
        moved = [np.abs(exact[id] - first).max() for id, first in tower.weights.items()]
        away = [np.abs(exact[id] - stale[id]).max() for id in tower.weights]
        errors.append(max(away) / max(moved))
    assert errors[0] > 5 * errors[1] > 25 * errors[2] > 0


def test_uses_of_all_gradients_need_accumulation() -> None:
    clips = [popart.ClipNormSettings.clipAllWeights(1.0)]
    tower = Tower(2, plain=True)
    with pytest.raises(popart.popart_exception, match=r"set enableGradientAccumulation"):
        tower.session(bps=4, optimizer=popart.ConstSGD(0.1, clip_norm_settings=clips), **PIPELINE)
    assert tower.session(A=4, optimizer=popart.ConstSGD(0.1, clip_norm_settings=clips), **PIPELINE) is not None
