"""Programs and memory plans: their text, and tensors that are live at the same time share no memory."""

from __future__ import annotations

import itertools
import tracemalloc
from typing import Any

import numpy as np
import pytest

from ipu_emu import popart
from ipu_emu.program.instructions import Compute, HostLoad, leaves, listing
from ipu_emu.program.memory_plan import TRANSIENT
from tests.ipu_emu.helpers.sessions import device, options


def convolutional(dtype: Any = np.float32, width: int = 4) -> tuple[popart.Builder, str, dict[str, Any]]:
    random = np.random.default_rng(0)
    builder = popart.Builder()
    x = builder.addInputTensor(popart.TensorInfo(dtype, [8, 2, 6, 6]))
    t = builder.addInputTensor("INT32", [8])
    w = [
        builder.addInitializedInputTensor(random.standard_normal(shape).astype(dtype) / 2, name)
        for name, shape in (("w1", (width, 2, 3, 3)), ("b1", (width,)), ("w2", (width * 9, 5)), ("b2", (5,)))
    ]
    y = builder.aiOnnx.relu([builder.aiOnnx.conv([x, *w[:2]], pads=[1, 1, 1, 1])])
    (y,) = builder.aiOnnx.maxpool([y], 1, [2, 2], 0, [], [], 0, [2, 2])
    y = builder.aiOnnx.gemm([builder.aiOnnx.flatten([y]), *w[2:]])
    loss = builder.aiGraphcore.nllloss([builder.aiOnnx.softmax([y]), t])
    data = {
        x: random.standard_normal((12, 8, 2, 6, 6)).astype(dtype),
        t: random.integers(0, 5, (12, 8)).astype(np.int32),
    }
    return builder, loss, data


def prepared(dtype: Any = np.float32, width: int = 4, bps: int = 2, **values: Any) -> tuple[Any, str, dict[str, Any]]:
    builder, loss, data = convolutional(dtype, width)
    opts = options(**values)
    flow = popart.DataFlow(bps, {loss: popart.AnchorReturnType("All")})
    optimizer = popart.ConstSGD(0.1)
    session = popart.TrainingSession(builder.getModelProto(), flow, loss, optimizer, device(opts), userOptions=opts)
    session.prepareDevice()
    session.weightsFromHost()
    count = bps * values.get("A", 1) * values.get("R", 1)
    return session, loss, {id: value[:count] for id, value in data.items()}


def test_the_program_of_a_training_step() -> None:
    session, _, _ = prepared(R=2, A=3)
    lines = [" ".join(line.split()[:3]) for line in listing(session.executable.program).split("\n")]
    assert lines == [
        "repeat 2 batches",
        "repeat 3 micro-batches",
        "HostLoad input",
        "HostLoad input/1",
        "Compute Conv:0 =",
        "Compute Relu:0 =",
        "Compute MaxPool:0 =",
        "Compute Flatten:0 =",
        "Compute Gemm:0 =",
        "Compute Softmax:0 =",
        "Compute Nll:0 =",
        "Compute Gradient___Nll:0 =",
        "Compute Gradient___Gemm:0 =",
        "Compute Gradient___Flatten:0 =",
        "Compute Gradient___w2 =",
        "AccumulateGradient Accum___w2 +=",
        "Compute Gradient___b2 =",
        "AccumulateGradient Accum___b2 +=",
        "Compute Gradient___MaxPool:0 =",
        "Compute Gradient___Relu:0 =",
        "Compute Gradient___Conv:0 =",
        "Compute Gradient___w1 =",
        "AccumulateGradient Accum___w1 +=",
        "Compute Gradient___b1 =",
        "AccumulateGradient Accum___b1 +=",
        "HostStore Nll:0",
        "AllReduce add bucket:FLOAT",
        *(f"WeightUpdate UpdatedVar___{name} =" for name in ("w1", "b1", "w2", "b2")),
    ]


def test_softmax_and_its_loss_have_one_gradient_op() -> None:
    session, _, _ = prepared()
    types = [leaf.op.type for leaf in leaves(session.executable.program) if isinstance(leaf, Compute)]
    assert "SoftmaxNllGrad" in types
    assert not {"NllGrad", "SoftmaxGrad"} & set(types)


def test_gradients_of_inputs_are_not_computed() -> None:
    session, _, _ = prepared()
    types = [leaf.op.type for leaf in leaves(session.executable.program) if isinstance(leaf, Compute)]
    assert types.count("ConvWeightGrad") == 1
    assert "ConvDataGrad" not in types


def lifetimes(executable: Any) -> dict[str, tuple[int, int]]:
    """First and last instruction that touches each tensor, found independently of the planner."""
    spans: dict[str, tuple[int, int]] = {}
    for time, leaf in enumerate(leaves(executable.program)):
        ids = [id for op in leaf.ops for id in (*op.inputs, *op.outputs)] or [getattr(leaf, "tensor", "")]
        for id in ids:
            if id in executable.plan.placements:
                spans[id] = (spans.get(id, (time, time))[0], time)
    return spans


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("factor", [1, 2])
def test_tensors_that_live_together_do_not_overlap(dtype: Any, factor: int) -> None:
    session, _, _ = prepared(dtype, A=factor)
    executable, plan = session.executable, session.executable.plan
    spans = lifetimes(executable)
    for first, other in itertools.combinations(spans, 2):
        a, b = plan.placements[first], plan.placements[other]
        lives = a.region != TRANSIENT or (spans[first][0] <= spans[other][1] and spans[other][0] <= spans[first][1])
        apart = a.offset + a.tensor.nbytes <= b.offset or b.offset + b.tensor.nbytes <= a.offset
        shared = related(executable, first, other)
        assert a.region != b.region or not lives or apart or shared, f"{a} and {b}"


def related(executable: Any, first: str, other: str) -> bool:
    """Whether one is a view of the other, or overwrites it."""
    same_place = {first, other} & executable.plan.views or any(
        id.startswith("UpdatedVar___") for id in (first, other)
    )
    return bool(same_place)


def test_the_plan_reuses_memory() -> None:
    session, _, _ = prepared(width=64)
    plan = session.executable.plan
    transients = {p.offset: p.tensor.nbytes for p in plan.placements.values() if p.region == TRANSIENT}
    everything = sum(p.tensor.nbytes for p in plan.placements.values() if p.region == TRANSIENT)
    assert plan.sizes[TRANSIENT] < 0.8 * everything
    assert len(transients) < sum(p.region == TRANSIENT for p in plan.placements.values())


def test_convolutions_and_what_follows_store_the_batch_innermost() -> None:
    session, _, _ = prepared()
    plan = session.executable.plan
    stored = {id for id, placement in plan.placements.items() if placement.batch_innermost}
    assert {
        "input",
        "Conv:0",
        "Relu:0",
        "MaxPool:0",
        "Flatten:0",
        "Gradient___Conv:0",
        "Gradient___Flatten:0",
    } <= stored
    assert not {"w1", "w2", "Gemm:0", "Gradient___w1"} & stored
    assert {"Flatten:0", "Gradient___MaxPool:0"} <= plan.views


def test_gradients_are_in_one_bucket() -> None:
    for factor, prefix in ((1, "Gradient___"), (2, "Accum___")):
        session, _, _ = prepared(A=factor)
        placements = [session.executable.plan.placements[prefix + name] for name in ("w1", "b1", "w2", "b2")]
        assert {placement.region for placement in placements} == {"bucket:FLOAT"}
        assert [placement.offset % 64 for placement in placements] == [0] * 4
        views = [session.engine.view(prefix + name) for name in ("w1", "b1", "w2", "b2")]
        assert len({view.ctypes.data - place.offset for view, place in zip(views, placements, strict=True)}) == 1


def test_a_weight_used_twice_has_the_sum_of_both_gradients() -> None:
    builder = popart.Builder()
    w = builder.addInitializedInputTensor(np.array([3.0], np.float32))
    y = builder.aiOnnx.add([builder.aiOnnx.mul([w, w]), w])
    loss = builder.aiGraphcore.identityloss([y])
    gradient = popart.reservedGradientPrefix() + w
    session = popart.TrainingSession(
        builder.getModelProto(), popart.DataFlow(1, [gradient]), loss, popart.ConstSGD(0.1), device(options())
    )
    session.prepareDevice()
    session.weightsFromHost()
    anchors = session.initAnchorArrays()
    session.run(popart.PyStepIO({}, anchors))
    np.testing.assert_allclose(anchors[gradient], [7.0])


def test_two_weights_with_one_gradient() -> None:
    """w1 + w2: both gradients are the same tensor, but each needs separate memory in the bucket."""
    builder = popart.Builder()
    ids = [builder.addInitializedInputTensor(np.full(3, i, np.float32)) for i in (1, 2)]
    loss = builder.aiGraphcore.identityloss([builder.aiOnnx.add(ids)], popart.ReductionType.Sum)
    session = popart.TrainingSession(
        builder.getModelProto(), popart.DataFlow(1, ids), loss, popart.ConstSGD(0.5), device(options(R=2)),
        userOptions=options(R=2),
    )  # fmt: skip
    session.prepareDevice()
    session.weightsFromHost()
    anchors = session.initAnchorArrays()
    session.run(popart.PyStepIO({}, anchors))
    np.testing.assert_array_equal(anchors[ids[0]], np.zeros((2, 3)))
    np.testing.assert_array_equal(anchors[ids[1]], np.ones((2, 3)))


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("values", [{}, {"A": 2, "R": 2}], ids=str)
def test_a_step_allocates_nothing_that_grows_with_the_model(dtype: Any, values: dict[str, int]) -> None:
    """The peak of what numpy and Python allocate in a step is the same for a network 32 times as wide."""
    peaks = []
    for width in (4, 128):
        session, _, data = prepared(dtype, width, **values)
        stepio = popart.PyStepIO(data, session.initAnchorArrays())
        for _ in range(3):
            session.run(stepio)
        tracemalloc.start()
        tracemalloc.reset_peak()
        before = tracemalloc.get_traced_memory()[0]
        session.run(stepio)
        peaks.append(tracemalloc.get_traced_memory()[1] - before)
        tracemalloc.stop()
    assert peaks[1] < peaks[0] + 16 * 1024, peaks


def test_costs_are_counted() -> None:
    session, _, _ = prepared()
    flops = session.executable.cost().flops
    convolution = 2 * 8 * 4 * 36 * 2 * 9
    assert 2 * convolution < flops < 4 * convolution


def test_the_engine_holds_what_the_plan_says() -> None:
    session, _, _ = prepared(R=2)
    assert session.engine.nbytes == 2 * sum(session.executable.plan.sizes.values())


def test_inputs_that_nothing_reads_are_not_loaded() -> None:
    builder = popart.Builder()
    x, unused = (builder.addInputTensor("FLOAT", [2]) for _ in range(2))
    y = builder.aiOnnx.exp([x])
    session = popart.InferenceSession(builder.getModelProto(), popart.DataFlow(1, [y]), device(options()))
    session.prepareDevice()
    loads = [leaf.tensor for leaf in leaves(session.executable.program) if isinstance(leaf, HostLoad)]
    assert loads == [x]
    assert session.hasInfo(unused)
    session.run(popart.PyStepIO({x: np.zeros(2, np.float32)}, session.initAnchorArrays()))
