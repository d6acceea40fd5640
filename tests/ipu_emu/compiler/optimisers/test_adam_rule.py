"""The Adam family: every form against the published formulas in float64, and against PyTorch if it has the form."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from ipu_emu import popart
from tests.ipu_emu.helpers.sessions import options, train
from tests.ipu_emu.helpers.weight_updates import FIRST, gradients, weights_of

MODES = popart.AdamMode
DECAY, L2 = popart.WeightDecayMode.Decay, popart.WeightDecayMode.L2Regularization
STEPS = 6


@dataclass
class Values:
    """Hyper-parameters of one step; the keys are PopART's."""

    lr: float = 0.05
    wd: float = 0.0
    b1: float = 0.9
    b2: float = 0.999
    eps: float = 1e-6
    norm: float = 10.0
    ls: float = 1.0
    extra: dict[str, Any] = field(default_factory=dict)

    def optimizer(self, mode: Any, decay: Any = DECAY, *, constant: bool = False) -> popart.Adam:
        values = {
            "defaultLearningRate": (self.lr, constant),
            "defaultWeightDecay": (self.wd, constant),
            "defaultBeta1": (self.b1, constant),
            "defaultBeta2": (self.b2, constant),
            "defaultEps": (self.eps, constant),
            "defaultMaxWeightNorm": (self.norm, constant),
            "lossScaling": (self.ls, constant),
        }
        return popart.Adam(values, mode, decay, **self.extra)


def formula(values: list[Values], mode: Any, decay: Any) -> np.ndarray:
    """Section 10.3 of the reference, in float64."""
    w, m, v, after = FIRST.astype(np.float64), 0.0, 0.0, []
    for t, (g, p) in enumerate(zip(gradients(STEPS).sum(axis=1, dtype=np.float64), values, strict=True), 1):
        s = g + p.wd * w if decay is L2 else g
        m = p.b1 * m + (1 - p.b1) * s
        v = np.maximum(p.b2 * v, np.abs(s)) if mode is MODES.AdaMax else p.b2 * v + (1 - p.b2) * s**2
        corrected = mode in (MODES.Adam, MODES.AdaMax, MODES.Lamb)
        mc = m / (1 - p.b1**t) if corrected else m
        vc = v / (1 - p.b2**t) if corrected else v
        x = mc / (v + p.eps) if mode is MODES.AdaMax else mc / (np.sqrt(vc) + p.eps)
        if decay is DECAY:
            x = x + p.wd * w
        ratio = 1.0
        if mode in (MODES.Lamb, MODES.LambNoBias) and np.linalg.norm(w) > 0 and np.linalg.norm(x) > 0:
            ratio = min(np.linalg.norm(w), p.norm) / np.linalg.norm(x)
        w = w - p.lr * ratio * x
        after.append(w)
    return np.array(after)


SETTINGS = [Values(), Values(wd=0.2), Values(b1=0.5, b2=0.9, eps=1e-3, wd=0.1, norm=0.7, ls=64.0)]


@pytest.mark.parametrize("decay", [DECAY, L2], ids=str)
@pytest.mark.parametrize("mode", list(MODES), ids=str)
@pytest.mark.parametrize("values", SETTINGS, ids=str)
def test_every_mode_follows_the_formula(values: Values, mode: Any, decay: Any) -> None:
    weights = weights_of([values.optimizer(mode, decay, constant=True)] * STEPS)
    np.testing.assert_allclose(weights, formula([values] * STEPS, mode, decay), rtol=5e-6, atol=1e-6)


@pytest.mark.parametrize("mode", list(MODES), ids=str)
def test_changes_are_seen_at_once(mode: Any) -> None:
    values = [Values(lr=0.1 / (i + 1), wd=0.1 * i, b1=0.9 - 0.05 * i, ls=2.0**i, norm=1 + i) for i in range(STEPS)]
    weights = weights_of([p.optimizer(mode) for p in values])
    np.testing.assert_allclose(weights, formula(values, mode, DECAY), rtol=5e-6, atol=1e-6)


@pytest.mark.parametrize("decay", [DECAY, L2], ids=str)
@pytest.mark.parametrize("mode", list(MODES), ids=str)
def test_a_scaled_state_changes_nothing(mode: Any, decay: Any) -> None:
    """Scaling by a power of two is exact, but for eps."""
    plain, scaled = (Values(wd=0.1, ls=256.0, extra={"scaled_optimizer_state": s}) for s in (False, True))
    weights = [weights_of([p.optimizer(mode, decay)] * STEPS) for p in (plain, scaled)]
    np.testing.assert_allclose(weights[1], weights[0], rtol=1e-6)


def test_gradients_accumulate_in_their_own_tensor() -> None:
    weights = weights_of([Values().optimizer(MODES.Adam)] * STEPS, factor=3)
    want = adam_on(gradients(STEPS, 3).sum(axis=1, dtype=np.float64))
    np.testing.assert_allclose(weights, want, rtol=5e-6, atol=1e-6)


def adam_on(data: np.ndarray) -> np.ndarray:
    w, m, v, after = FIRST.astype(np.float64), 0.0, 0.0, []
    for t, g in enumerate(data, 1):
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g**2
        w = w - 0.05 * (m / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.999**t)) + 1e-6)
        after.append(w)
    return np.array(after)


def test_specific_values_replace_the_defaults_of_one_weight() -> None:
    weights = weights_of(
        [Values(lr=0.5, b1=0.3).optimizer(MODES.Adam, constant=True)] * STEPS,
        specific={"learningRate": (0.05, True), "beta1": 0.9},
    )
    np.testing.assert_allclose(weights, formula([Values()] * STEPS, MODES.Adam, DECAY), rtol=5e-6, atol=1e-6)


TORCH: dict[str, tuple[Any, Any, Callable[[Any, Any, Values], Any]]] = {
    "AdamW": (MODES.Adam, DECAY, lambda torch, w, p: torch.optim.AdamW([w], p.lr, (p.b1, p.b2), p.eps, p.wd)),
    "Adam": (MODES.Adam, L2, lambda torch, w, p: torch.optim.Adam([w], p.lr, (p.b1, p.b2), p.eps, p.wd)),
    "Adamax": (MODES.AdaMax, L2, lambda torch, w, p: torch.optim.Adamax([w], p.lr, (p.b1, p.b2), p.eps, p.wd)),
}


@pytest.mark.torch
@pytest.mark.parametrize("name", TORCH)
def test_pytorch_agrees(name: str) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed; scripts/test --with-torch adds it")
    torch.set_num_threads(1)
    mode, decay, make = TORCH[name]
    values = Values(wd=0.1)
    w = torch.nn.Parameter(torch.tensor(FIRST))
    theirs, expected = make(torch, w, values), []
    for data in gradients(STEPS):
        theirs.zero_grad()
        (w * torch.tensor(data[0])).sum().backward()
        theirs.step()
        expected.append(w.detach().numpy().copy())
    weights = weights_of([values.optimizer(mode, decay)] * STEPS)
    np.testing.assert_allclose(weights, expected, rtol=5e-6, atol=1e-6)


@pytest.mark.parametrize(
    ("dtype", "arguments", "want"),
    [
        (np.float32, {}, {"Accl1___": "FLOAT", "Accl2___": "FLOAT", "Accum___": "FLOAT"}),
        (np.float16, {}, {"Accl1___": "FLOAT", "Accl2___": "FLOAT", "Accum___": "FLOAT16"}),
        (
            np.float16,
            {"accum_type": popart.DataType.FLOAT, "accl1_type": popart.DataType.FLOAT16},
            {"Accl1___": "FLOAT16", "Accl2___": "FLOAT", "Accum___": "FLOAT"},
        ),
        (np.float16, {"accl2_type": popart.DataType.UNDEFINED}, {"Accl2___": "FLOAT16"}),
    ],
)
def test_states_have_their_names_and_types(dtype: Any, arguments: dict[str, Any], want: dict[str, str]) -> None:
    builder = popart.Builder()
    w = builder.addInitializedInputTensor(FIRST.astype(dtype))
    loss = builder.aiGraphcore.l1loss([w], 0.5, popart.ReductionType.Sum)
    optimizer = popart.Adam({"defaultLearningRate": (0.25, True)}, **arguments)
    session = train(builder, popart.DataFlow(1, [loss]), loss, optimizer, options(A=2))
    types = {prefix: session.getInfo(prefix + w).data_type() for prefix in want}
    assert types == want
    assert session.getInfo("Step___" + w) == popart.TensorInfo("FLOAT", [])
    for _ in range(3):
        session.run(popart.PyStepIO({}, session.initAnchorArrays()))
    count, value = np.zeros((), np.float32), np.zeros(3, dtype)
    session.weightsToHost()
    session.readWeights(popart.PyWeightsIO({"Step___" + w: count, w: value}))
    assert count == 3
    np.testing.assert_allclose(value, FIRST - 0.75 * np.sign(FIRST), rtol=2e-3, atol=2e-3)


def test_the_old_key_of_the_maximum_norm() -> None:
    with pytest.warns(DeprecationWarning, match="now called defaultMaxWeightNorm"):
        optimizer = popart.Adam({"maxWeightNorm": (3.0, True)})
    assert optimizer.plan.default.max_weight_norm.value == 3.0
