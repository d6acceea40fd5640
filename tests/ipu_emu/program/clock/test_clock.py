"""The clock: prices compared with formulas written here, timelines with slow sums and the schedules' own times."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from gcl import LINK_BANDWIDTH, LinkClass
from ipu_emu import popart
from ipu_emu.errors import EmulatorError
from ipu_emu.hardware import PATTERNS, SelectionOrder, System
from ipu_emu.hardware.rates import Rates
from ipu_emu.hardware.tile_cycles import received
from ipu_emu.program.clock import CostCategory, ModelledMachine, Pricing, TimelineSegment, timeline
from ipu_emu.program.executable import Executable
from ipu_emu.program.instructions import (
    AllReduce,
    Compute,
    HostLoad,
    IpuCopy,
    Pipeline,
    RemoteLoad,
    RemoteStore,
    Repeat,
    leaves,
)
from tests.ipu_emu.helpers.pipelined_models import MANUAL, PIPELINE, Tower

POD = System.pod(16)
SYNC = 600 / 1.33e9
OFF_CHIP = popart.TensorLocationSettings(popart.TensorLocation(popart.TensorStorage.OffChip), 0, 0)


def gemm(rows: int, inner: int, columns: int, dtype: Any = np.float16) -> Executable:
    builder = popart.Builder()
    x = builder.addInputTensor(popart.TensorInfo(dtype, [rows, inner]))
    w, b = (builder.addInitializedInputTensor(np.zeros(shape, dtype)) for shape in ((inner, columns), (columns,)))
    y = builder.aiOnnx.gemm([x, w, b])
    device = popart.DeviceManager().createOfflineIPUDevice({"numIPUs": 1})
    session = popart.InferenceSession(builder.getModelProto(), popart.DataFlow(1, [y]), device)
    session.prepareDevice(loadEngine=False)
    return session.executable


def compiled(tower: Tower, **values: Any) -> Executable:
    executable: Executable = tower.session(**values).executable
    return executable


def prices(executable: Executable, machine: ModelledMachine, kind: type) -> list[float]:
    pricing = Pricing(executable, machine)
    return [pricing.of(leaf).seconds for leaf in leaves(executable.program) if isinstance(leaf, kind)]


@pytest.mark.parametrize("name", ["pod16", "bow-pod16", "dss8440"])
@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_a_large_product_takes_its_flops_at_peak(name: str, dtype: Any) -> None:
    system, n = System.named(name), 1024
    (seconds,) = prices(gemm(n, n, n, dtype), ModelledMachine(system), Compute)
    kind, size = system.generation, np.dtype(dtype).itemsize
    flops = 2 * n**3
    rate = {2: kind.half_flops, 4: kind.float_flops}[size]
    cycles = 11 + flops / kind.tiles / rate + 600 + best_grid(n, kind.tiles) * size / 4
    assert seconds == pytest.approx(cycles / kind.clock, rel=1e-9)
    at_a_tenth = ModelledMachine(system, rates=Rates(convolution=0.01, product=0.1))
    assert prices(gemm(n, n, n, dtype), at_a_tenth, Compute) == [
        pytest.approx(10 * flops / kind.tiles / rate / kind.clock)
    ]


def best_grid(n: int, tiles: int) -> float:
    """Elements of square matrices that a tile receives; columns and layers are powers of two, rows what is left."""
    powers = [1 << exponent for exponent in range(11)]
    grids = ((tiles / (columns * layers), columns, layers) for columns in powers for layers in powers)
    return min(
        n * n * (1 / (rows * layers) + 1 / (layers * columns) + (1 - 1 / layers) / (rows * columns))
        for rows, columns, layers in grids
        if rows >= 1
    )


def test_elements_that_a_tile_receives_for_a_product() -> None:
    assert received(30, 20, 24, 5 * 6 * 4, 1) == 50, "both operands"
    assert received(64, 64, 64, 512, 8) == pytest.approx(16 + 16 + 8), "2 x 2 x 2"
    assert received(4096 * 8, 8 * 8, 4096 * 8, 4096 * 64, 1024) == pytest.approx(4 * 8 + 64), "rows only"
    assert received(2 * 64, 2 * 64, 2 * 64, 2 * 512, 16) == pytest.approx(16 + 16 + 8), "two groups"
    assert received(100, 100, 100, 100, 10) == 20, "a hundred groups"
    assert received(8 * 8192, 8 * 8192, 64, 64 * 8192, 1024) < 200, "a gradient of weights: layers only"


def test_the_host_gives_at_the_rate_of_its_network() -> None:
    (seconds,) = prices(gemm(100, 1000, 1), ModelledMachine(POD), HostLoad)
    assert seconds == pytest.approx(2 * 100 * 1000 / 3.125e9 + SYNC)


def test_copies_take_their_links() -> None:
    """From IPU 0 to 1 along a rung; from 0 to 2 up the rail."""
    for ipus, link in (([0, 1], LinkClass.RUNG), ([0, 2], LinkClass.UP)):
        executable = compiled(Tower(2, ipus, plain=True), virtualGraphMode=MANUAL)
        machine = ModelledMachine(POD, ipus_per_replica=4)
        first = prices(executable, machine, IpuCopy)[0]
        assert first == pytest.approx(6 * 8 * 4 / LINK_BANDWIDTH[link] + SYNC)


def test_the_selection_order_moves_ipus_on_the_ladder() -> None:
    """IPUs 1 and 2 are the shards 1 and 2: neighbours on a rail with SNAKE (1 and 3), a rung and a rail otherwise."""
    executable = compiled(Tower(4, plain=True), A=8, **PIPELINE)
    for order, ways in (("ZIGZAG", (0, 1, 2, 3)), ("SNAKE", (0, 1, 3, 2)), ("HOOF", (0, 2, 3, 1))):
        machine = ModelledMachine(POD, ipus_per_replica=4, order=SelectionOrder[order])
        assert machine.places == ways
        routes = [machine.fabric.route(ways[ipu], ways[ipu + 1]) for ipu in range(3)]
        forward = prices(executable, machine, IpuCopy)[:3]
        want = [6 * 8 * 4 / min(LINK_BANDWIDTH[hop.link] for hop in route) + SYNC for route in routes]
        assert forward == pytest.approx(want)


def test_a_reduction_is_priced_as_gcl_does_it() -> None:
    executable = compiled(Tower(1, plain=True))
    assert prices(executable, ModelledMachine(POD), AllReduce) == []
    executable = compiled(Tower(1, plain=True), R=2)
    (two,) = prices(executable, ModelledMachine(POD, 2), AllReduce)
    (sixteen,) = prices(executable, ModelledMachine(POD, 16), AllReduce)
    assert SYNC < two < sixteen < 1e-3


def test_shards_run_one_after_the_other() -> None:
    executable = compiled(Tower(3, plain=True), virtualGraphMode=MANUAL, A=4)
    segment = timeline(executable, ModelledMachine(POD, ipus_per_replica=4))
    assert segment.seconds == pytest.approx(sum(segment.by_ipu().values()))
    spans = sorted(segment.spans, key=lambda span: span.start)
    assert all(first.start + first.seconds <= second.start + 1e-12 for first, second in pairwise(spans))


def test_a_loop_counts_as_often_as_it_runs() -> None:
    single, four = (
        timeline(compiled(Tower(1, plain=True), A=A, bps=bps), ModelledMachine(POD)) for A, bps in ((2, 1), (2, 4))
    )
    assert four.seconds == pytest.approx(4 * single.seconds, rel=0.05)
    assert four.by_category()[CostCategory.UPDATE] == pytest.approx(4 * single.by_category()[CostCategory.UPDATE])


def test_streaming_memory_is_behind_the_gateway() -> None:
    """Adam keeps two states for each of 8 x 8 weights and 8 biases; they come and go once."""
    options = {"optimizerStateTensorLocationSettings": OFF_CHIP}
    adam = popart.Adam({"defaultLearningRate": (0.1, True)})
    executable = compiled(Tower(1, plain=True), optimizer=adam, **options)
    streaming = timeline(executable, ModelledMachine(POD)).by_category()[CostCategory.STREAMING]
    moved = [leaf for leaf in leaves(executable.program) if isinstance(leaf, RemoteLoad | RemoteStore)]
    nbytes = sum(executable.graph.tensor(leaf.op.inputs[-1]).nbytes for leaf in moved)
    assert nbytes >= 2 * 2 * 4 * (8 * 8 + 8)
    assert streaming == pytest.approx(nbytes / 16e9 + len(moved) * SYNC)


def stages_of(executable: Executable, machine: ModelledMachine) -> tuple[Pipeline, list[float]]:
    """The pipeline of a program, and how long each stage takes."""
    batches = executable.program[0]
    assert isinstance(batches, Repeat)
    (pipeline,) = (instruction for instruction in batches.body if isinstance(instruction, Pipeline))
    pricing = Pricing(executable, machine)
    return pipeline, [sum(pricing.of(leaf).seconds for leaf in stage.body) for stage in pipeline.stages]


def slot_by_slot(pipeline: Pipeline, stages: list[float]) -> float:
    """Each slot lasts as long as its busiest IPU."""
    total = 0.0
    for slot in pipeline.slots():
        busy = {task.ipu: 0.0 for task in slot}
        for task in slot:
            busy[task.ipu] += stages[task.stage]
        total += max(busy.values())
    return total


def longest_way(pipeline: Pipeline, stages: list[float]) -> float:
    """The longest chain of tasks of one IPU, or of one micro-batch, by iterating over all until nothing changes."""
    tasks = [task for slot in pipeline.slots() for task in slot]
    before = {task: [] for task in tasks}
    for later, task in enumerate(tasks):
        before[task] += [other for other in tasks[:later] if other.ipu == task.ipu][-1:]
        before[task] += [o for o in tasks if (o.stage, o.micro_batch) == (task.stage - 1, task.micro_batch)]
    ends = dict.fromkeys(tasks, 0.0)
    while True:
        updated = {t: max((ends[o] for o in before[t]), default=0.0) + stages[t.stage] for t in tasks}
        if updated == ends:
            return max(ends.values())
        ends = updated


def pipeline_seconds(segment: TimelineSegment) -> float:
    tasks = [span for span in segment.spans if "micro-batch" in span.name and "of stage" in span.name]
    return max(span.start + span.seconds for span in tasks) - min(span.start for span in tasks)


@pytest.mark.parametrize("kind", ["popart", "grouped", "interleaved", "sequential"])
def test_pipelines(kind: str) -> None:
    executable = compiled(Tower(4, plain=True), A=8, pipelineSchedule=kind, **PIPELINE)
    machine = ModelledMachine(POD, ipus_per_replica=4)
    full, ladder, free = (
        timeline(executable, ModelledMachine(POD, ipus_per_replica=4, sync=PATTERNS[name]))
        for name in ("Full", "ReplicaAndLadder", "SinglePipeline")
    )
    # The last slots of a grouped pipeline neither load nor store, and are not barriers.
    barriers, margin = slot_by_slot(*stages_of(executable, machine)), 1e-4 if kind == "grouped" else 1e-9
    assert (1 - margin) * barriers <= pipeline_seconds(full) <= (1 + 1e-9) * barriers
    assert pipeline_seconds(free) == pytest.approx(longest_way(*stages_of(executable, machine)))
    assert free.seconds <= ladder.seconds <= full.seconds
    if kind == "sequential":  # one IPU at a time, so none waits for another
        assert free.seconds == pytest.approx(full.seconds)
    else:
        assert free.seconds < full.seconds


def test_machines_that_there_are_not() -> None:
    with pytest.raises(EmulatorError, match=r"16 replicas of 2 IPUs.*Pod16.*16"):
        ModelledMachine(POD, 16, 2)


class TestSession:
    def test_a_session_says_what_its_step_would_take(self) -> None:
        session = Tower(2, plain=True).session(A=4, R=2, bps=3, instrumentWithHardwareCycleCounter=True)
        seconds = session.modelledSeconds()
        executable = session.executable
        segment = timeline(executable, ModelledMachine(POD, 2))
        assert seconds.pop("total") == segment.seconds == session.modelledTimeline().seconds
        assert sum(seconds.values()) == pytest.approx(segment.seconds)
        assert seconds["collectives"] > 0
        assert seconds["compute"] == segment.by_category()[CostCategory.COMPUTE]

    def test_cycles_are_those_of_the_seconds(self) -> None:
        both = {popart.Instrumentation.Outer, popart.Instrumentation.Inner}
        tower = Tower(2, plain=True)
        session = tower.session(
            A=4, instrumentWithHardwareCycleCounter=True, hardwareInstrumentations=both, **PIPELINE
        )
        tower.run(session, A=4)
        cycles = round(session.modelledSeconds()["total"] * POD.generation.clock)
        assert [session.getCycleCount(id) for id in ("", "inner_ipu_0", "inner_ipu_1")] == [cycles] * 3

    def test_fewer_tiles_and_more_replicas_take_longer(self) -> None:
        builder = popart.Builder()
        x = builder.addInputTensor(popart.TensorInfo("FLOAT", [64, 512]))
        w = builder.addInitializedInputTensor(np.zeros((512, 512), np.float32))
        loss = builder.aiGraphcore.l1loss([builder.aiOnnx.matmul([x, w])], 1.0)

        def seconds(replicas: int, tiles: int = 1472) -> dict[str, float]:
            opts = popart.SessionOptions()
            opts.enableReplicatedGraphs, opts.replicatedGraphCount = True, replicas
            session = popart.TrainingSession(
                builder.getModelProto(),
                popart.DataFlow(1, [loss]),
                loss,
                popart.ConstSGD(0.1),
                popart.DeviceManager().createSimDevice({"numIPUs": replicas, "tilesPerIPU": tiles}),
                userOptions=opts,
            )
            session.prepareDevice(loadEngine=False)
            modelled: dict[str, float] = session.modelledSeconds()
            return modelled

        single = seconds(1)
        assert seconds(1, tiles=147)["compute"] > 2 * single["compute"]
        assert single["collectives"] == 0
        more = [seconds(replicas)["collectives"] for replicas in (2, 16, 32)]
        assert 0 < more[0] < more[1] < more[2]
