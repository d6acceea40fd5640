"""I/O tiles: host I/O during compute changes no bit and no order, really overlaps, and is priced as such."""

from __future__ import annotations

import json
import threading
from typing import Any

import numpy as np
import pytest

from ipu_emu import popart
from ipu_emu.errors import EmulatorError
from ipu_emu.hardware import System
from ipu_emu.program.clock import CostCategory, ModelledMachine, Pricing, timeline
from ipu_emu.program.clock.timeline_files import timeline_trace
from ipu_emu.program.instructions import Counter, HostLoad, HostStore, Repeat
from ipu_emu.program.overlapped_loops import OverlappedLoop
from tests.ipu_emu.helpers.pipelined_models import PIPELINE, Tower
from tests.ipu_emu.helpers.sessions import device, options
from tests.ipu_emu.helpers.trace_events import checked_events

IO, TILES = popart.TileSet.IO, popart.TileSet.Compute
JUST_IN_TIME = popart.ExchangeStrategy.JustInTime
INNER, LOOPS = popart.ExchangeStrategy.OverlapInnerLoop, popart.ExchangeStrategy.OverlapLoops


class Model:
    """Softmax regression with dropout; ``labels``: the strategy of labels, ``strategy``: of all other tensors."""

    def __init__(self, strategy: Any, labels: Any = None, *, tiles: Any = IO, returns: str = "All") -> None:
        random = np.random.default_rng(0)
        self.builder = builder = popart.Builder()
        self.x = builder.addInputTensor(popart.TensorInfo("FLOAT", [4, 8]), popart.InputSettings(tiles, strategy))
        settings = popart.InputSettings(tiles, strategy if labels is None else labels)
        self.labels = builder.addInputTensor(popart.TensorInfo("INT32", [4]), settings)
        self.w = builder.addInitializedInputTensor(random.standard_normal((8, 5)).astype(np.float32))
        dropped = builder.aiOnnx.dropout([self.x], 1, 0.25)[0]
        p = builder.aiOnnx.softmax([builder.aiOnnx.matmul([dropped, self.w])])
        self.loss = builder.aiGraphcore.nllloss([p, self.labels])
        self.anchors = [self.loss, p, self.x, self.w, popart.reservedGradientPrefix() + self.w]
        self.returns = popart.AnchorReturnType(returns, tiles, strategy)

    def session(self, bps: int, **values: Any) -> Any:
        opts = options(**{"numIOTiles": 32, **values})
        flow = popart.DataFlow(bps, dict.fromkeys(self.anchors, self.returns))
        proto, sgd = self.builder.getModelProto(), popart.ConstSGD(0.1)
        session = popart.TrainingSession(proto, flow, self.loss, sgd, device(opts), userOptions=opts)
        session.prepareDevice()
        session.weightsFromHost()
        return session

    def data(self, *lead: int) -> dict[str, Any]:
        random = np.random.default_rng(1)
        x, labels = random.standard_normal((*lead, 4, 8)), random.integers(0, 5, (*lead, 4))
        return {self.x: x.astype(np.float32), self.labels: labels.astype(np.int32)}

    def run(self, bps: int, factor: int, replicas: int) -> list[Any]:
        """All results of two steps."""
        session = self.session(bps, A=factor, R=replicas)
        stepio = popart.PyStepIO(self.data(2, bps, factor, replicas), session.initAnchorArrays())
        stepio.enableRuntimeAsserts(False)
        results = []
        for _ in range(2):
            session.run(stepio)
            results += [cursor.flat.copy() for cursor in stepio.outputs.values()]
        return results


@pytest.mark.parametrize("strategies", [(INNER, None), (LOOPS, None), (LOOPS, JUST_IN_TIME), (INNER, LOOPS)])
@pytest.mark.parametrize(
    ("bps", "factor", "replicas", "returns"),
    [(1, 1, 1, "All"), (4, 1, 2, "All"), (2, 3, 1, "All"), (3, 2, 2, "All"), (2, 2, 1, "Final"), (2, 2, 1, "Sum")],
)
def test_no_bit_differs(strategies: Any, bps: int, factor: int, replicas: int, returns: str) -> None:
    plain = Model(JUST_IN_TIME, tiles=TILES, returns=returns).run(bps, factor, replicas)
    overlapped = Model(*strategies, returns=returns).run(bps, factor, replicas)
    for array, other in zip(plain, overlapped, strict=True):
        np.testing.assert_array_equal(array, other)


@pytest.mark.parametrize("strategy", [INNER, LOOPS])
def test_anchors_of_every_second_micro_batch(strategy: Any) -> None:
    results = []
    for kind, tiles in ((JUST_IN_TIME, TILES), (strategy, IO)):
        model = Model(kind, tiles=tiles)
        model.returns = popart.AnchorReturnType("EveryN", 2, tiles, kind)
        results.append(model.run(4, 3, 1))
    for array, other in zip(*results, strict=True):
        np.testing.assert_array_equal(array, other)


@pytest.mark.parametrize(("strategy", "count"), [(INNER, 4), (LOOPS, 5)])
def test_transfers_that_overlap_in_two_batches_of_three(strategy: Any, count: int) -> None:
    executable = Model(strategy).session(2, A=3).executable
    loop = OverlappedLoop.of(executable.program[0], executable.plan)
    assert loop is not None
    hidden = [leaf for number in range(6) for leaf in loop.neighbours(number)]
    assert sum(isinstance(leaf, HostLoad) for leaf in hidden) == 2 * count
    assert sum(isinstance(leaf, HostStore) and leaf.anchor == "Nll:0" for leaf in hidden) == count
    shown = [
        leaf
        for n in range(6)
        for leaf in (*loop.loads_for(n, overlapped=False), *loop.stores_of(n, overlapped=False))
    ]
    assert len(hidden) + len(shown) == 6 * (len(loop.loads) + len(loop.stores))


class Callbacks:
    """Callbacks that record the thread in which they are called."""

    def __init__(self, id: str, fails_at: int = -1) -> None:
        self.x = np.arange(8 * 64, dtype=np.float32).reshape(8, 64)
        self.y = np.zeros_like(self.x)
        self.threads: list[str] = []
        self.sent = self.taken = 0
        self.id, self.fails_at = id, fails_at
        self.stepio = popart.PyStepIOCallback(self.give, lambda id: None, self.take, self.done)

    def give(self, id: str, prefetch: bool) -> Any:
        assert id == self.id
        self.threads.append(f"load {self.sent}: {threading.current_thread().name}")
        self.sent += 1
        return self.x[self.sent - 1]

    def take(self, id: str) -> Any:
        if self.taken == self.fails_at:
            raise OSError("disk full")
        return self.y[self.taken]

    def done(self, id: str) -> None:
        self.threads.append(f"store {self.taken}: {threading.current_thread().name}")
        self.taken += 1


def doubling(strategy: Any, tiles: Any) -> tuple[str, Any]:
    """A session that returns x + x, in eight batches."""
    builder = popart.Builder()
    x = builder.addInputTensor(popart.TensorInfo("FLOAT", [64]), popart.InputSettings(tiles, strategy))
    y = builder.aiOnnx.add([x, x])
    flow = popart.DataFlow(8, {y: popart.AnchorReturnType("All", tiles, strategy)})
    opts = options(numIOTiles=32)
    session = popart.InferenceSession(builder.getModelProto(), flow, device(opts), userOptions=opts)
    session.prepareDevice()
    return x, session


def test_the_host_works_in_its_own_thread() -> None:
    x, session = doubling(LOOPS, IO)
    user = Callbacks(x)
    session.run(user.stepio)
    np.testing.assert_array_equal(user.y, 2 * user.x)
    main, worker = "MainThread", "host-io-0"
    loads = [f"load {number}: {worker if number else main}" for number in range(8)]
    stores = [f"store {number}: {worker if number < 7 else main}" for number in range(8)]
    neighbours = [entry for pair in zip(stores[:6], loads[2:], strict=True) for entry in pair]
    assert user.threads == [*loads[:2], *neighbours, *stores[6:]]


def test_just_in_time_needs_no_thread() -> None:
    x, session = doubling(JUST_IN_TIME, IO)
    user = Callbacks(x)
    session.run(user.stepio)
    assert {entry.partition(": ")[2] for entry in user.threads} == {"MainThread"}


@pytest.mark.parametrize("step", [0, 3, 7])
def test_a_callback_that_fails_ends_the_step_and_not_the_session(step: int) -> None:
    x, session = doubling(LOOPS, IO)
    with pytest.raises(OSError, match="disk full"):
        session.run(Callbacks(x, fails_at=step).stepio)
    again = Callbacks(x)
    session.run(again.stepio)
    np.testing.assert_array_equal(again.y, 2 * again.x)


def test_no_thread_is_left() -> None:
    before = set(threading.enumerate())
    _, session = doubling(LOOPS, IO)
    (thread,) = set(threading.enumerate()) - before
    session.engine.close()
    assert not thread.is_alive()


@pytest.mark.parametrize(("batches", "factor"), [(4, 1), (2, 3)])
@pytest.mark.parametrize("rate", [1e5, 1e15])
def test_the_clock_counts_the_longer_of_both(batches: int, factor: int, rate: float) -> None:
    """Anchored weights are stored just in time, so every micro-batch waits for the I/O tiles."""
    executable = Model(LOOPS).session(batches, A=factor).executable
    loop = OverlappedLoop.of(executable.program[0], executable.plan)
    assert loop is not None
    machine = ModelledMachine(System.pod(4), host=rate, io_tiles=32)
    pricing, segment = Pricing(executable, machine), timeline(executable, machine)

    def seconds(leaves: Any) -> float:
        return sum(pricing.of(leaf).seconds for leaf in leaves)

    exchanges = [seconds(loop.neighbours(number)) for number in range(loop.total)]
    now = [seconds(loop.stores_of(number, overlapped=False)) for number in range(loop.total)]
    longer = [max(seconds(loop.work), exchanged) for exchanged in exchanges]
    updates = batches * seconds(loop.after) + seconds(executable.program[1:])
    assert segment.seconds == pytest.approx(seconds(loop.loads) + sum(longer) + sum(now) + updates, rel=1e-6)
    assert segment.by_category()[CostCategory.BESIDE] == pytest.approx(sum(exchanges))


def test_spans_of_the_host_are_at_the_same_time_as_compute() -> None:
    executable = Model(LOOPS).session(3, A=2).executable
    segment = timeline(executable, ModelledMachine(System.pod(4), io_tiles=32))
    work = {span.name: span for span in segment.spans if span.name.startswith("micro-batch")}
    loads = [span for span in segment.spans if span.name.startswith("HostLoad input (")]
    assert len(work) == 6
    for number, load in enumerate(loads[1:]):
        block = work[f"micro-batch {number}"]
        assert block.start <= load.start <= block.start + block.seconds


@pytest.mark.parametrize("strategy", [INNER, LOOPS])
def test_the_trace_has_a_row_for_io_tiles_and_ops_inside_of_micro_batches(strategy: Any) -> None:
    executable = Model(strategy).session(3, A=2).executable
    segment = timeline(executable, ModelledMachine(System.pod(4), io_tiles=32))
    events = checked_events(json.dumps(timeline_trace("step", segment.seconds, segment.spans)))
    rows = {event["args"]["name"]: event["tid"] for event in events if event["name"] == "thread_name"}
    spans = [event for event in events if event["ph"] == "X"]
    transfers = {span["name"].split()[0] for span in spans if span["tid"] == rows["IPU 0, I/O tiles (modelled)"]}
    assert transfers == {"HostLoad", "HostStore"}
    for number in range(6):
        about = {"micro-batch": number}
        ops = [span["name"] for span in spans if span["args"] == about and span["name"].startswith("Compute ")]
        assert len(ops) >= 3
        assert any("MatMul" in name for name in ops)


def test_fewer_tiles_compute_more_slowly() -> None:
    executable = Model(LOOPS).session(1).executable
    loop = executable.program[0]
    assert isinstance(loop, Repeat)
    assert loop.counter is Counter.BATCH
    few, all_ = (timeline(executable, ModelledMachine(System.pod(4), io_tiles=tiles)) for tiles in (1408, 0))
    assert few.by_category()[CostCategory.COMPUTE] > all_.by_category()[CostCategory.COMPUTE]
    with pytest.raises(EmulatorError, match=r"1,472 I/O tiles.*1472"):
        ModelledMachine(System.pod(4), io_tiles=1472)


@pytest.mark.parametrize(("count", "text"), [(30, "is 30"), (33, "is 33"), (1472, "is 1472"), (0, "numIOTiles is 0")])
def test_numbers_of_io_tiles(count: int, text: str) -> None:
    with pytest.raises(popart.popart_exception, match=f"{text}.*an even number from 32 to 1470"):
        Model(INNER).session(1, numIOTiles=count)


def test_a_strategy_needs_io_tiles() -> None:
    """Compute tiles exchange all data just in time."""
    executable = Model(LOOPS, tiles=TILES).session(2, numIOTiles=0).executable
    assert OverlappedLoop.of(executable.program[0], executable.plan) is None


OFF_CHIP = popart.TensorLocationSettings(popart.TensorLocation(popart.TensorStorage.OffChip), 0, 0)


@pytest.mark.parametrize(
    "values",
    [
        {"weightTensorLocationSettings": OFF_CHIP, "activationTensorLocationSettings": OFF_CHIP},
        {"autoRecomputation": popart.RecomputationType.RecomputeAll},
    ],
)
def test_no_bit_differs_with_offloading_and_recomputation(values: dict[str, Any]) -> None:
    results = []
    for model in (Model(JUST_IN_TIME, tiles=TILES), Model(LOOPS)):
        session = model.session(2, A=3, **values)
        anchors = session.initAnchorArrays()
        session.run(popart.PyStepIO(model.data(2, 3), anchors))
        results.append(anchors)
    for id, array in results[0].items():
        np.testing.assert_array_equal(array, results[1][id])


def test_a_pipeline_is_priced_with_its_stores_during_compute() -> None:
    segments = {}
    for tiles, strategy in ((TILES, JUST_IN_TIME), (IO, LOOPS)):
        tower = Tower(2, plain=True)
        anchors = dict.fromkeys([tower.loss, tower.y], popart.AnchorReturnType("All", tiles, strategy))
        executable = tower.session(A=6, anchors=anchors, numIOTiles=32, **PIPELINE).executable
        segments[strategy] = timeline(executable, ModelledMachine(System.pod(4), ipus_per_replica=2, host=1e8))
    plain, overlapped = segments[JUST_IN_TIME], segments[LOOPS]
    hidden = overlapped.by_category()[CostCategory.BESIDE]
    assert plain.by_category()[CostCategory.BESIDE] == 0
    assert hidden == pytest.approx(
        plain.by_category()[CostCategory.HOST] - overlapped.by_category()[CostCategory.HOST]
    )
    # The stores of the last micro-batch overlap with no compute.
    assert plain.seconds - hidden < overlapped.seconds < plain.seconds
