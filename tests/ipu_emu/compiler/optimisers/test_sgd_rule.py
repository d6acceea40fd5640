"""SGD: every form against the formulas of PopART in float64, and against PyTorch if it has the form."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from ipu_emu import popart
from tests.ipu_emu.helpers.sessions import options, train

COMBINED = popart.SGDAccumulatorAndMomentum.Combined
SEPARATE = popart.SGDAccumulatorAndMomentum.Separate
FIRST = np.array([1.0, -2.0, 0.5], np.float32)
STEPS = 5


@dataclass
class Values:
    """Hyper-parameters of one step."""

    lr: float = 0.1
    wd: float = 0.0
    mm: float = 0.0
    dm: float = 0.0
    vs: float = 1.0
    ls: float = 1.0
    nesterov: bool = False

    def optimizer(self, mode: Any = COMBINED, *, constant: bool = False) -> popart.SGD:
        return popart.SGD(
            {
                "defaultLearningRate": (self.lr, constant),
                "defaultWeightDecay": (self.wd, constant),
                "defaultMomentum": (self.mm, constant),
                "defaultDampening": (self.dm, constant),
                "defaultVelocityScaling": (self.vs, constant),
                "lossScaling": (self.ls, constant),
                "nesterov": self.nesterov,
            },
            accumulatorAndMomentum=mode,
        )


def gradients(factor: int = 1) -> np.ndarray:
    """The gradients of the loss sum(w * x) for these inputs: x itself, [steps, A, 3]."""
    return np.random.default_rng(5).standard_normal((STEPS, factor, 3)).astype(np.float32)


def weights_of(optimizers: list[popart.SGD], factor: int = 1, specific: Any = None) -> np.ndarray:
    """The weight after every step, [steps, 3]; optimizers[i] is used in step i."""
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [3])
    w = builder.addInitializedInputTensor(FIRST)
    loss = builder.aiGraphcore.identityloss([builder.aiOnnx.mul([x, w])], popart.ReductionType.Sum)
    for optimizer in optimizers if specific else []:
        optimizer.insertSpecific(w, specific)
    session = train(builder, popart.DataFlow(1, [loss]), loss, optimizers[0], options(A=factor))
    anchors, after = session.initAnchorArrays(), []
    for data, optimizer in zip(gradients(factor), optimizers, strict=True):
        session.updateOptimizerFromHost(optimizer)
        session.run(popart.PyStepIO({x: data}, anchors))
        value = np.zeros(3, np.float32)
        session.weightsToHost()
        session.readWeights(popart.PyWeightsIO({w: value}))
        after.append(value)
    return np.array(after)


def formula(values: list[Values], factor: int = 1) -> np.ndarray:
    """v = mm v + (1-dm) vs (g + wd w); w -= lr/vs v, or for Nesterov w -= lr/vs (vs (g + wd w) + mm v)."""
    w, v, after = FIRST.astype(np.float64), np.zeros(3), []
    for g, p in zip(gradients(factor).sum(axis=1, dtype=np.float64), values, strict=True):
        slope = g + p.wd * w
        v = p.mm * v + (1 - p.dm) * p.vs * slope
        w = w - p.lr / p.vs * (p.vs * slope + p.mm * v if p.nesterov else v)
        after.append(w)
    return np.array(after)


def lagging_formula(values: list[Values]) -> np.ndarray:
    """Combined: a = mm v + (1-dm) wd vs w is made at the end of a step, with the values of that moment."""
    w = FIRST.astype(np.float64)
    a, after = (1 - values[0].dm) * values[0].wd * values[0].vs * w, []
    for g, p in zip(gradients().sum(axis=1, dtype=np.float64), values, strict=True):
        v = a + (1 - p.dm) * p.vs * g
        w = w - p.lr / p.vs * v
        a = p.mm * v + (1 - p.dm) * p.wd * p.vs * w
        after.append(w)
    return np.array(after)


SETTINGS = [
    Values(),
    Values(lr=0.02, wd=0.3),
    Values(wd=0.2, dm=0.4),
    Values(mm=0.9),
    Values(mm=0.9, wd=0.1, ls=64.0),
    Values(mm=0.5, dm=0.3, vs=8.0, wd=0.2),
    Values(mm=0.7, wd=0.1, nesterov=True),
]


@pytest.mark.parametrize("mode", [COMBINED, SEPARATE])
@pytest.mark.parametrize("constant", [True, False])
@pytest.mark.parametrize("factor", [1, 3])
@pytest.mark.parametrize("values", SETTINGS, ids=str)
def test_constant_hyper_parameters_follow_the_formula(values: Values, mode: Any, constant: bool, factor: int) -> None:
    """Combined and Separate agree as long as no hyper-parameter changes."""
    weights = weights_of([values.optimizer(mode, constant=constant)] * STEPS, factor)
    np.testing.assert_allclose(weights, formula([values] * STEPS, factor), rtol=2e-6, atol=1e-6)


CHANGES = [
    [Values(lr=0.1 / (i + 1), mm=0.9) for i in range(STEPS)],
    [Values(mm=0.9 - 0.1 * i, wd=0.1 * i) for i in range(STEPS)],
    [Values(mm=0.5, dm=0.1 * i, vs=1.0 + i) for i in range(STEPS)],
]


@pytest.mark.parametrize("values", CHANGES)
def test_separate_sees_changes_at_once(values: list[Values]) -> None:
    weights = weights_of([p.optimizer(SEPARATE) for p in values])
    np.testing.assert_allclose(weights, formula(values), rtol=2e-6, atol=1e-6)


@pytest.mark.parametrize("values", CHANGES)
def test_combined_lags_one_step(values: list[Values]) -> None:
    weights = weights_of([p.optimizer(COMBINED) for p in values])
    np.testing.assert_allclose(weights, lagging_formula(values), rtol=2e-6, atol=1e-6)


def test_changing_loss_scaling_changes_nothing_else() -> None:
    weights = weights_of([Values(mm=0.9, ls=2.0**i).optimizer(SEPARATE) for i in range(STEPS)])
    np.testing.assert_array_equal(weights, weights_of([Values(mm=0.9).optimizer(SEPARATE)] * STEPS))


def test_specific_values_replace_the_defaults_of_one_weight() -> None:
    weights = weights_of([Values(lr=0.5, wd=0.3).optimizer()] * STEPS, specific={"learningRate": (0.02, True)})
    np.testing.assert_allclose(weights, formula([Values(lr=0.02, wd=0.3)] * STEPS), rtol=2e-6, atol=1e-6)


@pytest.mark.torch
@pytest.mark.parametrize(
    "values", [Values(lr=0.02, wd=0.3), Values(mm=0.9, wd=0.1), Values(mm=0.7, wd=0.1, nesterov=True)], ids=str
)
def test_pytorch_agrees_without_dampening(values: Values) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed; scripts/test --with-torch adds it")
    torch.set_num_threads(1)
    w = torch.nn.Parameter(torch.tensor(FIRST))
    theirs = torch.optim.SGD([w], values.lr, values.mm, weight_decay=values.wd, nesterov=values.nesterov)
    expected = []
    for data in gradients():
        theirs.zero_grad()
        (w * torch.tensor(data[0])).sum().backward()
        theirs.step()
        expected.append(w.detach().numpy().copy())
    np.testing.assert_allclose(weights_of([values.optimizer(SEPARATE)] * STEPS), expected, rtol=2e-6, atol=1e-6)


@pytest.mark.parametrize(("mode", "state"), [(COMBINED, "Accl___"), (SEPARATE, "Accl1___")])
def test_optimiser_states_have_their_ids(mode: Any, state: str) -> None:
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [3])
    w = builder.addInitializedInputTensor(FIRST)
    loss = builder.aiGraphcore.identityloss([builder.aiOnnx.mul([x, w])], popart.ReductionType.Sum)
    values = Values(mm=0.5, wd=0.2, vs=4.0, dm=0.25)
    session = train(builder, popart.DataFlow(1, [loss]), loss, values.optimizer(mode))
    ids = session.getAllTensorIds()
    assert state + w in ids
    assert {"Accl___" + w, "Accl1___" + w} & ids == {state + w}
    first = np.ones(3, np.float32)
    session.weightsToHost()
    session.readWeights(popart.PyWeightsIO({state + w: first}))
    wanted = 0.75 * 0.2 * 4.0 * FIRST if mode is COMBINED else np.zeros(3)
    np.testing.assert_allclose(first, wanted, rtol=1e-6)


def test_constant_momentum_zero_needs_no_state() -> None:
    builder = popart.Builder()
    w = builder.addInitializedInputTensor(FIRST)
    loss = builder.aiGraphcore.identityloss([w])
    optimizer = popart.SGD({"defaultLearningRate": (0.5, False), "defaultWeightDecay": (0.5, False)})
    session = train(builder, popart.DataFlow(1, [loss]), loss, optimizer)
    ids = session.getAllTensorIds()
    assert not any(id.startswith(("Accl", "Accum")) for id in ids)
    assert {"scaledLearningRate0___default___FLOAT", "weightDecayScaleFactor0___default___FLOAT"} <= ids


def test_an_unrequested_loss_does_not_prevent_an_update() -> None:
    builder = popart.Builder()
    w = builder.addInitializedInputTensor(np.full(2, 3, np.float32))
    loss = builder.aiGraphcore.l1loss([w], 0.5, popart.ReductionType.Sum)
    first, second = (popart.SGD({"defaultLearningRate": (rate, False)}) for rate in (1.0, 2.0))
    session = train(builder, popart.DataFlow(1, {w: popart.AnchorReturnType("Final")}), loss, first)
    anchors = session.initAnchorArrays()
    session.updateOptimizerFromHost(second)
    session.run(popart.PyStepIO({}, anchors))
    np.testing.assert_array_equal(anchors[w], [2, 2])
