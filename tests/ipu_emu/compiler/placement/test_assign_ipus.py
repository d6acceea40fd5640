"""Places: how Auto divides a model, execution phases, and the memory of each IPU."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

from ipu_emu import models, popart
from ipu_emu.compiler.options import CompileOptions, TrainingOptions
from ipu_emu.compiler.pipeline import CompileState, run_passes
from ipu_emu.compiler.placement.assign_ipus import assign_ipus
from ipu_emu.compiler.placement.placement_options import PipelineOptions, PlacementMode, PlacementOptions
from ipu_emu.graph import Role
from ipu_emu.ops import TABLE
from ipu_emu.program.anchors import StepShape
from ipu_emu.program.instructions import Compute, leaves
from ipu_emu.program.memory_plan import node_in
from tests.ipu_emu.helpers.pipelined_models import PIPELINE, Tower, threads
from tests.ipu_emu.helpers.sessions import options

AUTO = popart.VirtualGraphMode.Auto


def transformer() -> models.Model:
    return models.transformer(batch=2, layers=6, width=16, heads=2, length=8, vocabulary=24)


def session_of(model: models.Model, ipus: int, *, prepare: bool = False, **values: Any) -> Any:
    device = popart.DeviceManager().createIpuModelDevice({"numIPUs": ipus, "tilesPerIPU": 1472})
    flow = popart.DataFlow(1, {model.loss: popart.AnchorReturnType("All")})
    session = popart.TrainingSession(
        model.proto, flow, model.loss, popart.ConstSGD(0.1), device, userOptions=options(**values)
    )
    session.prepareDevice(loadEngine=prepare)
    return session


def operations(session: Any) -> list[float]:
    """Floating-point operations of each IPU."""
    executable = session.executable
    flops = [0.0] * executable.plan.ipus
    for leaf in leaves(executable.program):
        if isinstance(leaf, Compute):
            flops[leaf.op.place.ipu] += TABLE[leaf.op].cost(node_in(executable.graph, leaf.op)).flops
    return flops


def test_a_weight_at_both_ends_does_not_pull_all_layers_to_one_ipu() -> None:
    model = models.bert(batch=1, layers=4, width=32, heads=2, length=16, context=16, vocabulary=64)
    work = operations(session_of(model, 4, virtualGraphMode=AUTO, A=8))
    assert max(work) < 0.5 * sum(work)


@pytest.mark.parametrize(
    ("training", "schedule", "count", "is_copied"),
    [
        (True, "popart", 9, False),
        (True, "grouped", 20, False),
        (True, "popart", 8, True),
        (True, "grouped", 16, True),
        (True, "interleaved", 16, True),
        (False, "popart", 5, False),
        (False, "popart", 4, True),
    ],
)
def test_a_weight_at_both_ends_of_a_pipeline_is_read_in_a_further_stage_or_copied(
    training: bool, schedule: str, count: int, is_copied: bool
) -> None:
    """Four IPUs have five stages; without enough micro-batches for these, or interleaved, the weight is copied."""
    model = models.bert(batch=1, layers=4, width=32, heads=2, length=16, context=16, vocabulary=64)
    options = CompileOptions(
        step=StepShape(1, count, 1) if training else StepShape(count, 1, 1),
        training=TrainingOptions(model.loss, popart.ConstSGD(0.1).plan) if training else None,
        placement=PlacementOptions(PlacementMode.AUTO, ipus=4),
        pipeline=PipelineOptions(schedule),
    )
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        graph = run_passes(CompileState(model.graph, options), stop_after="assign-ipus").graph
    assert {op.place.ipu for op in graph.ops} == {0, 1, 2, 3}
    homes = {op.place.ipu for op in graph.ops if "tokens" in op.inputs}
    assert homes == ({0, 3} if is_copied else {0})
    said = [str(warning.message) for warning in caught]
    assert [text.startswith("The weight tokens is read on IPUs 0, 3 of a pipeline") for text in said] == [
        True
    ] * is_copied


@pytest.mark.parametrize("ipus", [2, 3, 4])
def test_auto_gives_each_ipu_its_share_of_the_work(ipus: int) -> None:
    session = session_of(transformer(), ipus, virtualGraphMode=AUTO)
    work = operations(session)
    assert len(work) == ipus
    assert max(work) <= 1.35 * sum(work) / ipus


def test_split_ratios_say_how_large_the_shares_are() -> None:
    for ratios in ([3.0, 1.0], [1.0, 3.0]):
        work = operations(session_of(transformer(), 2, virtualGraphMode=AUTO, virtualGraphSplitRatios=ratios))
        np.testing.assert_allclose(np.array(work) / sum(work), np.array(ratios) / 4, atol=0.1)


@pytest.mark.parametrize("ratios", [[1.0], [0.0, 0.0], [-1.0, 2.0], ["a", "b"]])
def test_invalid_split_ratios_are_refused(ratios: Any) -> None:
    with pytest.raises(popart.popart_exception, match=r"and a replica has 2 IPUs; give one number above 0 for each$"):
        session_of(transformer(), 2, virtualGraphMode=AUTO, virtualGraphSplitRatios=ratios)


def test_auto_keeps_every_weight_on_one_ipu_and_the_ops_in_order() -> None:
    model = transformer()
    graph = assign_ipus(model.graph, PlacementOptions(PlacementMode.AUTO, ipus=4))
    ipus = [op.place.ipu for op in graph.ops if not all(graph.tensors[id].role is Role.CONSTANT for id in op.outputs)]
    assert ipus == sorted(ipus)
    for weight in graph.with_role(Role.WEIGHT):
        assert len({op.place.ipu for op in graph.ops if weight.id in op.inputs}) == 1, weight.id


def test_auto_makes_a_pipeline_with_the_bits_of_the_plain_run(monkeypatch: pytest.MonkeyPatch) -> None:
    threads(monkeypatch, 3)
    model, runs = transformer(), []
    data = np.random.default_rng(0).integers(0, 24, (8, 2, 8)).astype(np.int32)
    for ipus, values in ((1, {}), (3, {"virtualGraphMode": AUTO, "enablePipelining": True})):
        session = session_of(model, ipus, prepare=True, A=8, **values)
        session.weightsFromHost()
        anchors = session.initAnchorArrays()
        losses = []
        for _ in range(3):
            session.run(popart.PyStepIO({model.data: data, model.labels: data.reshape(8, 16)}, anchors))
            losses.append(anchors[model.loss].copy())
        runs.append(np.array(losses))
        session.close()
    np.testing.assert_array_equal(runs[1], runs[0])


def test_execution_phases_take_turns_on_the_ipus() -> None:
    builder = popart.Builder()
    y = x = builder.addInputTensor("FLOAT", [4, 4])
    for phase in range(5):
        with builder.executionPhase(phase):
            w = builder.addInitializedInputTensor(np.ones((4, 4), np.float32), f"w{phase}")
            y = builder.aiOnnx.matmul([y, w])
    opts = options(virtualGraphMode=popart.VirtualGraphMode.ExecutionPhases)
    opts.executionPhaseSettings.phases = 5
    device = popart.DeviceManager().createIpuModelDevice({"numIPUs": 2, "tilesPerIPU": 1472})
    session = popart.InferenceSession(builder.getModelProto(), popart.DataFlow(1, [y]), device, userOptions=opts)
    session.prepareDevice()
    products = [op for leaf in leaves(session.executable.program) for op in leaf.ops if op.type == "MatMul"]
    assert [op.place.ipu for op in products] == [0, 1, 0, 1, 0]
    anchors = session.initAnchorArrays()
    session.run(popart.PyStepIO({x: np.eye(4, dtype=np.float32)}, anchors))
    np.testing.assert_array_equal(anchors[y], np.full((4, 4), 4.0**4))


@pytest.mark.parametrize("kind", ["sharded", "popart", "grouped", "interleaved", "sequential"])
@pytest.mark.parametrize("ipus", [range(4), (0, 1, 1, 0), (3, 1, 0, 2)])
def test_the_plan_of_each_ipu_is_what_the_engine_holds(kind: str, ipus: Any) -> None:
    if kind == "interleaved" and len(set(ipus)) < 4:
        ipus = range(4)
    values = {**PIPELINE, "pipelineSchedule": kind}
    if kind == "sharded":
        values = {"virtualGraphMode": popart.VirtualGraphMode.Manual}
    session = Tower(4, ipus).session(A=24, **values)
    plan, engine = session.executable.plan, session.engine
    assert plan.ipus == len(set(ipus))
    for ipu in range(plan.ipus):
        assert 0 < engine.nbytes_of(ipu) <= plan.bytes_of(ipu)
    assert engine.nbytes == sum(engine.nbytes_of(ipu) for ipu in range(plan.ipus))
