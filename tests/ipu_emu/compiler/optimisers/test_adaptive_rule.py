"""The adaptive family: every form against PopART's formulas in float64, and against PyTorch if it has the form."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from ipu_emu import popart
from tests.ipu_emu.helpers.sessions import train
from tests.ipu_emu.helpers.weight_updates import FIRST, gradients, weights_of

MODES = popart.AdaptiveMode
DECAY, L2 = popart.WeightDecayMode.Decay, popart.WeightDecayMode.L2Regularization
STEPS = 6


@dataclass
class Values:
    """Hyper-parameters of one step."""

    lr: float = 0.05
    wd: float = 0.0
    a: float = 0.9
    mm: float = 0.0
    eps: float = 1e-3
    ls: float = 1.0

    def optimizer(
        self, mode: Any, decay: Any = DECAY, tf: bool = False, *, constant: bool = False
    ) -> popart.Adaptive:
        values = {
            "defaultLearningRate": (self.lr, constant),
            "defaultWeightDecay": (self.wd, constant),
            "defaultAlpha": (self.a, constant),
            "defaultMomentum": (self.mm, constant),
            "defaultEps": (self.eps, constant),
            "lossScaling": (self.ls, constant),
        }
        return popart.Adaptive(values, mode, decay, rmsprop_tf_variant=tf)


def formula(values: list[Values], mode: Any, decay: Any, tf: bool, *, variable: bool = False) -> np.ndarray:
    """Section 10.3 of the reference, in float64."""
    w, v1, v2, v3, after = FIRST.astype(np.float64), float(tf), 0.0, 0.0, []
    for g, p in zip(gradients(STEPS).sum(axis=1, dtype=np.float64), values, strict=True):
        s = g + p.wd * w if decay is L2 else g
        v1 = v1 + s**2 if mode is MODES.AdaGrad else p.a * v1 + (1 - p.a) * s**2
        if mode is MODES.CenteredRMSProp:
            v2 = p.a * v2 + (1 - p.a) * s
            inside = v1 - v2**2
        else:
            inside = v1
        if mode is MODES.AdaDelta:
            x = s * np.sqrt(v2 + p.eps) / np.sqrt(v1 + p.eps)
            v2 = p.a * v2 + (1 - p.a) * x**2
        else:
            x = s / np.sqrt(inside + p.eps) if tf else s / (np.sqrt(inside) + p.eps)
        own = p.wd * w if decay is DECAY else 0.0
        if tf and (p.mm > 0 or variable):
            v3 = p.mm * v3 + p.lr * x
            w = w - (own + v3)
        else:
            v3 = p.mm * v3 + x
            w = w - p.lr * (own + v3)
        after.append(w)
    return np.array(after)


FORMS = [(mode, False) for mode in MODES] + [(MODES.RMSProp, True), (MODES.CenteredRMSProp, True)]
SETTINGS = [Values(), Values(wd=0.2, mm=0.8), Values(a=0.5, eps=0.1, wd=0.1, ls=64.0)]


@pytest.mark.parametrize("decay", [DECAY, L2], ids=str)
@pytest.mark.parametrize(("mode", "tf"), FORMS, ids=str)
@pytest.mark.parametrize("values", SETTINGS, ids=str)
def test_every_mode_follows_the_formula(values: Values, mode: Any, tf: bool, decay: Any) -> None:
    weights = weights_of([values.optimizer(mode, decay, tf, constant=True)] * STEPS)
    np.testing.assert_allclose(weights, formula([values] * STEPS, mode, decay, tf), rtol=5e-6, atol=1e-6)


@pytest.mark.parametrize(("mode", "tf"), FORMS, ids=str)
def test_changes_are_seen_at_once(mode: Any, tf: bool) -> None:
    values = [
        Values(lr=0.1 / (i + 1), wd=0.1 * i, a=0.9 - 0.05 * i, mm=0.5 + 0.1 * i, ls=2.0**i) for i in range(STEPS)
    ]
    weights = weights_of([p.optimizer(mode, DECAY, tf) for p in values])
    np.testing.assert_allclose(weights, formula(values, mode, DECAY, tf), rtol=5e-6, atol=1e-6)


@pytest.mark.parametrize("mode", [MODES.RMSProp, MODES.CenteredRMSProp], ids=str)
def test_a_variable_momentum_may_pass_through_zero(mode: Any) -> None:
    values = [Values(lr=0.02, wd=0.1, mm=0.0 if i % 2 == 0 else 0.9) for i in range(STEPS)]
    weights = weights_of([p.optimizer(mode, DECAY, tf=True) for p in values])
    np.testing.assert_allclose(weights, formula(values, mode, DECAY, True, variable=True), rtol=5e-6, atol=1e-6)


TORCH: dict[str, tuple[Any, Callable[[Any, Any, Values], Any]]] = {
    "Adagrad": (MODES.AdaGrad, lambda torch, w, p: torch.optim.Adagrad([w], p.lr, 0, p.wd, 0, p.eps)),
    "RMSprop": (MODES.RMSProp, lambda torch, w, p: torch.optim.RMSprop([w], p.lr, p.a, p.eps, p.wd, p.mm)),
    "centered": (
        MODES.CenteredRMSProp,
        lambda torch, w, p: torch.optim.RMSprop([w], p.lr, p.a, p.eps, p.wd, p.mm, True),
    ),
    "Adadelta": (MODES.AdaDelta, lambda torch, w, p: torch.optim.Adadelta([w], p.lr, p.a, p.eps, p.wd)),
}


@pytest.mark.torch
@pytest.mark.parametrize("name", TORCH)
def test_pytorch_agrees(name: str) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed; scripts/test --with-torch adds it")
    torch.set_num_threads(1)
    mode, make = TORCH[name]
    values = Values(wd=0.1, mm=0.5 if mode in (MODES.RMSProp, MODES.CenteredRMSProp) else 0.0)
    w = torch.nn.Parameter(torch.tensor(FIRST))
    theirs, expected = make(torch, w, values), []
    for data in gradients(STEPS):
        theirs.zero_grad()
        (w * torch.tensor(data[0])).sum().backward()
        theirs.step()
        expected.append(w.detach().numpy().copy())
    weights = weights_of([values.optimizer(mode, L2)] * STEPS)
    np.testing.assert_allclose(weights, expected, rtol=5e-6, atol=1e-6)


@pytest.mark.parametrize(
    ("mode", "momentum", "want"),
    [
        (MODES.AdaGrad, (0.0, True), {"Accl1___"}),
        (MODES.RMSProp, (0.0, False), {"Accl1___", "Accl3___"}),
        (MODES.CenteredRMSProp, (0.0, True), {"Accl1___", "Accl2___"}),
        (MODES.AdaDelta, (0.9, True), {"Accl1___", "Accl2___", "Accl3___"}),
    ],
)
def test_states_have_their_names(mode: Any, momentum: Any, want: set[str]) -> None:
    builder = popart.Builder()
    w = builder.addInitializedInputTensor(FIRST)
    loss = builder.aiGraphcore.identityloss([w])
    session = train(builder, popart.DataFlow(1, [loss]), loss, popart.Adaptive({"defaultMomentum": momentum}, mode))
    assert {id.removesuffix(w) for id in session.getAllTensorIds() if id.startswith("Accl")} == want


@pytest.mark.parametrize("dtype", [popart.DataType.FLOAT, popart.DataType.FLOAT16], ids=str)
@pytest.mark.parametrize(("tf", "first"), [(True, 1.0), (False, 0.0)])
def test_the_mean_of_squares_starts_at_one_only_in_the_variant_of_tensorflow(
    tf: bool, first: float, dtype: popart.DataType
) -> None:
    builder = popart.Builder()
    w = builder.addInitializedInputTensor(FIRST)
    loss = builder.aiGraphcore.identityloss([w])
    values = {"defaultMomentum": (0.5, True)}
    optimizer = popart.Adaptive(values, MODES.CenteredRMSProp, accl1_type=dtype, rmsprop_tf_variant=tf)
    session = train(builder, popart.DataFlow(1, [loss]), loss, optimizer)
    session.weightsToHost()
    states = {
        n: np.full(FIRST.shape, 9, np.float16 if n == 1 and "16" in dtype.name else np.float32) for n in (1, 2, 3)
    }
    session.readWeights(popart.PyWeightsIO({f"Accl{n}___{w}": value for n, value in states.items()}))
    assert [set(value.flat) for value in states.values()] == [{first}, {0.0}, {0.0}]
