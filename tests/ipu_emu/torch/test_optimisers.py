"""Optimisers of PyTorch: weights and states equal those of an eager loop, and others are refused by name."""

import copy
import inspect

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed; scripts/test --with-torch adds it")
from torch import nn, optim  # noqa: E402

import ipu_emu.torch  # noqa: E402

pytestmark = pytest.mark.torch

SOURCE = torch.Generator().manual_seed(0)
X, Y = torch.randn(64, 6, generator=SOURCE), torch.randint(0, 3, (64,), generator=SOURCE)

#: Optimisers and their arguments, each of which is set off its default in one row.
OPTIMISERS = [
    ("SGD", {"lr": 0.1}),
    ("SGD", {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.01, "dampening": 0.5}),
    ("SGD", {"lr": 0.01, "momentum": 0.9, "nesterov": True, "maximize": True}),
    ("Adam", {"lr": 0.01}),
    ("Adam", {"lr": 0.01, "betas": (0.8, 0.99), "eps": 1e-3, "weight_decay": 0.1, "maximize": True}),
    ("Adam", {"lr": 0.01, "weight_decay": 0.1, "decoupled_weight_decay": True}),
    ("AdamW", {"lr": 0.01, "betas": (0.8, 0.99), "eps": 1e-3, "weight_decay": 0.1, "maximize": True}),
    ("RMSprop", {"lr": 0.01, "eps": 1e-3, "weight_decay": 0.1, "maximize": True}),
    ("RMSprop", {"lr": 0.01, "momentum": 0.5, "centered": True, "alpha": 0.9}),
    ("Adagrad", {"lr": 0.05, "eps": 1e-3, "weight_decay": 0.1, "initial_accumulator_value": 0.1, "maximize": True}),
    ("Adadelta", {"lr": 0.5, "rho": 0.8, "eps": 1e-3, "weight_decay": 0.1, "maximize": True}),
    ("Adamax", {"lr": 0.01, "betas": (0.8, 0.99), "eps": 1e-7, "weight_decay": 0.1, "maximize": True}),
]
REFUSED = {"amsgrad": "Only non-amsgrad", "lr_decay": "lr_decay of Adagrad is not supported"}
SAID = ("foreach", "fused", "capturable", "differentiable")


def network():
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))


def eager(module, optimiser, epochs=1):
    for _ in range(epochs):
        for start in range(0, len(X), 16):
            optimiser.zero_grad()
            nn.functional.cross_entropy(module(X[start : start + 16]), Y[start : start + 16]).backward()
            optimiser.step()


def train(module, optimiser, **settings):
    settings = {"batch_size": 16, "shuffle": False, "progress": False} | settings
    ipu_emu.torch.train(module, nn.functional.cross_entropy, optimiser, (X, Y), **settings)


def test_every_argument_of_the_optimisers_has_a_row():
    for kind in {kind for kind, _ in OPTIMISERS}:
        rows = {name for other, settings in OPTIMISERS if other == kind for name in settings}
        assert set(inspect.signature(getattr(optim, kind)).parameters) - rows - REFUSED.keys() == {
            "params",
            *SAID,
        } & set(inspect.signature(getattr(optim, kind)).parameters)


@pytest.mark.parametrize("argument", SAID)
def test_arguments_without_effect_are_named(argument):
    module = network()
    adam = optim.Adam(module.parameters(), 0.01, **{argument: True})
    with pytest.warns(UserWarning, match=f"The argument of the optimiser {argument} has no effect"):
        train(module, adam)


@pytest.mark.parametrize(("kind", "settings"), OPTIMISERS)
def test_weights_and_states_equal_those_of_an_eager_loop_and_are_continued(kind, settings):
    """Two calls of train are one eager loop of two epochs."""
    module = network()
    other = copy.deepcopy(module)
    optimisers = [getattr(optim, kind)(trained.parameters(), **settings) for trained in (module, other)]
    for _ in range(2):
        train(module, optimisers[0])
        eager(other, optimisers[1])
        torch.testing.assert_close(dict(module.state_dict()), dict(other.state_dict()), rtol=1e-5, atol=1e-5)
        states = [optimiser.state_dict()["state"] for optimiser in optimisers]
        for number, expected in states[1].items():
            for key, value in expected.items():
                if value is not None:
                    torch.testing.assert_close(states[0][number][key], value, rtol=1e-4, atol=1e-6)


def test_a_state_that_was_loaded_is_used():
    module, other = network(), network()
    first = optim.Adam(other.parameters(), 0.01)
    eager(other, first)
    module.load_state_dict(other.state_dict())
    second = optim.Adam(module.parameters(), 0.01)
    second.load_state_dict(copy.deepcopy(first.state_dict()))
    train(module, second)
    eager(other, first)
    torch.testing.assert_close(dict(module.state_dict()), dict(other.state_dict()), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", ["NAdam", "RAdam", "ASGD", "Rprop"])
def test_others_are_refused_by_name(kind):
    module = network()
    with pytest.raises(
        TypeError, match=f"the optimiser is a {kind}, .*; use one of SGD, .*Adagrad, Adadelta, Adamax"
    ):
        train(module, getattr(optim, kind)(module.parameters()))


def hooked(optimiser, name):
    getattr(optimiser, name)(lambda optimiser, args, kwargs: None)
    return optimiser


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda p: optim.Adam(p, amsgrad=True), REFUSED["amsgrad"]),
        (lambda p: optim.Adagrad(p, lr_decay=0.1), REFUSED["lr_decay"]),
        (lambda p: hooked(optim.SGD(p, 0.1), "register_step_pre_hook"), "Hooks of an optimizer's step"),
        (lambda p: hooked(optim.Adam(p), "register_step_post_hook"), "Hooks of an optimizer's step"),
    ],
)
def test_arguments_that_are_not_computed_are_refused(make, message):
    module = network()
    with pytest.raises(ValueError, match=message):
        train(module, make(module.parameters()))


def test_a_mode_that_changes_after_an_epoch_is_refused():
    module = nn.Sequential(nn.Linear(6, 8), nn.Dropout(0.5), nn.Linear(8, 3))
    sgd = optim.SGD(module.parameters(), 0.1)
    with pytest.raises(ValueError, match=r"mode.*train\(\)"):
        train(module, sgd, epochs=2, after_epoch=lambda epoch, mean: module.eval())
    module.train()
    with pytest.raises(ValueError, match=r"1 of the module.*train\(\)"):
        train(module, sgd, epochs=2, after_epoch=lambda epoch, mean: module[1].eval())
    module.train()
    train(module, sgd, epochs=2, after_epoch=lambda epoch, mean: (module.eval(), module.train()))
