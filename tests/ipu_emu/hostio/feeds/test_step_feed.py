"""Feeds and sessions: each run takes the next step; results equal those of arrays, for any spread of replicas."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ipu_emu import popart
from ipu_emu.errors import FeedError
from ipu_emu.hostio import DataMode, Feed, ReplicaRange
from ipu_emu.program.instructions import HostLoad, HostStore, leaves
from tests.ipu_emu.helpers.pipelined_models import PIPELINE, Tower
from tests.ipu_emu.helpers.sessions import device, options
from tests.ipu_emu.helpers.threaded_instances import Instance, on_instances, session_on

X = np.random.default_rng(0).standard_normal((50, 3)).astype(np.float32)


def doubled(bps: int, opts: Any, shape: tuple[int, ...] = (2, 3), kind: str = "FLOAT") -> tuple[str, str, Any]:
    """A session that returns x + x."""
    builder = popart.Builder()
    x = builder.addInputTensor(kind, list(shape))
    y = builder.aiOnnx.add([x, x])
    flow = popart.DataFlow(bps, {y: popart.AnchorReturnType("All")})
    session = popart.InferenceSession(builder.getModelProto(), flow, device(opts), userOptions=opts)
    session.prepareDevice()
    return x, y, session


@pytest.mark.parametrize(("workers", "processes"), [(0, None), (2, False), (2, True)])
@pytest.mark.parametrize("source", [X, list(X), (X,)])
def test_runs_take_one_step_each(workers: int, processes: bool | None, source: Any) -> None:
    x, y, session = doubled(2, options(R=2))
    anchors = session.initAnchorArrays()
    how: dict[str, Any] = {"workers": workers, "processes": processes, "replica_range": ReplicaRange(2, 0, 2)}
    with Feed(source, micro_batch=2, batches_per_step=2, epochs=2, **how) as feed:
        stepio = popart.FeedStepIO(feed, anchors, names=[x])
        for number in range(12):
            session.run(stepio)
            at = number % 6 * 8
            np.testing.assert_array_equal(anchors[y].reshape(8, 3), 2 * X[at : at + 8])
        with pytest.raises(FeedError, match="12 steps"):
            session.run(stepio)


def test_sizes_types_and_names_are_checked() -> None:
    x, _, session = doubled(1, options())
    anchors = session.initAnchorArrays()
    with pytest.raises(popart.popart_runtime_error, match="Expected 6, but received 3"):
        session.run(popart.FeedStepIO(Feed(X, micro_batch=1), anchors, names=[x]))
    with pytest.raises(popart.popart_runtime_error, match="Type discrepancy for tensor"):
        session.run(popart.FeedStepIO(Feed(X.astype(float), micro_batch=2), anchors, names=[x]))
    with pytest.raises(popart.popart_runtime_error, match=r"x, y.*names="):
        popart.FeedStepIO(Feed({"x": X, "y": X}), anchors, names=[x])
    with pytest.raises(popart.popart_runtime_error, match=r"one array.*names="):
        popart.FeedStepIO(Feed(X), anchors)


def test_labels_become_int32() -> None:
    x, y, session = doubled(1, options(), (2,), "INT32")
    anchors = session.initAnchorArrays()
    with pytest.warns(UserWarning, match="INT64 step data is converted to INT32"):
        session.run(popart.FeedStepIO(Feed([4, 5], micro_batch=2), anchors, names={"": x}))
    assert anchors[y].tolist() == [8, 10]


def trained(instance: Instance) -> list[Any]:
    """Losses and weights after an epoch of a linear model, with shuffled data."""
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [2, 3])
    w = builder.addInitializedInputTensor(np.ones((3, 1), np.float32))
    loss = builder.aiGraphcore.l1loss([builder.aiOnnx.matmul([x, w])], 1.0, popart.ReductionType.Mean)
    flow = popart.DataFlow(2, {loss: popart.AnchorReturnType("All")})
    opts = instance.configure(options(A=3))
    session = session_on(
        instance,
        popart.TrainingSession,
        builder.getModelProto(),
        flow,
        loss,
        popart.ConstSGD(0.1),
        userOptions=opts,
    )
    session.prepareDevice()
    session.weightsFromHost()
    anchors, losses = session.initAnchorArrays(), []
    replica_range = ReplicaRange(instance.local, instance.offset, instance.total)
    how: dict[str, Any] = {"batches_per_step": 2, "accumulation": 3, "replica_range": replica_range, "shuffle": True}
    with Feed({x: np.tile(X, (4, 1))}, micro_batch=2, epochs=2, workers=1, **how) as feed:
        stepio = popart.FeedStepIO(feed, anchors)
        for _ in range(2 * (feed.steps_per_epoch or 0)):
            session.run(stepio)
            losses.append(anchors[loss].reshape(2, 3, instance.local).copy())
    weights = {w: np.zeros((3, 1), np.float32)}
    session.weightsToHost()
    session.readWeights(popart.PyWeightsIO(weights))
    return [np.array(losses), weights[w]]


def test_training_is_bitwise_the_same_for_any_spread_of_replicas() -> None:
    ((losses, weights),) = on_instances((4,), trained)
    assert len(losses) == 8
    for counts in ((2, 2), (1, 3), (1, 1, 1, 1)):
        parts = on_instances(counts, trained)
        np.testing.assert_array_equal(np.concatenate([part[0] for part in parts], axis=-1), losses)
        for part in parts:
            np.testing.assert_array_equal(part[1], weights)


@pytest.mark.parametrize(
    "variable", [("IPU_EMU_DATA_MODE", "synthetic"), ("TF_POPLAR_FLAGS", "--use_synthetic_data")]
)
def test_synthetic_data_leave_outputs_alone(variable: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    x, y, session = doubled(1, options())
    anchors = session.initAnchorArrays()
    anchors[y][...] = 7
    monkeypatch.setenv(*variable)
    feed = Feed({x: X}, micro_batch=2, prepare=lambda sample: {x: sample[x]})
    assert feed.mode is DataMode.SYNTHETIC
    for _ in range(25):
        session.run(popart.FeedStepIO(feed, anchors))
    assert (anchors[y] == 7).all()
    with pytest.raises(FeedError, match="all of its 25 steps"):
        session.run(popart.FeedStepIO(feed, anchors))


@pytest.mark.parametrize("how", ["arrays", "callbacks", "feed"])
def test_synthetic_data_by_the_environment(monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    """Inputs are like the first real ones and stay on the device; outputs are not written; a feed advances."""
    monkeypatch.setenv("TF_POPLAR_FLAGS", "--use_synthetic_data")
    x, y, session = doubled(3, options(), (4,), "INT32")
    assert "Host" not in str(session.executable).replace("host", "")
    data, anchors = np.array([5, 5, 5, 7], np.int32), session.initAnchorArrays()
    anchors[y][:] = -1
    calls: list[str] = []

    def give(id: str, prefetch: bool) -> Any:
        calls.append(id)
        return data

    feed = Feed(data[None].repeat(9, 0), batches_per_step=3, workers=0)
    for _ in range(3):
        stepio = {
            "arrays": popart.PyStepIO({x: data}, anchors),
            "callbacks": popart.PyStepIOCallback(give, lambda id: None, lambda id: anchors[y][0], lambda id: None),
            "feed": popart.FeedStepIO(feed, anchors, names=[x]),
        }[how]
        if isinstance(stepio, popart.PyStepIO):
            stepio.enableRuntimeAsserts(False)
        session.run(stepio)
    assert (anchors[y] == -1).all()
    assert sorted(session.engine.read(y)) == [10, 10, 10, 14]
    assert len(calls) == (how == "callbacks")
    assert feed.position == (3 if how == "feed" else 0)


@pytest.mark.parametrize("how", ["arrays", "callbacks"])
def test_generated_data_are_asked_for_once(monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    monkeypatch.setenv("IPU_EMU_DATA_MODE", "generated")
    x, y, session = doubled(2, options(R=2), (4,))
    assert "HostLoad" in str(session.executable)
    anchors = session.initAnchorArrays()
    anchors[y][:] = -1
    calls: list[str] = []

    def give(id: str, prefetch: bool) -> Any:
        calls.append(id)
        return np.full(4, 9, np.float32)

    callbacks = popart.PyStepIOCallback(give, lambda id: None, lambda id: anchors[y][0, 0], lambda id: None)
    for _ in range(3):
        session.run(callbacks if how == "callbacks" else popart.PyStepIO({x: np.full(16, 9, np.float32)}, anchors))
    assert (anchors[y] == -1).all()
    generated = session.engine.read(y, 1)
    assert len(np.unique(generated)) == 4
    assert np.abs(generated).max() < 12
    assert len(calls) == (how == "callbacks")


@pytest.mark.parametrize("values", [{}, {"A": 6, **PIPELINE}])
def test_synthetic_programs_have_no_host_io(values: dict[str, Any]) -> None:
    tower = Tower(2, plain=True)
    session = tower.session(syntheticDataMode=popart.SyntheticDataMode.RandomNormal, **values)
    assert not [leaf for leaf in leaves(session.executable.program) if isinstance(leaf, HostLoad | HostStore)]
    assert session.modelledSeconds()["host I/O"] == 0
    for _ in range(2):
        session.run(popart.PyStepIO({}, {}))
    assert np.isfinite(session.engine.read(tower.loss)).all()


def test_without_a_device_only_the_host_works(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """For ``ipu-emu hostio``; otherwise a session refuses to run."""
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [4])
    y = builder.aiOnnx.add([x, x])
    offline = popart.DeviceManager().createOfflineIPUDevice({"numIPUs": 1})
    session = popart.InferenceSession(builder.getModelProto(), popart.DataFlow(2, [y]), offline)
    session.prepareDevice()
    stepio = popart.PyStepIO({x: np.arange(8, dtype=np.float32)}, session.initAnchorArrays())
    with pytest.raises(popart.popart_exception, match="Offline IPU device is not configured for execution"):
        session.run(stepio)
    monkeypatch.setenv("IPU_EMU_FEED_REPORTS", str(tmp_path))
    monkeypatch.setenv("IPU_EMU_FEED_STEPS", "5")
    for _ in range(3 + 5):
        session.run(stepio)
    with pytest.raises(SystemExit):
        session.run(stepio)
    (report,) = (json.loads(file.read_text()) for file in tmp_path.glob("*.json"))
    assert (report["steps"], report["samples"], report["bytes"]) == (5, 5 * 8, 5 * 32)
    np.testing.assert_array_equal(session.engine.view(x), [4, 5, 6, 7])
    assert not session.engine.view(y).any()
