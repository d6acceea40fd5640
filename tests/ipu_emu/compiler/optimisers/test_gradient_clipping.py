"""Gradient clipping: all gradients of a group are scaled by max norm / max(max norm, norm)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ipu_emu import popart
from tests.ipu_emu.helpers.sessions import options, train

SIZES = {"a": 3, "b": 4, "c": 2}
DATA = {
    name: np.random.default_rng(i).standard_normal((2, size)).astype(np.float32)
    for i, (name, size) in enumerate(SIZES.items())
}


def after_one_step(groups: list[Any], **values: Any) -> dict[str, np.ndarray]:
    """Weights that start from 0 with learning rate 1: minus the clipped sum of gradients of two micro-batches."""
    builder = popart.Builder()
    ids = {name: builder.addInputTensor("FLOAT", [size]) for name, size in SIZES.items()}
    parts = []
    for name, size in SIZES.items():
        w = builder.addInitializedInputTensor(np.zeros(size, np.float32), name)
        product = builder.aiOnnx.mul([ids[name], w])
        parts.append(builder.aiGraphcore.identityloss([product], popart.ReductionType.Sum))
    loss = builder.aiOnnx.add([builder.aiOnnx.add(parts[:2]), parts[2]])
    optimizer = popart.SGD(
        {"defaultLearningRate": (1.0, False), "lossScaling": (values.pop("ls", 1.0), False)}, groups
    )
    session = train(builder, popart.DataFlow(1, [loss]), loss, optimizer, options(**values))
    session.run(popart.PyStepIO({ids[name]: DATA[name] for name in SIZES}, session.initAnchorArrays()))
    weights = {name: np.zeros(size, np.float32) for name, size in SIZES.items()}
    session.weightsToHost()
    session.readWeights(popart.PyWeightsIO(weights))
    return weights


def clipped(groups: list[tuple[list[str], float]], divisor: float = 1.0) -> dict[str, np.ndarray]:
    gradients = {name: data.sum(axis=0, dtype=np.float64) / divisor for name, data in DATA.items()}
    for names, limit in groups:
        norm = np.sqrt(sum((gradients[name] ** 2).sum() for name in names))
        for name in names:
            gradients[name] = gradients[name] * limit / max(limit, norm)
    return {name: -gradient for name, gradient in gradients.items()}


MEAN = {"accumulationAndReplicationReductionType": popart.ReductionType.Mean}


@pytest.mark.parametrize(
    ("values", "divisor"), [({"A": 2}, 1), ({"R": 2}, 1), ({"A": 2, "ls": 32.0}, 1), ({"R": 2, **MEAN}, 2)]
)
@pytest.mark.parametrize("limit", [0.5, 100.0])
def test_groups_are_clipped_by_their_own_norm(values: dict[str, Any], divisor: float, limit: float) -> None:
    groups = [popart.ClipNormSettings.clipWeights(["a", "b"], limit), popart.ClipNormSettings.clipWeights(["c"], 0.1)]
    weights, want = after_one_step(groups, **values), clipped([(["a", "b"], limit), (["c"], 0.1)], divisor)
    for name in SIZES:
        np.testing.assert_allclose(weights[name], want[name], rtol=1e-6)


def test_all_weights() -> None:
    weights = after_one_step([popart.ClipNormSettings.clipAllWeights(0.25)], A=2)
    total = np.sqrt(sum((value.astype(np.float64) ** 2).sum() for value in weights.values()))
    np.testing.assert_allclose(total, 0.25, rtol=1e-6)
    for name, want in clipped([(list(SIZES), 0.25)]).items():
        np.testing.assert_allclose(weights[name], want, rtol=1e-6)


def test_a_weight_that_is_not_there() -> None:
    with pytest.raises(popart.popart_exception, match="name the weight 'z', but there is no such tensor"):
        after_one_step([popart.ClipNormSettings.clipWeights(["z"], 1.0)], A=2)


def test_a_group_can_be_left_by_no_replacement() -> None:
    builder = popart.Builder()
    loss = builder.aiGraphcore.identityloss([builder.addInitializedInputTensor(np.ones(2, np.float32))])
    session = train(builder, popart.DataFlow(1, [loss]), loss, popart.ConstSGD(0.1))
    with pytest.raises(popart.popart_exception) as error:
        session.updateOptimizerFromHost(
            popart.ConstSGD(0.1, clip_norm_settings=[popart.ClipNormSettings.clipAllWeights(1.0)])
        )
    assert error.value.args[0] == "Clip norm settings do not match."


GROUPS = {
    (popart.CommGroupType.Consecutive, 2): [[0, 1], [2, 3]],
    (popart.CommGroupType.Ungrouped, 0): [[0], [1], [2], [3]],
}


@pytest.mark.parametrize("group", GROUPS, ids=str)
def test_a_norm_over_weights_that_replicas_share_differently_is_that_of_all_values(group: Any) -> None:
    """Otherwise each replica would clip the shared ``w`` by a different factor, and the copies would diverge."""
    members = GROUPS[group]
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [3])
    w = builder.addInitializedInputTensor(np.zeros(3, np.float32), "w")
    settings = popart.VariableSettings(popart.CommGroup(*group))
    g = builder.addInitializedInputTensor(np.zeros((len(members), 3), np.float32), settings, "g")
    product = builder.aiOnnx.mul([x, builder.aiOnnx.add([w, g])])
    loss = builder.aiGraphcore.identityloss([product], popart.ReductionType.Sum)
    optimizer = popart.SGD({"defaultLearningRate": (1.0, False)}, [popart.ClipNormSettings.clipAllWeights(0.5)])
    flow = popart.DataFlow(1, [w, g], popart.AnchorReturnType("Final"))
    session = train(builder, flow, loss, optimizer, options(R=4))
    data, anchors = np.random.default_rng(3).standard_normal((4, 3)).astype(np.float32), session.initAnchorArrays()
    session.run(popart.PyStepIO({x: data}, anchors))

    of_groups = np.stack([data[replicas].sum(axis=0, dtype=np.float64) for replicas in members])
    total = data.sum(axis=0, dtype=np.float64)
    factor = 0.5 / np.sqrt((total**2).sum() + (of_groups**2).sum())
    np.testing.assert_allclose(anchors[w], np.tile(-total * factor, (4, 1)), rtol=1e-5)
    for number, replicas in enumerate(members):
        np.testing.assert_allclose(
            anchors[g][replicas], np.tile(-of_groups[number] * factor, (len(replicas), 1)), rtol=1e-5
        )


def test_settings_of_a_group() -> None:
    settings = popart.ClipNormSettings.clipWeights(["a", "b"], 2)
    assert (settings.weightIds, settings.maxNorm) == (["a", "b"], 2.0)
    settings.weightIds, settings.maxNorm = [], 3.0
    assert settings == popart.ClipNormSettings.clipAllWeights(3.0)
    with pytest.warns(DeprecationWarning, match="constructor has been deprecated"):
        assert popart.ClipNormSettings([], 3.0) == settings
    settings.maxNorm = 0.0
    with pytest.raises(popart.popart_exception, match="Maximum norm 0 is not positive"):
        popart.SGD({}, [settings])
