"""Replicated tensor sharding: no bit differs, the host sees whole values, and each replica holds its shard."""

from __future__ import annotations

import warnings
from functools import cache
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from ipu_emu import models, popart
from ipu_emu.graph import Role, Shards
from ipu_emu.ops.communication.collective_ops import GATHER_SHARDS
from ipu_emu.program.instructions import ShardCollectives, leaves, of_type
from tests.ipu_emu.helpers.pipelined_models import KEPT, PIPELINE, Tower
from tests.ipu_emu.helpers.sessions import variables
from tests.ipu_emu.helpers.threaded_instances import Instance, on_instances, session_on

ON = popart.ReplicatedTensorSharding.On
ADAM = popart.Adam({"defaultLearningRate": (0.01, False), "defaultWeightDecay": (0.1, True)})
OPTIMIZERS: dict[str, Any] = {
    "momentum": popart.SGD({"defaultLearningRate": (0.1, False), "defaultMomentum": (0.9, True)}),
    "separate momentum": popart.SGD(
        {"defaultLearningRate": (0.1, True), "defaultMomentum": (0.9, True)},
        accumulatorAndMomentum=popart.SGDAccumulatorAndMomentum.Separate,
    ),
    "Adam": ADAM,
    "Lamb": popart.Adam(
        {"defaultLearningRate": (0.01, True), "defaultWeightDecay": (0.1, True)}, popart.AdamMode.Lamb
    ),
    "AdaMax": popart.Adam({"defaultLearningRate": (0.01, True)}, mode=popart.AdamMode.AdaMax),
    "RMSProp": popart.Adaptive({"defaultLearningRate": (0.01, True), "defaultMomentum": (0.9, True)}),
}


def sharded(group: Any = None) -> popart.TensorLocationSettings:
    location = popart.TensorLocation(popart.TensorStorage.OnChip, ON, *([group] if group else []))
    return popart.TensorLocationSettings(location, 0, 0)


STATES = {"optimizerStateTensorLocationSettings": sharded()}
WEIGHTS = {**STATES, "weightTensorLocationSettings": sharded()}
PAIRS = {"optimizerStateTensorLocationSettings": sharded(popart.CommGroup(popart.CommGroupType.Consecutive, 2))}
VARIANTS = {"states": STATES, "states and weights": WEIGHTS, "states between pairs": PAIRS}


def assert_same(values: dict[str, np.ndarray], want: dict[str, np.ndarray]) -> None:
    assert values.keys() == want.keys()
    for id in want:
        np.testing.assert_array_equal(values[id], want[id], err_msg=id)


def trained(**values: Any) -> dict[str, np.ndarray]:
    return Tower(2).trained(steps=3, **values)


@cache
def plain(name: str, R: int, A: int) -> dict[str, np.ndarray]:
    return trained(optimizer=OPTIMIZERS[name], R=R, A=A)


#: Two optimisers that are updated in one op and in two, in every way; the others in one.
CASES = [(name, A, variant) for name in ("Adam", "Lamb") for A in (1, 2) for variant in VARIANTS]
CASES += [(name, 2, "states and weights") for name in OPTIMIZERS if name not in ("Adam", "Lamb")]


@pytest.mark.parametrize(("name", "A", "variant"), CASES)
def test_no_bit_differs(name: str, A: int, variant: str) -> None:
    assert_same(trained(optimizer=OPTIMIZERS[name], R=4, A=A, **VARIANTS[variant]), plain(name, 4, A))


@pytest.mark.parametrize("variant", VARIANTS)
def test_pipelines_share_too(variant: str) -> None:
    values = {"optimizer": ADAM, "R": 2, **PIPELINE}
    if variant != "states between pairs":
        values |= VARIANTS[variant]
    assert_same(trained(A=4, **values), plain("Adam", 2, 4))


@pytest.mark.parametrize("shared", [WEIGHTS, KEPT["all shared and off chip"]], ids=["on chip", "off chip"])
def test_recomputation_gathers_weights_again(shared: dict[str, Any]) -> None:
    tower = Tower(2)
    again = popart.RecomputationType.RecomputeAll
    session = tower.session(optimizer=ADAM, R=2, A=4, autoRecomputation=again, **PIPELINE, **shared)
    shards = of_type(leaves(session.executable.program), ShardCollectives)
    gathered = [id for leaf in shards for op in leaf.ops if op.type == GATHER_SHARDS for id in op.outputs]
    placed = session.executable.plan.placements
    assert not [id for id in gathered if placed[id].places > 1]
    assert sum("w0" in id for id in gathered) == 2  # forward, and backward
    assert_same(tower.run(session, 3, A=4, R=2), plain("Adam", 2, 4))


SPECIAL: dict[str, dict[str, Any]] = {
    "a limit of norms": {
        "optimizer": popart.SGD(
            {"defaultLearningRate": (0.1, True), "defaultMomentum": (0.9, True)},
            clip_norm_settings=[popart.ClipNormSettings.clipAllWeights(0.1)],
        )
    },
    "halves": {"dtype": np.float16},
    "a running mean": {
        "accumulationAndReplicationReductionType": popart.ReductionType.Mean,
        "meanAccumulationAndReplicationReductionStrategy": popart.MeanReductionStrategy.Running,
    },
    "small buckets": {"gclOptions": {"maximum_reduce_many_buffer_size": "64"}},
    "stochastic rounding": {"dtype": np.float16, "enableStochasticRounding": True, "optimizer": ADAM},
    "Lamb of halves": {"dtype": np.float16, "optimizer": OPTIMIZERS["Lamb"]},
}


@pytest.mark.parametrize("name", SPECIAL)
def test_special_updates_are_shared(name: str) -> None:
    values = {"A": 2, "R": 2, **SPECIAL[name]}
    dtype = values.pop("dtype", np.float32)
    assert_same(Tower(2, dtype=dtype).trained(**values, **WEIGHTS), Tower(2, dtype=dtype).trained(**values))


# Instances


def on(instance: Instance, settings: dict[str, Any], model: Any) -> Any:
    opts = instance.configure(popart.SessionOptions())
    for name, value in settings.items():
        setattr(opts, name, value)
    proto, loss = model
    flow = popart.DataFlow(1, [loss])
    session = session_on(instance, popart.TrainingSession, proto, flow, loss, ADAM, userOptions=opts)
    session.prepareDevice()
    session.weightsFromHost()
    return session


def values_of(session: Any, tower: Tower) -> dict[str, np.ndarray]:
    arrays = {id: np.zeros_like(value) for id, value in tower.weights.items()}
    states = {f"{prefix}{id}": value for id, value in arrays.items() for prefix in ("Accl1___", "Accl2___")}
    arrays |= {id: np.zeros_like(value) for id, value in states.items() if session.hasInfo(id)}
    session.weightsToHost()
    session.readWeights(popart.PyWeightsIO(arrays))
    return arrays


PLACES = [((2, 2), WEIGHTS), ((1, 1, 1, 1), WEIGHTS), ((3, 1), WEIGHTS), ((1, 1, 1, 1), PAIRS), ((3, 1), PAIRS)]


@pytest.mark.parametrize(("counts", "shared"), PLACES)
def test_the_host_sees_whole_values_wherever_shards_are(counts: tuple[int, ...], shared: dict[str, Any]) -> None:
    def work(settings: dict[str, Any]) -> Any:
        def run(instance: Instance) -> dict[str, np.ndarray]:
            tower = Tower(1, plain=True)
            session = on(instance, settings, (tower.builder.getModelProto(), tower.loss))
            data = tower.data(0, 1, 1, instance.total)
            mine = slice(instance.offset, instance.offset + instance.local)
            local = {id: np.ascontiguousarray(array[:, :, mine]) for id, array in data.items()}
            session.run(popart.PyStepIO(local, session.initAnchorArrays()))
            arrays = values_of(session, tower)
            session.close()
            return arrays

        return run

    want = on_instances((4,), work({}))[0]
    for arrays in on_instances(counts, work(shared)):
        assert_same(arrays, want)


def test_a_process_holds_a_quarter_of_the_states_of_four_replicas() -> None:
    model = models.gpt2(batch=1, layers=2, width=64, heads=2, length=8, context=32, vocabulary=64)

    def held(settings: dict[str, Any]) -> Any:
        def run(instance: Instance) -> int:
            session = on(instance, settings, (model.proto, model.loss))
            graph = session.executable.graph
            states = [session.engine.view(tensor.id).nbytes for tensor in graph.with_role(Role.STATE)]
            session.close()
            return sum(states)

        return run

    unsharded, shared = (on_instances((1, 1, 1, 1), held(settings))[0] for settings in ({}, STATES))
    assert shared <= 0.27 * unsharded


# Whole values on the host


def test_models_and_states_are_saved_whole(tmp_path: Any) -> None:
    tower = Tower(1)
    protos = []
    for settings in ({}, WEIGHTS):
        session = tower.session(R=2, optimizer=ADAM, **settings)
        tower.run(session, 2, R=2)
        session.modelToHost(str(tmp_path / "model"))
        protos.append(onnx.load(str(tmp_path / "model")))
        assert session.getInfo("w0").shape() == [8, 8]
    plain, shared = (
        {initializer.name: numpy_helper.to_array(initializer) for initializer in proto.graph.initializer}
        for proto in protos
    )
    assert "Accl1___w0" in plain
    assert_same(shared, plain)


def test_training_continues_from_a_saved_model() -> None:
    tower = Tower(1)
    session = tower.session(R=2, optimizer=ADAM, **WEIGHTS)
    tower.run(session, 2, R=2)
    state = variables(session)
    other = tower.session(R=2, optimizer=ADAM, **WEIGHTS)
    other.writeWeights(popart.PyWeightsIO(state))
    other.weightsFromHost()
    other.engine.steps = session.engine.steps
    assert_same(tower.run(other, 2, R=2), tower.run(session, 2, R=2))


# Shards


@pytest.mark.parametrize("domain", [(1, 4), (1, 2), (2, 2), (1, 1)])
@pytest.mark.parametrize("shape", [(), (1,), (3, 5), (64, 3)])
def test_shards_make_the_whole(shape: tuple[int, ...], domain: tuple[int, int]) -> None:
    value = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    shards = Shards.of(shape, 4, domain, None)
    rows = np.stack([shards.cut(value, replica, 4) for replica in range(4)])
    assert rows.shape == (4, shards.size)
    np.testing.assert_array_equal(shards.join(rows), value)
    assert shards.size % 16 == 0
    assert shards.size < value.size / domain[1] + 16


def test_shards_of_groups_keep_the_groups_apart() -> None:
    value = np.arange(2 * 20, dtype=np.float32).reshape(2, 20)
    shards = Shards.of((20,), 4, (2, 2), (2, 2))
    rows = np.stack([shards.cut(value, replica, 4) for replica in range(4)])
    np.testing.assert_array_equal(rows[0], value[0, :16])
    np.testing.assert_array_equal(rows[3, :4], value[1, 16:])
    np.testing.assert_array_equal(shards.join(rows), value)


# Refused


def settings(*arguments: Any) -> dict[str, Any]:
    return {"optimizerStateTensorLocationSettings": sharded(popart.CommGroup(*arguments))}


ERRORS: dict[str, tuple[dict[str, Any], str]] = {
    "orthogonal": (settings(popart.CommGroupType.Orthogonal, 2), "only All and Consecutive are supported"),
    "three of four": (settings(popart.CommGroupType.Consecutive, 3), "use a size of at least 2 that divides the 4"),
    "the weight alone": ({"weightTensorLocationSettings": sharded()}, "those of the weight, if it is sharded"),
}


@pytest.mark.parametrize("name", ERRORS)
def test_variables_that_cannot_be_sharded_are_refused(name: str) -> None:
    values, text = ERRORS[name]
    with pytest.raises(popart.popart_exception, match=text):
        Tower(1).session(**{"R": 4, "optimizer": ADAM, **values})


def test_sharding_is_dropped_where_it_has_no_meaning() -> None:
    small = popart.TensorLocationSettings(popart.TensorLocation(popart.TensorStorage.OnChip, ON))
    for values in ({"R": 1, **STATES}, {"R": 2, "optimizerStateTensorLocationSettings": small}):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            session = Tower(1).session(optimizer=ADAM, **values)
        assert not any(tensor.shards for tensor in session.executable.graph.tensors.values())
        assert any("there is one replica" in str(warning.message) for warning in caught) == (values["R"] == 1)
