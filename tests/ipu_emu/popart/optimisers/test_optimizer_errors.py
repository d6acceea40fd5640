"""Errors of optimisers: invalid values, unknown keys, and optimisers that cannot replace another."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ipu_emu import popart
from tests.ipu_emu.helpers.sessions import infer, train

SGD, Adam, Adaptive = popart.SGD, popart.Adam, popart.Adaptive
ALL = {"SGD": SGD, "Adam": Adam, "Adaptive": Adaptive}

#: The name of a value in messages, its key, and the optimisers that refuse a negative one.
NEGATIVE = [
    ("weight decay", "defaultWeightDecay", ("SGD", "Adam", "Adaptive")),
    ("momentum", "defaultMomentum", ("SGD", "Adaptive")),
    ("dampening", "defaultDampening", ("SGD",)),
    ("beta1", "defaultBeta1", ("Adam",)),
    ("beta2", "defaultBeta2", ("Adam",)),
    ("alpha", "defaultAlpha", ("Adaptive",)),
]
KEYS = {
    "SGD": "defaultLearningRate, defaultWeightDecay, defaultMomentum, defaultDampening, defaultVelocityScaling, "
    "lossScaling, nesterov",
    "Adam": "defaultLearningRate, defaultWeightDecay, defaultBeta1, defaultBeta2, defaultEps, lossScaling, "
    "defaultMaxWeightNorm",
    "Adaptive": "defaultLearningRate, defaultAlpha, defaultMomentum, defaultEps, lossScaling, defaultWeightDecay",
}
SPECIFIC_KEYS = {
    "SGD": "learningRate, weightDecay, momentum, dampening, velocityScaling, nesterov",
    "Adam": "learningRate, weightDecay, beta1, beta2, eps, maxWeightNorm",
    "Adaptive": "learningRate, weightDecay, alpha, momentum, eps",
}


def raised(call: Any, *arguments: Any, **named: Any) -> str:
    with pytest.raises(popart.popart_exception) as error:
        call(*arguments, **named)
    return str(error.value.args[0])


@pytest.mark.parametrize("constant", [True, False])
@pytest.mark.parametrize(("called", "key", "name"), [(c, k, n) for c, k, names in NEGATIVE for n in names])
def test_a_negative_value(called: str, key: str, name: str, constant: bool) -> None:
    text = f"Negative {called} (-0.5) in {name}, bailing as this might be a user error"
    assert raised(ALL[name], {key: (-0.5, constant)}) == text


@pytest.mark.parametrize("name", ALL)
def test_learning_rates_and_loss_scalings(name: str) -> None:
    bail = f"in {name}, bailing as this might be a user error."
    assert raised(ALL[name], {"defaultLearningRate": -1}) == f"Negative learning rate (-1) {bail}"
    assert raised(ALL[name], {"defaultLearningRate": 0}) == f"Constant, zero learning rate {bail}"
    assert raised(ALL[name], {"lossScaling": 0}) == "Loss scaling cannot be 0"
    assert ALL[name]({"defaultLearningRate": (0, False)}).type_s() == name


@pytest.mark.parametrize("name", ALL)
def test_keys(name: str) -> None:
    text = f"Invalid {name} key, size, the allowed keys are ( {KEYS[name]} )"
    assert raised(ALL[name], {"size": 1}) == text
    text = f"Invalid key lossScaling in {name}::insertSpecific. Permitted keys are ( {SPECIFIC_KEYS[name]} )"
    assert raised(ALL[name]({}).insertSpecific, "w", {"lossScaling": 2}) == text


def test_values_of_one_kind_of_optimiser() -> None:
    text = "Non-positive velocity scaling (0) in SGD is not supported"
    assert raised(SGD, {"defaultVelocityScaling": 0}) == text
    nesterov = {"nesterov": True, "defaultMomentum": 0.5, "defaultDampening": 0.5}
    assert raised(SGD, nesterov) == "When enable nesterov momentum, dampening (0.5) in SGD shouled be zero"
    assert raised(Adam, {"defaultEps": 0}) == "Non-positive eps (0) in Adam is not supported"
    assert raised(Adaptive, {"defaultEps": -1e-3}) == "Non-positive eps (-0.001) in Adaptive is not supported"
    for mode in (popart.AdaptiveMode.AdaGrad, popart.AdaptiveMode.AdaDelta):
        assert raised(Adaptive, {}, mode, rmsprop_tf_variant=True) == (
            "The rmspropTFVariant parameter is only valid with the RMSProp and CenteredRMSProp optimizers."
        )


def test_specific_values_are_checked_too() -> None:
    text = "Negative momentum (-2) in SGD, bailing as this might be a user error"
    assert raised(SGD({}).insertSpecific, "w", {"momentum": -2}) == text


#: The name of a value in messages, its key, and two numbers for it.
REPLACED = [
    ("SGD", "loss scaling", "lossScaling", 2, 3),
    ("SGD", "learning rates", "defaultLearningRate", 0.1, 0.2),
    ("SGD", "weight decays", "defaultWeightDecay", 0.1, 0.2),
    ("SGD", "momentums", "defaultMomentum", 0.1, 0.2),
    ("SGD", "velocity scalings", "defaultVelocityScaling", 1, 2),
    ("SGD", "nesterov", "nesterov", False, True),
    ("Adam", "learning rates", "defaultLearningRate", 0.1, 0.2),
    ("Adam", "weight decays", "defaultWeightDecay", 0.1, 0.2),
    ("Adam", "beta2", "defaultBeta2", 0.5, 0.6),
    ("Adam", "eps", "defaultEps", 1e-3, 1e-4),
    ("Adaptive", "learning rates", "defaultLearningRate", 0.1, 0.2),
    ("Adaptive", "momentums", "defaultMomentum", 0.5, 0.6),
]


def replacing(old: Any, new: Any) -> str:
    """The error of a session that was compiled with ``old`` about ``new``."""
    builder = popart.Builder()
    loss = builder.aiGraphcore.identityloss([builder.addInitializedInputTensor(np.ones(2, np.float32))])
    return raised(train(builder, popart.DataFlow(1, [loss]), loss, old).updateOptimizerFromHost, new)


@pytest.mark.parametrize(("name", "called", "key", "value", "other"), REPLACED)
def test_values_that_cannot_change(name: str, called: str, key: str, value: float, other: float) -> None:
    kind = ALL[name]
    text = f"Problem with {called}. Values are constant but do not match."
    assert replacing(kind({key: (value, True)}), kind({key: (other, True)})) == text
    text = f"Problem with {called}. Can not replace a constant value with a non constant value."
    assert replacing(kind({key: (value, True)}), kind({key: (value, False)})) == text
    assert replacing(kind({key: (value, False)}), kind({key: (value, True)})) == text


def test_optimisers_that_cannot_take_over() -> None:
    text = "Can not replace optimizer of type Adam with new optimizer of type SGD"
    assert replacing(Adam({}), SGD({})) == text
    text = "Can not replace optimizer of type Adam, Adam, Decay with new optimizer of type Adam, Lamb, Decay"
    assert replacing(Adam({}), Adam({}, popart.AdamMode.Lamb)) == text
    clips = [popart.ClipNormSettings.clipAllWeights(1.0)]
    assert replacing(SGD({}), SGD({}, clip_norm_settings=clips)) == "Clip norm settings do not match."
    special = Adam({})
    special.insertSpecific("w", {"beta1": 0.5})
    assert replacing(Adam({}), special).startswith("Problem with learning rates. Weights have specific values")


@pytest.mark.parametrize("wrong", [None, 0.1, SGD, {"defaultLearningRate": 0.1}])
def test_anything_but_an_optimiser_is_refused(wrong: Any) -> None:
    text = f"Training needs an optimizer, found {wrong!r}; give an SGD, Adam or Adaptive"
    assert replacing(SGD({}), wrong) == text
    builder = popart.Builder()
    y = builder.aiOnnx.relu([builder.addInputTensor("FLOAT", [2])])
    loss = builder.aiGraphcore.identityloss([y])
    assert raised(train, builder, popart.DataFlow(1), loss, wrong) == text


@pytest.mark.parametrize("wrong", [None, 1, "y", {"y": popart.AnchorReturnType("All")}])
def test_other_values_than_a_data_flow_are_refused(wrong: Any) -> None:
    text = f"A session needs a DataFlow, found {wrong!r}; give DataFlow(batches, anchors)"
    builder = popart.Builder()
    y = builder.aiOnnx.relu([builder.addInputTensor("FLOAT", [2])])
    assert raised(infer, builder, wrong, {}) == text
    assert raised(train, builder, wrong, builder.aiGraphcore.identityloss([y]), SGD({})) == text


@pytest.mark.parametrize(
    ("name", "key", "getter"),
    [
        ("SGD", "learningRate", "learningRates"),
        ("SGD", "weightDecay", "weightDecays"),
        ("SGD", "momentum", "momentums"),
        ("SGD", "dampening", "dampenings"),
        ("SGD", "velocityScaling", "velocityScalings"),
        ("Adam", "beta1", "beta1s"),
        ("Adam", "beta2", "beta2s"),
        ("Adam", "eps", "epsilons"),
        ("Adam", "maxWeightNorm", "maxWeightNorms"),
        ("Adaptive", "alpha", "alphas"),
        ("Adaptive", "momentum", "momentums"),
        ("Adaptive", "eps", "epsilons"),
    ],
)
def test_values_of_an_optimizer_can_be_read(name: str, key: str, getter: str) -> None:
    optimizer = ALL[name]({f"default{key[0].upper()}{key[1:]}": (0.25, False)})
    optimizer.insertSpecific("w", {key: (0.5, True)})
    values = getattr(optimizer, getter)()
    assert (values.getDefault().val(), values.getDefault().isConst()) == (0.25, False)
    assert (values.get("w").val(), values.get("w").isConst()) == (0.5, True)
    assert values.get("v").val() == 0.25
    assert values.hasSpecific("w")
    assert not values.hasSpecific("v")
