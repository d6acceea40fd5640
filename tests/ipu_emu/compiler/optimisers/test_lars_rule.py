"""LARS: its steps against the formulas of its paper in float64, and its sharded states against whole ones."""

from __future__ import annotations

import numpy as np
import pytest

from ipu_emu import popart
from ipu_emu.compiler.gradients.gradient import GradientReduction
from ipu_emu.compiler.memory.tensor_locations import LocationRule, StorageChoice, TensorLocations
from ipu_emu.compiler.optimisers.lars_rule import LarsRule
from ipu_emu.compiler.optimisers.sgd_rule import SgdValues
from ipu_emu.compiler.optimisers.update_rule import HyperParameter
from ipu_emu.compiler.options import CompileOptions, TrainingOptions
from ipu_emu.compiler.pipeline import compile
from ipu_emu.engine import Engine, Replicas
from ipu_emu.hostio.feeds.array_feed import ArrayFeed
from ipu_emu.onnx.read import read
from ipu_emu.program.anchors import StepShape

RATE, MOMENTUM, COEFFICIENT, DECAY, STEPS = 0.1, 0.9, 0.01, 0.02, 4
FIRST = {"w": np.array([[1.0, -2.0], [0.5, 3.0]], np.float32), "b": np.array([1.0, -1.0], np.float32)}


def rule(loss_scaling: float = 1.0) -> LarsRule:
    zero, unit = HyperParameter(0.0), HyperParameter(1.0)
    values = SgdValues(HyperParameter(RATE, False), zero, HyperParameter(MOMENTUM), zero, unit, zero)
    return LarsRule(values, HyperParameter(loss_scaling), coefficient=COEFFICIENT, decay=DECAY)


def trained(data: np.ndarray, *, shares: bool = False, loss_scaling: float = 1.0) -> dict[str, np.ndarray]:
    """The weights after steps whose gradients are ``data`` [steps, replicas, 2, 2], and the sums of its columns."""
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [2, 2], "x")
    w, b = (builder.addInitializedInputTensor(FIRST[id], id) for id in "wb")
    y = builder.aiOnnx.mul([x, builder.aiOnnx.add([w, b])])
    loss = builder.aiGraphcore.identityloss([y], popart.ReductionType.Sum)
    replicas = data.shape[1]
    locations = TensorLocations(states=LocationRule(StorageChoice(sharded=shares), smallest_sharded=1))
    options = CompileOptions(
        step=StepShape(1, 1, replicas),
        anchors=(),
        training=TrainingOptions(loss, rule(loss_scaling)),
        replicas=replicas,
        reduction=GradientReduction.MEAN_POST,
        locations=locations,
    )
    engine = Engine(
        compile(read(builder.getModelProto()).graph, options),
        Replicas(local=replicas, offset=0, total=replicas),
    )
    for id, value in FIRST.items():
        engine.write(id, value)
    for step in data:
        feed = ArrayFeed({x: step}, {})
        feed.attach(engine.executable.graph.tensors)
        engine.run(feed)
    values = {id: engine.read(id) for id in FIRST}
    engine.close()
    return values


def expected(data: np.ndarray) -> dict[str, np.ndarray]:
    weights = {id: value.astype(np.float64) for id, value in FIRST.items()}
    velocity = {id: np.zeros_like(value) for id, value in weights.items()}
    for step in data.mean(axis=1).astype(np.float64):
        for id, g in (("w", step), ("b", step.sum(axis=0))):
            w = weights[id]
            if w.ndim > 1:
                norms = np.linalg.norm(w), np.linalg.norm(g)
                ratio = COEFFICIENT * norms[0] / (norms[1] + DECAY * norms[0]) if all(norms) else 1.0
                g = ratio * (g + DECAY * w)
            velocity[id] = MOMENTUM * velocity[id] + g
            weights[id] = w - RATE * velocity[id]
    return weights


def data(replicas: int) -> np.ndarray:
    return np.random.default_rng(3).standard_normal((STEPS, replicas, 2, 2)).astype(np.float32)


@pytest.mark.parametrize("loss_scaling", [1.0, 64.0])
def test_steps_follow_the_formulas(loss_scaling):
    values, wanted = trained(data(1), loss_scaling=loss_scaling), expected(data(1))
    for id, value in wanted.items():
        np.testing.assert_allclose(values[id], value, rtol=1e-6)


def test_a_gradient_of_zero_leaves_the_ratio_at_one():
    gradient = np.zeros((1, 1, 2, 2), np.float32)
    np.testing.assert_allclose(trained(gradient)["w"], expected(gradient)["w"], rtol=1e-6)


def test_sharded_states_give_the_same_bits_as_whole_ones():
    unsharded, parts = trained(data(2)), trained(data(2), shares=True)
    for id, value in expected(data(2)).items():
        np.testing.assert_allclose(unsharded[id], value, rtol=1e-6)
        assert unsharded[id].tobytes() == parts[id].tobytes()
