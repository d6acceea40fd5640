"""Offloading: off-chip tensors are in Streaming Memory and nowhere else, and no bit differs."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

from ipu_emu import models, popart
from ipu_emu.graph import Role
from ipu_emu.hardware import GENERATIONS
from ipu_emu.popart import RecomputationType
from ipu_emu.program.memory_plan import is_off_chip
from tests.ipu_emu.helpers.pipelined_models import PIPELINE, Tower
from tests.ipu_emu.helpers.sessions import options

OFF, ON = popart.TensorStorage.OffChip, popart.TensorStorage.OnChip
ADAM = popart.Adam({"defaultLearningRate": (0.01, False), "defaultWeightDecay": (0.1, True)})


def off_chip(sharded: bool = False) -> popart.TensorLocationSettings:
    sharding = popart.ReplicatedTensorSharding.On if sharded else popart.ReplicatedTensorSharding.Off
    return popart.TensorLocationSettings(popart.TensorLocation(OFF, sharding), 0, 0)


STATES = {"optimizerStateTensorLocationSettings": off_chip()}
WEIGHTS = {"weightTensorLocationSettings": off_chip()}
ACCUMULATORS = {"accumulatorTensorLocationSettings": off_chip()}
ACTIVATIONS = {"activationTensorLocationSettings": off_chip()}
SHARED = {
    "optimizerStateTensorLocationSettings": off_chip(sharded=True),
    "weightTensorLocationSettings": off_chip(sharded=True),
}
VARIANTS = {
    "states": STATES,
    "weights": WEIGHTS,
    "activations": ACTIVATIONS,
    "accumulators": ACCUMULATORS,
    "all": STATES | WEIGHTS | ACTIVATIONS | ACCUMULATORS,
    "all, shared": SHARED | ACTIVATIONS | ACCUMULATORS,
    "all, made again": STATES | WEIGHTS | ACTIVATIONS | {"autoRecomputation": RecomputationType.Standard},
}


def assert_same(values: dict[str, np.ndarray], want: dict[str, np.ndarray]) -> None:
    assert values.keys() == want.keys()
    for id in want:
        np.testing.assert_array_equal(values[id], want[id], err_msg=id)


@cache
def plain(A: int, R: int, dtype: Any = np.float32) -> dict[str, np.ndarray]:
    return Tower(2, dtype=dtype).trained(A=A, R=R, optimizer=ADAM)


@pytest.mark.parametrize("A", [1, 2])
@pytest.mark.parametrize("variant", VARIANTS)
def test_no_bit_differs(variant: str, A: int) -> None:
    assert_same(Tower(2).trained(A=A, R=2, optimizer=ADAM, **VARIANTS[variant]), plain(A, 2))


@pytest.mark.parametrize("variant", VARIANTS)
def test_pipelines_offload_what_they_keep(variant: str) -> None:
    assert_same(Tower(2).trained(A=4, R=2, optimizer=ADAM, **PIPELINE, **VARIANTS[variant]), plain(4, 2))


def test_halves_and_stochastic_rounding() -> None:
    values = {"A": 2, "optimizer": ADAM, "enableStochasticRounding": True}
    want = Tower(2, dtype=np.float16).trained(**values)
    assert_same(Tower(2, dtype=np.float16).trained(**values, **VARIANTS["all"]), want)


def test_inference_streams_its_weights() -> None:
    tower = Tower(2)
    results = []
    for values in ({}, WEIGHTS):
        session = tower.session(training=False, anchors={tower.y: popart.AnchorReturnType("All")}, **values)
        anchors = session.initAnchorArrays()
        session.run(popart.PyStepIO(tower.data(0, 1, 1, 1), anchors))
        results.append(anchors[tower.y].copy())
    np.testing.assert_array_equal(*results)


@pytest.mark.parametrize("how", [{}, PIPELINE])
@pytest.mark.parametrize("special", ["", "mean", "clipped"])
def test_sums_of_one_replica_live_off_chip(special: str, how: dict[str, Any]) -> None:
    values = {"A": 4, "steps": 2, "optimizer": ADAM}
    if special == "mean":
        values["accumulationAndReplicationReductionType"] = popart.ReductionType.Mean
        values["meanAccumulationAndReplicationReductionStrategy"] = popart.MeanReductionStrategy.Running
    if special == "clipped":
        clips = [popart.ClipNormSettings.clipAllWeights(0.1)]
        values["optimizer"] = popart.SGD({"defaultLearningRate": (0.1, True)}, clips)
    assert_same(Tower(2).trained(**values, **how, **ACCUMULATORS), Tower(2).trained(**values))
    values.pop("steps")
    session = Tower(2).session(**values, **how, **ACCUMULATORS)
    placed = session.executable.plan.placements
    assert placed["Accum___w0"].region == "streaming"
    assert not any(region.startswith("bucket") for region in session.executable.plan.sizes)


@pytest.mark.parametrize("how", [{}, PIPELINE])
@pytest.mark.parametrize("bucket", ["", "1", "1000000"])
def test_sums_of_several_replicas_are_loaded_to_be_reduced(bucket: str, how: dict[str, Any]) -> None:
    options = {"gclOptions": {"maximum_reduce_many_buffer_size": bucket}} if bucket else {}
    values = {"A": 4, "R": 2, "optimizer": ADAM, **how}
    near, far = (Tower(2).session(**values, **more) for more in ({}, ACCUMULATORS | options))
    plan = far.executable.plan
    assert plan.placements["Accum___w0"].region == "streaming"
    rooms = [
        sum(size for region, size in p.sizes.items() if region.startswith("bucket"))
        for p in (near.executable.plan, plan)
    ]
    assert rooms[1] == rooms[0] if bucket == "1000000" else rooms[1] <= 0.6 * rooms[0]
    assert far.engine.nbytes_of(0) <= 2 * plan.bytes_of(0)
    assert_same(Tower(2).trained(**values, **ACCUMULATORS, **options), plain(4, 2))


@pytest.mark.parametrize("mean", [popart.MeanReductionStrategy.Post, popart.MeanReductionStrategy.Running])
def test_means_and_limits_of_norms_of_several_replicas(mean: Any) -> None:
    means = {
        "accumulationAndReplicationReductionType": popart.ReductionType.Mean,
        "meanAccumulationAndReplicationReductionStrategy": mean,
    }
    clips = [popart.ClipNormSettings.clipAllWeights(0.1)]
    clipped = popart.SGD({"defaultLearningRate": (0.1, True), "defaultMomentum": (0.9, True)}, clips)
    for optimizer in (ADAM, clipped):
        values = {"A": 2, "R": 2, "optimizer": optimizer, **means}
        assert_same(Tower(2).trained(**values, **ACCUMULATORS), Tower(2).trained(**values))


# Locations


def regions(session: Any, *roles: Role) -> set[str]:
    placed = session.executable.plan.placements.values()
    return {p.region.partition(":")[0] for p in placed if p.tensor.role in roles and p.tensor.nelms > 1}


def test_variables_live_in_streaming_memory_and_visit_the_ipu() -> None:
    tower = Tower(2)
    plain, far = (tower.session(A=2, optimizer=ADAM, **values) for values in ({}, STATES | WEIGHTS))
    assert regions(plain, Role.WEIGHT, Role.STATE) == {"persistent"}
    assert regions(far, Role.WEIGHT, Role.STATE) == {"streaming"}
    nbytes = sum(t.nbytes for t in far.executable.graph.with_role(Role.WEIGHT, Role.STATE))
    assert far.engine.streaming_nbytes_of(0) == far.executable.plan.streaming_bytes_of(0) >= nbytes
    assert far.engine.nbytes_of(0) == far.executable.plan.bytes_of(0) < plain.executable.plan.bytes_of(0)
    listing = str(far.executable)
    for expected in ("RemoteLoad Loaded___w0 = ", "RemoteLoad Loaded___Accl1___w0 = ", "RemoteStore Stored___w0 = "):
        assert expected in listing


def phases(count: int, **values: Any) -> Any:
    """Layers of 64 x 64 in ``count`` execution phases, on two IPUs in turn."""
    builder = popart.Builder()
    x = y = builder.addInputTensor("FLOAT", [4, 64])
    for phase in range(count):
        with builder.executionPhase(phase):
            w = builder.addInitializedInputTensor(np.full((64, 64), 0.01 * phase, np.float32), f"w{phase}")
            y = builder.aiOnnx.tanh([builder.aiOnnx.matmul([y, w])])
    opts = options(virtualGraphMode=popart.VirtualGraphMode.ExecutionPhases, **values)
    opts.executionPhaseSettings.phases = count
    device = popart.DeviceManager().createIpuModelDevice({"numIPUs": 2, "tilesPerIPU": 1472})
    session = popart.InferenceSession(builder.getModelProto(), popart.DataFlow(1, [y]), device, userOptions=opts)
    session.prepareDevice()
    session.run(popart.PyStepIO({x: np.ones((4, 64), np.float32)}, anchors := session.initAnchorArrays()))
    return session.executable, anchors[y]


def test_execution_phases_stream_their_weights() -> None:
    """Each phase loads its weights; an IPU holds those of one phase at a time, regardless of their number."""
    (here, want), (far, results) = phases(8), phases(8, **WEIGHTS)
    np.testing.assert_array_equal(results, want)
    weight = 64 * 64 * 4
    for ipu in (0, 1):
        assert here.plan.bytes_of(ipu) > 4 * weight > 2 * weight > far.plan.bytes_of(ipu) > weight
        assert far.plan.streaming_bytes_of(ipu) == 4 * weight
    loads = [line.split()[-1] for line in str(far).splitlines() if "RemoteLoad Loaded" in line]
    # The load of the second phase's weight begins before the first phase loads its own.
    assert loads == [f"RemoteLoad(w{phase})" for phase in (1, 0, *range(2, 8))]


def transformer(**values: Any) -> Any:
    model = models.gpt2(batch=2, layers=8, width=32, heads=2, length=32, context=32, vocabulary=16)
    device, flow = (
        popart.DeviceManager().createIpuModelDevice({"tilesPerIPU": 1472}),
        popart.DataFlow(1, [model.loss]),
    )
    session = popart.TrainingSession(
        model.proto, flow, model.loss, popart.ConstSGD(0.1), device, userOptions=options(**values)
    )
    session.prepareDevice(loadEngine=False)
    return session.executable.plan


def test_activations_leave_the_ipu_between_the_passes() -> None:
    plain, far = transformer(), transformer(**ACTIVATIONS)
    assert far.sizes["transient"] < 0.4 * plain.sizes["transient"]
    assert far.sizes["streamed"] > 0.5 * plain.sizes["transient"]


def test_a_pipeline_keeps_its_stashes_in_streaming_memory() -> None:
    plan = Tower(3).session(A=6, **PIPELINE, **ACTIVATIONS).executable.plan
    for ipu in (0, 1):
        assert plan.streaming_bytes_of(ipu) > 0
    stashes = [p for p in plan.placements.values() if p.tensor.id.startswith("Remote___") and p.places > 1]
    assert stashes
    assert all(is_off_chip(stash.region) for stash in stashes)


@pytest.mark.parametrize(("smallest", "expected"), [(2, {"streaming"}), (65, {"persistent"})])
def test_small_tensors_are_kept_on_chip(smallest: int, expected: set[str]) -> None:
    settings = popart.TensorLocationSettings(popart.TensorLocation(OFF), smallest)
    session = Tower(1).session(optimizer=ADAM, optimizerStateTensorLocationSettings=settings)
    assert regions(session, Role.STATE) == expected


def test_single_tensors_and_ops_can_be_chosen() -> None:
    tower = Tower(1, plain=True)
    session = tower.session(
        optimizer=ADAM,
        optimizerStateTensorLocationSettings=off_chip(),
        tensorLocationSettingsOverride={"Accl1___w0": popart.TensorLocation(ON), "w0": popart.TensorLocation(OFF)},
    )
    placed = session.executable.plan.placements
    assert [placed[id].region for id in ("Accl1___w0", "Accl2___w0", "w0", "b0")] == [
        *("persistent", "streaming", "streaming", "persistent")
    ]


def test_the_builder_says_where_the_output_of_an_op_is_kept() -> None:
    is_stored = []
    for location in (ON, OFF):
        tower = Tower(1, plain=True)
        tower.builder.outputTensorLocation(tower.y, popart.TensorLocation(location))
        is_stored.append("RemoteStore" in str(tower.session().executable))
    assert is_stored == [False, True]


# Streaming Memory


def test_streaming_memory_can_be_a_file(tmp_path: Any) -> None:
    values = {"engineOptions": {"streamingMemory.folder": str(tmp_path)}, **VARIANTS["all"]}
    assert_same(Tower(2).trained(optimizer=ADAM, A=2, R=2, **values), plain(2, 2))
    assert not list(tmp_path.iterdir())
    with pytest.raises(popart.popart_exception, match=r"Cannot allocate .*: No such file or directory"):
        Tower(1).session(optimizer=ADAM, engineOptions={"streamingMemory.folder": str(tmp_path / "x")}, **STATES)


@pytest.mark.parametrize(
    ("version", "nbytes", "text"),
    [("ipu1", 0, "does not support remote memory"), ("ipu2", 10, "of Streaming Memory and has 10 B")],
)
def test_streaming_memory_has_an_end(version: str, nbytes: int, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(GENERATIONS, version, replace(GENERATIONS[version], streaming_memory=nbytes))
    tower = Tower(1)
    device = popart.DeviceManager().createIpuModelDevice({"ipuVersion": version, "tilesPerIPU": 1472})
    flow = popart.DataFlow(1, [tower.loss])
    session = popart.TrainingSession(
        tower.builder.getModelProto(), flow, tower.loss, ADAM, device, userOptions=options(**STATES)
    )
    with pytest.raises(popart.OutOfMemoryException, match=text):
        session.prepareDevice()
