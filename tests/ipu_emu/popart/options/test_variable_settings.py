"""Variables that differ between groups of replicas: data in, training inside the group, and data out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from ipu_emu import popart
from tests.ipu_emu.helpers.sessions import device, options
from tests.ipu_emu.helpers.threaded_instances import Instance, on_instances, session_on

T, MODE = popart.CommGroupType, popart.VariableRetrievalMode
N = 4
DATA = np.random.default_rng(0).standard_normal((N, 3)).astype(np.float32)


def members(settings: Any) -> list[list[int]]:
    """Section 9.1 of the reference, written out for four replicas."""
    kind = settings.getCommGroupType() if settings.isUsingCommGroup() else "stride"
    key = (kind, settings.getGroupSize(), settings.getStride() or None)
    return {
        (T.All, 0, None): [[0, 1, 2, 3]],
        (T.Ungrouped, 0, None): [[0], [1], [2], [3]],
        (T.Consecutive, 2, None): [[0, 1], [2, 3]],
        (T.Consecutive, 4, None): [[0, 1, 2, 3]],
        (T.Orthogonal, 2, None): [[0, 2], [1, 3]],
        ("stride", 2, 2): [[0, 2], [1, 3]],
        ("stride", 2, 1): [[0, 1], [2, 3]],
    }[key]


SETTINGS = {
    "default": popart.VariableSettings(),
    "ungrouped": popart.VariableSettings(popart.CommGroup(T.Ungrouped, 0)),
    "consecutive": popart.VariableSettings(popart.CommGroup(T.Consecutive, 2)),
    "one group": popart.VariableSettings(popart.CommGroup(T.Consecutive, 4)),
    "orthogonal": popart.VariableSettings(popart.CommGroup(T.Orthogonal, 2)),
    "stride": popart.VariableSettings(groupSize=2, stride=np.int64(2), mode=MODE.OnePerGroup),
    "all replicas": popart.VariableSettings(MODE.AllReplicas),
    "all replicas, consecutive": popart.VariableSettings(popart.CommGroup(T.Consecutive, 2), MODE.AllReplicas),
    "all replicas, stride": popart.VariableSettings(2, 2, MODE.AllReplicas),
}


class Grouped:
    """loss = sum(x * w) with w of the given settings, so that the gradient of a replica is its x."""

    def __init__(self, settings: Any) -> None:
        self.groups = members(settings)
        count = len(self.groups)
        self.first = np.random.default_rng(1).standard_normal((count, 3)).astype(np.float32)
        self.builder = popart.Builder()
        self.builder.embedReplicationFactor(N)
        self.x = self.builder.addInputTensor("FLOAT", [3])
        array = self.first if count > 1 else self.first[0]
        self.w = self.builder.addInitializedInputTensor(array, settings, "w")
        self.other = self.builder.addInitializedInputTensor(np.zeros(3, np.float32), "shared")
        product = self.builder.aiOnnx.mul([self.x, self.builder.aiOnnx.add([self.w, self.other])])
        self.loss = self.builder.aiGraphcore.identityloss([product], popart.ReductionType.Sum)
        self.optimizer = popart.SGD({"defaultLearningRate": (0.5, True), "defaultMomentum": (0.9, True)})

    @property
    def model(self) -> tuple[Any, ...]:
        flow = popart.DataFlow(1, {self.w: popart.AnchorReturnType("Final")})
        return self.builder.getModelProto(), flow, self.loss, self.optimizer

    def session(self, opts: Any = None) -> Any:
        opts = opts or options(R=N)
        session = popart.TrainingSession(*self.model, device(opts), userOptions=opts)
        session.prepareDevice()
        session.weightsFromHost()
        return session

    def step(self, session: Any, data: np.ndarray = DATA) -> np.ndarray:
        anchors = session.initAnchorArrays()
        session.run(popart.PyStepIO({self.x: data}, anchors))
        return np.array(anchors[self.w])

    def trained(self) -> np.ndarray:
        """The weight of every group after one step."""
        return np.array([self.first[g] - 0.5 * DATA[group].sum(axis=0) for g, group in enumerate(self.groups)])

    def per_replica(self, values: np.ndarray) -> np.ndarray:
        return np.array([values[next(g for g, group in enumerate(self.groups) if r in group)] for r in range(N)])


@pytest.mark.parametrize("name", SETTINGS)
def test_gradients_are_reduced_inside_their_group(name: str) -> None:
    model = Grouped(SETTINGS[name])
    session = model.session()
    np.testing.assert_allclose(model.step(session), model.per_replica(model.trained()), rtol=1e-5, atol=1e-6)
    shared = np.zeros(3, np.float32)
    session.weightsToHost()
    session.readWeights(popart.PyWeightsIO({model.other: shared}))
    np.testing.assert_allclose(shared, -0.5 * DATA.sum(axis=0), rtol=1e-5)


@pytest.mark.parametrize("name", SETTINGS)
def test_read_weights_have_an_axis_of_groups_or_replicas(name: str) -> None:
    settings = SETTINGS[name]
    model = Grouped(settings)
    session = model.session()
    model.step(session)
    everything = settings.getRetrievalMode() is MODE.AllReplicas
    want = model.per_replica(model.trained()) if everything else model.trained()
    weights = np.zeros(settings.shapeOnHost([3], N), np.float32)
    assert weights.shape == (want.shape if len(want) > 1 else (3,))
    session.weightsToHost()
    session.readWeights(popart.PyWeightsIO({model.w: weights}))
    np.testing.assert_allclose(weights, want.reshape(weights.shape), rtol=1e-5, atol=1e-6)
    session.writeWeights(popart.PyWeightsIO({model.w: 2 * weights}))
    after = model.step(session, np.zeros((N, 3), np.float32))
    momentum = 0.9 * (model.per_replica(model.first) - model.per_replica(model.trained()))
    np.testing.assert_allclose(after, 2 * model.per_replica(model.trained()) - momentum, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["consecutive", "stride", "all replicas, consecutive"])
def test_a_saved_model_keeps_one_value_per_group(tmp_path: Path, name: str) -> None:
    model, file = Grouped(SETTINGS[name]), str(tmp_path / "model.onnx")
    session = model.session()
    model.step(session)
    session.modelToHost(file)
    saved = {proto.name: numpy_helper.to_array(proto) for proto in onnx.load(file).graph.initializer}
    np.testing.assert_allclose(saved["w"], model.trained(), rtol=1e-5, atol=1e-6)
    assert saved["Accl___w"].shape == (2, 3)
    again = model.session()
    again.resetHostWeights(file)
    again.weightsFromHost()
    np.testing.assert_array_equal(model.step(again), model.step(session))


@pytest.mark.parametrize("counts", [(4,), (2, 2), (1, 3), (1, 1, 1, 1)])
@pytest.mark.parametrize("name", SETTINGS)
def test_groups_reach_over_instances(name: str, counts: tuple[int, ...]) -> None:
    model = Grouped(SETTINGS[name])

    def work(instance: Instance) -> tuple[np.ndarray, np.ndarray]:
        opts = instance.configure(options())
        session = session_on(instance, popart.TrainingSession, *model.model, userOptions=opts)
        session.prepareDevice()
        session.weightsFromHost()
        own = DATA[instance.offset : instance.offset + instance.local]
        after = model.step(session, np.ascontiguousarray(own)).reshape(instance.local, 3)
        weights = np.zeros(SETTINGS[name].shapeOnHost([3], N), np.float32)
        session.weightsToHost()
        session.readWeights(popart.PyWeightsIO({model.w: weights}))
        return after, weights

    reference = model.session()
    want = model.step(reference)
    results = on_instances(counts, work)
    np.testing.assert_array_equal(np.concatenate([after for after, _ in results]), want)
    read = np.zeros(SETTINGS[name].shapeOnHost([3], N), np.float32)
    reference.weightsToHost()
    reference.readWeights(popart.PyWeightsIO({model.w: read}))
    for _, weights in results:
        np.testing.assert_array_equal(weights, read)


def test_the_optimiser_of_groups_keeps_a_state_per_group() -> None:
    model = Grouped(SETTINGS["consecutive"])
    model.optimizer = popart.Adam({"defaultLearningRate": (0.1, True)}, popart.AdamMode.Lamb)
    session = model.session()
    model.step(session)
    state, count = np.zeros((2, 3), np.float32), np.zeros((), np.float32)
    session.weightsToHost()
    session.readWeights(popart.PyWeightsIO({"Accl1___w": state, "Step___w": count}))
    np.testing.assert_allclose(state, 0.1 * np.array([DATA[g].sum(axis=0) for g in model.groups]), rtol=1e-5)
    assert count == 1


def test_questions_about_groups() -> None:
    settings = popart.VariableSettings(popart.CommGroup(T.Orthogonal, 3))
    group = settings.getReplicaGrouping(12)
    assert (group.stride, group.size, settings.getGroupCount(12), settings.getRealGroupSize(12)) == (4, 3, 4, 3)
    assert group.members(1) == [1, 5, 9]
    assert settings.groups(6) == [[0, 2, 4], [1, 3, 5]]
    assert settings.numReplicasReturningVariable(12) == 4
    assert popart.VariableSettings(MODE.AllReplicas).numReplicasReturningVariable(12) == 12


@pytest.mark.parametrize(
    ("settings", "first", "stride", "real", "groups"),
    [
        ((popart.CommGroup(),), [0, 0, 0], 0, 8, 1),
        ((popart.CommGroup(T.All, 1),), [0, 0, 0], 0, 8, 8),
        ((popart.CommGroup(T.Consecutive, 2),), [0, 2, 4], 0, 2, 4),
        ((popart.CommGroup(T.Orthogonal, 2),), [0, 1, 2], 0, 2, 4),
        ((popart.CommGroup(T.Orthogonal, 1),), [0, 1, 2], 0, 1, 8),
        ((popart.CommGroup(T.Ungrouped, 3),), [0, 1, 2], 0, 1, 8),
        ((2, 2, MODE.OnePerGroup), [0, 1, 4], 2, 2, 4),
        ((3, 1, MODE.OnePerGroup), [0, 1, 2], 1, 1, 8),
    ],
)
def test_groups_by_their_definition(settings: Any, first: Any, stride: int, real: int, groups: int) -> None:
    settings_made = popart.VariableSettings(*settings)
    assert [settings_made.getGroupRepresentative(group) for group in range(3)] == first
    assert (settings_made.getStride(), settings_made.getRealGroupSize(8), settings_made.getGroupCount(8)) == (
        stride,
        real,
        groups,
    )
    if real != 8:
        assert [members[0] for members in settings_made.groups(8)][:3] == first
    assert sorted(replica for members in settings_made.groups(8) for replica in members) == list(range(8))


def test_forms_of_the_constructor() -> None:
    both = popart.VariableSettings(sharedVariableDomain_=popart.CommGroup(), retrievalMode_=MODE.AllReplicas)
    assert both.getCommGroupType() is T.All
    assert both.getRetrievalMode() is MODE.AllReplicas
    with pytest.raises(TypeError, match=r"VariableSettings\(\): incompatible constructor arguments"):
        popart.VariableSettings(2, 3)
    with pytest.raises(popart.popart_internal_exception, match=r"^VariableSettings had 1 errors!$"):
        popart.VariableSettings(popart.CommGroup(T.Consecutive, 0))
    with pytest.raises(popart.popart_internal_exception, match="has no CommGroup"):
        popart.VariableSettings(1, 2, MODE.OnePerGroup).getSharedVariableDomain()


def test_errors() -> None:
    with pytest.raises(popart.popart_exception, match="AllReduceReplicas is not supported"):
        popart.VariableSettings(MODE.AllReduceReplicas)
    model = Grouped(SETTINGS["consecutive"])
    with pytest.raises(popart.popart_exception) as error:
        model.session(options(R=8))
    assert error.value.args[0] == (
        'Return mismatch with possibly appended outer dimension (2) of Tensor: "w". should match numGroups: 4'
    )
    with pytest.raises(popart.popart_exception, match=r"do not fit the replicas: .*3.* is not divisible by 2"):
        model.session(options(R=3))
    session = model.session()
    with pytest.raises(popart.popart_runtime_error, match=r"3 elements.*6"):
        session.readWeights(popart.PyWeightsIO({"w": np.zeros(3, np.float32)}))
    with pytest.raises(popart.popart_runtime_error, match="No weight or optimiser state 'z'"):
        session.readWeights(popart.PyWeightsIO({"z": np.zeros(3, np.float32)}))
