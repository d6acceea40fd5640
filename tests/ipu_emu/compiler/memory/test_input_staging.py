"""Input staging: no bit and no position differs, the buffering depth is kept, and the modelled clock prices it."""

from __future__ import annotations

import threading
import time
from typing import Any

import numpy as np
import pytest

from ipu_emu import popart
from ipu_emu.hardware import System
from ipu_emu.hostio import Feed
from ipu_emu.program.clock import CostCategory, ModelledMachine, Pricing, timeline
from ipu_emu.program.instructions import HostLoad, RemoteLoad, leaves
from ipu_emu.program.overlapped_loops import OverlappedLoop
from tests.ipu_emu.engine.test_io_loop import JUST_IN_TIME, OFF_CHIP, TILES, Model
from tests.ipu_emu.helpers.pipelined_models import PIPELINE, Tower
from tests.ipu_emu.helpers.sessions import device, options


def results(model: Model, bps: int, steps: int = 3, **values: Any) -> list[Any]:
    """All results of some steps of a model with two inputs."""
    session = model.session(bps, numIOTiles=0, **values)
    lead = (2, bps, values.get("A", 1), values.get("R", 1))
    stepio = popart.PyStepIO(model.data(*lead), session.initAnchorArrays())
    stepio.enableRuntimeAsserts(False)
    outputs = []
    for _ in range(steps):
        session.run(stepio)
        outputs += [cursor.flat.copy() for cursor in stepio.outputs.values()]
    return outputs


def plain_model(returns: str = "All") -> Model:
    return Model(JUST_IN_TIME, tiles=TILES, returns=returns)


@pytest.mark.parametrize("depth", [2, 3, 7])
@pytest.mark.parametrize(("bps", "factor", "replicas"), [(1, 1, 1), (4, 1, 2), (2, 3, 1), (3, 2, 2)])
def test_no_bit_differs(depth: int, bps: int, factor: int, replicas: int) -> None:
    values = {"A": factor, "R": replicas}
    plain = results(plain_model(), bps, **values)
    staged = results(plain_model(), bps, defaultBufferingDepth=depth, **values)
    for output, other in zip(plain, staged, strict=True):
        np.testing.assert_array_equal(output, other)


@pytest.mark.parametrize(
    "values",
    [
        {"weightTensorLocationSettings": OFF_CHIP, "activationTensorLocationSettings": OFF_CHIP},
        {"autoRecomputation": popart.RecomputationType.RecomputeAll},
        {"bufferingDepthMap": {"input/1": 1}},
    ],
)
@pytest.mark.parametrize("returns", ["All", "Final", "Sum"])
def test_no_bit_differs_with_other_options(values: dict[str, Any], returns: str) -> None:
    plain = results(plain_model(returns), 2, A=2)
    staged = results(plain_model(returns), 2, A=2, **{"defaultBufferingDepth": 3, **values})
    for output, other in zip(plain, staged, strict=True):
        np.testing.assert_array_equal(output, other)


def test_the_program_and_the_plan_tell_it() -> None:
    model = plain_model()
    session = model.session(2, numIOTiles=0, A=2, defaultBufferingDepth=3, bufferingDepthMap={model.labels: 5})
    executable = session.executable
    loads = {leaf.tensor: leaf for leaf in leaves(executable.program) if isinstance(leaf, HostLoad)}
    assert {id: load.ahead for id, load in loads.items()} == {model.x: 2, model.labels: 4}
    assert f"HostLoad {model.x} (ahead, into Streaming Memory), up to 2 micro-batches" in str(executable)
    brought = [leaf.op.inputs[0] for leaf in leaves(executable.program) if isinstance(leaf, RemoteLoad)]
    assert set(brought) == {model.x, model.labels}
    assert executable.plan.placements[model.x].places == 3
    # Tensors begin at multiples of 64 bytes: [4, 8] FLOAT and [4] INT32.
    assert executable.plan.streaming_bytes_of(0) == 3 * 128 + 5 * 64
    assert session.engine.streaming_nbytes_of(0) == executable.plan.streaming_bytes_of(0)


@pytest.mark.parametrize("values", [{"enablePrefetchDatastreams": False}, {"defaultBufferingDepth": 1}])
def test_without_a_depth_nothing_is_staged(values: dict[str, Any]) -> None:
    session = plain_model().session(2, **{"numIOTiles": 0, "defaultBufferingDepth": 4, **values})
    assert session.executable.plan.streaming_bytes_of(0) == 0


@pytest.mark.parametrize("depth", [0, -1, 1.5, True])
def test_depths_are_numbers(depth: Any) -> None:
    with pytest.raises(popart.popart_exception, match=f"depth of input is {depth!r}; give a number of micro-batches"):
        plain_model().session(1, numIOTiles=0, bufferingDepthMap={"input": depth})


def test_streaming_memory_is_the_budget() -> None:
    with pytest.raises(popart.popart_exception, match=r"Streaming Memory.*fewer micro-batches"):
        plain_model().session(1, numIOTiles=0, defaultBufferingDepth=10**9)


def doubling(depth: int, batches: int = 8) -> tuple[str, Any]:
    """A session that returns x + x."""
    builder = popart.Builder()
    x = builder.addInputTensor(popart.TensorInfo("FLOAT", [64]))
    flow = popart.DataFlow(batches, {builder.aiOnnx.add([x, x]): popart.AnchorReturnType("All")})
    opts = options(defaultBufferingDepth=depth)
    session = popart.InferenceSession(builder.getModelProto(), flow, device(opts), userOptions=opts)
    session.prepareDevice()
    return x, session


@pytest.mark.parametrize("depth", [2, 4])
def test_callbacks_are_called_at_most_the_depth_ahead(depth: int) -> None:
    """While an output is taken, the thread continues until exactly all buffers are full."""
    _, session = doubling(depth)
    callers: list[str] = []
    taken: list[int] = []
    data, out = np.arange(8 * 64, dtype=np.float32).reshape(8, 64), np.zeros((8, 64), np.float32)

    def give(id: str, prefetch: bool) -> Any:
        callers.append(threading.current_thread().name)
        assert len(callers) <= len(taken) + depth
        return data[len(callers) - 1]

    def take(id: str) -> Any:
        taken.append(len(callers))
        return out[len(taken) - 1]

    session.run(popart.PyStepIOCallback(give, lambda id: None, take, lambda id: None))
    np.testing.assert_array_equal(out, 2 * data)
    assert callers == ["MainThread", *["host-io-0"] * 7]


def test_a_callback_that_fails_ends_the_step_and_not_the_session() -> None:
    _, session = doubling(4)
    calls = 0

    def give(id: str, prefetch: bool) -> Any:
        nonlocal calls
        calls += 1
        if calls == 5:
            raise OSError("disk full")
        return np.full(64, calls, np.float32)

    out = np.zeros((8, 64), np.float32)
    with pytest.raises(OSError, match="disk full"):
        session.run(popart.PyStepIOCallback(give, lambda id: None, lambda id: out[0], lambda id: None))
    data = np.random.default_rng(0).standard_normal((8, 64)).astype(np.float32)
    anchors = session.initAnchorArrays()
    session.run(popart.PyStepIO({"input": data}, anchors))
    np.testing.assert_array_equal(*anchors.values(), 2 * data)


@pytest.mark.parametrize(("batches", "workers"), [(1, 1), (3, 2), (3, 0), (8, 1)])
def test_a_feed_stages_its_next_step(batches: int, workers: int) -> None:
    """Data, order, positions and the end are those of a feed without staging."""
    x, session = doubling(4, batches)
    data = np.arange(64 * 40, dtype=np.float32).reshape(40, 64)
    anchors = session.initAnchorArrays()
    (out,) = anchors.values()
    with Feed({x: data}, batches_per_step=batches, workers=workers) as feed:
        stepio = popart.FeedStepIO(feed, anchors)
        for step in range(40 // batches):
            session.run(stepio)
            np.testing.assert_array_equal(out.reshape(-1, 64), 2 * data[step * batches : (step + 1) * batches])
            assert feed.position == step + 1
            time.sleep(0.01 if step < 3 else 0)  # so that the next step is ready
        with pytest.raises(popart.popart_exception, match=f"has delivered all of its {40 // batches} steps"):
            session.run(stepio)


def test_staged_inputs_are_used() -> None:
    """All of these small steps are in one slot of the feed, so all but the first are ready."""
    x, session = doubling(4, 2)
    data = np.arange(64 * 40, dtype=np.float32).reshape(40, 64)
    anchors = session.initAnchorArrays()
    (out,) = anchors.values()
    (loop,) = session.engine.parts
    there = []
    with Feed({x: data}, batches_per_step=2, workers=1) as feed:
        stepio = popart.FeedStepIO(feed, anchors)
        for step in range(10):
            session.run(stepio)
            there.append(loop.staging.there)
            np.testing.assert_array_equal(out, 2 * data[2 * step : 2 * step + 2])
    assert there == [0, *[2] * 9]


def test_other_data_discard_the_staged_inputs() -> None:
    x, session = doubling(4, 2)
    data = np.arange(64 * 40, dtype=np.float32).reshape(40, 64)
    anchors = session.initAnchorArrays()
    (out,) = anchors.values()
    other = -np.ones((2, 64), np.float32)
    with Feed({x: data}, batches_per_step=2, workers=1) as feed:
        stepio = popart.FeedStepIO(feed, anchors)
        expected = 0
        for turn in range(6):
            time.sleep(0.005)
            session.run(stepio)
            np.testing.assert_array_equal(out, 2 * data[expected : expected + 2])
            expected += 2
            if turn % 3 == 1:
                session.run(popart.PyStepIO({x: other}, anchors))
                np.testing.assert_array_equal(out, 2 * other)
            if turn % 3 == 2:
                np.testing.assert_array_equal(next(feed)[x], data[expected : expected + 2])
                expected += 2


@pytest.mark.parametrize("rate", [1e5, 1e15])
@pytest.mark.parametrize(("batches", "factor"), [(1, 1), (4, 1), (2, 3)])
def test_the_clock_counts_the_longer_of_both(rate: float, batches: int, factor: int) -> None:
    """A step computes and loads from Streaming Memory while the host stores as many micro-batches there."""
    model = plain_model("Final")
    executable = model.session(batches, numIOTiles=0, A=factor, defaultBufferingDepth=3).executable
    loop = OverlappedLoop.of(executable.program[0], executable.plan)
    assert loop is not None
    assert loop.staged
    machine = ModelledMachine(System.pod(4), host=rate)
    pricing, segment = Pricing(executable, machine), timeline(executable, machine)

    def seconds(parts: Any) -> float:
        return sum(pricing.of(leaf).seconds for leaf in parts)

    filling = loop.total * seconds(loop.loads)
    assert segment.by_category()[CostCategory.PREFETCH] == pytest.approx(filling)
    shown = loop.total * (seconds(loop.work) + seconds(loop.stores)) + batches * seconds(loop.after)
    shown += seconds(executable.program[1:])
    if rate > 1e10:
        assert segment.seconds == pytest.approx(shown)
    else:
        assert filling < segment.seconds < filling + shown
    assert segment.by_category()[CostCategory.STREAMING] > 0


@pytest.mark.parametrize("schedule", ["popart", "grouped", "interleaved", "sequential"])
@pytest.mark.parametrize("recompute", [False, True])
def test_no_bit_differs_in_a_pipeline(schedule: str, recompute: bool) -> None:
    """The stashes of inputs are in Streaming Memory, to which the host writes while the IPUs compute."""
    values: dict[str, Any] = {**PIPELINE, "pipelineSchedule": schedule, "A": 8, "R": 2}
    if recompute:
        values["autoRecomputation"] = popart.RecomputationType.Pipeline
    tower, runs, prefetched = Tower(2), [], []
    random = np.random.default_rng(0)
    x = random.standard_normal((2, 8, 2, 6, 8)).astype(np.float32)
    labels = random.integers(0, 8, (2, 8, 2, 6)).astype(np.int32)
    for depth in (1, 4):
        session = tower.session(bps=2, defaultBufferingDepth=depth, **values)
        anchors = session.initAnchorArrays()
        for _ in range(2):
            session.run(popart.PyStepIO({tower.x: x, tower.labels: labels}, anchors))
        weights = {name: np.empty_like(value) for name, value in tower.weights.items()}
        session.weightsToHost()
        session.readWeights(popart.PyWeightsIO(weights))
        runs.append([anchors[tower.loss], *weights.values()])
        prefetched.append(session.modelledSeconds()["prefetch into Streaming Memory"])
        plan = session.executable.plan
        assert all((plan.streaming_bytes_of(ipu) > 0) is (depth > 1) for ipu in (0, 1))
    for array, other in zip(*runs, strict=True):
        np.testing.assert_array_equal(array, other)
    assert prefetched[0] == 0 < prefetched[1]
