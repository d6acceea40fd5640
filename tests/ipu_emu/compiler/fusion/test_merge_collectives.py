"""Merged collectives: those of the graph, and gradients in few all-reduces, within and between instances."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ipu_emu import popart
from ipu_emu.program.instructions import ShardCollectives, leaves
from tests.ipu_emu.helpers.sessions import device, infer, options, train
from tests.ipu_emu.helpers.threaded_instances import Instance, on_instances, session_on

OP, T = popart.CollectiveOperator, popart.CommGroupType
DATA = np.random.default_rng(0).integers(-4, 5, (4, 5)).astype(np.float32)
GROUPS = {
    (T.All, 0): [[0, 1, 2, 3]],
    (T.Consecutive, 2): [[0, 1], [2, 3]],
    (T.Orthogonal, 2): [[0, 2], [1, 3]],
    (T.Ungrouped, 0): [[0], [1], [2], [3]],
}
REDUCED = {
    OP.Add: lambda x: x.sum(axis=0),
    OP.Mean: lambda x: x.mean(axis=0),
    OP.Mul: lambda x: x.prod(axis=0),
    OP.Min: lambda x: x.min(axis=0),
    OP.Max: lambda x: x.max(axis=0),
    OP.SquareAdd: lambda x: (x * x).sum(axis=0),
}


def built(type: str, operator: Any, group: Any, shape: tuple[int, ...] = (5,)) -> tuple[Any, str, str]:
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", list(shape))
    attributes: dict[str, Any] = {}
    if operator is not None:
        attributes["__collectiveOperator"] = int(operator)
    if group is not None:
        attributes["__collectiveCommGroup"] = [int(group[0]), group[1]]
    return builder, x, builder.customOp(type, 1, "ai.graphcore", [x], attributes)[0]


def result(type: str, operator: Any, group: Any) -> np.ndarray:
    builder, x, y = built(type, operator, group)
    return np.array(infer(builder, popart.DataFlow(1, [y]), {x: DATA}, options(R=4))[y])


@pytest.mark.parametrize("group", GROUPS, ids=str)
@pytest.mark.parametrize("operator", REDUCED, ids=str)
def test_all_reduce(operator: Any, group: Any) -> None:
    reduced = result("ReplicatedAllReduce", operator, group)
    for members in GROUPS[group]:
        for replica in members:
            np.testing.assert_allclose(reduced[replica], REDUCED[operator](DATA[members]), rtol=1e-6)


@pytest.mark.parametrize("group", GROUPS, ids=str)
def test_reduce_scatter_pads_the_last_shard(group: Any) -> None:
    """5 elements over 4, 2 or 1 replicas: shards of 2, 3 or 5."""
    shards = result("ReplicatedReduceScatter", OP.Add, group)
    for members in GROUPS[group]:
        width = -(-5 // len(members))
        padded = np.zeros(width * len(members), np.float32)
        padded[:5] = DATA[members].sum(axis=0)
        for index, replica in enumerate(members):
            np.testing.assert_array_equal(shards[replica], padded[index * width : (index + 1) * width])


def test_local_keeps_the_shard_of_the_replica() -> None:
    shard = result("ReplicatedReduceScatter", OP.Local, None)
    padded = np.concatenate([DATA, np.zeros((4, 3), np.float32)], axis=1)
    np.testing.assert_array_equal(shard, [padded[r, 2 * r : 2 * r + 2] for r in range(4)])


def test_the_operator_is_add_over_all_by_default() -> None:
    np.testing.assert_array_equal(result("ReplicatedAllReduce", None, None), np.tile(DATA.sum(axis=0), (4, 1)))


def test_a_single_number_is_reduced() -> None:
    builder, x, y = built("ReplicatedAllReduce", OP.Max, None, ())
    anchors = infer(builder, popart.DataFlow(1, [y]), {x: DATA[:, 0].copy()}, options(R=4))
    np.testing.assert_array_equal(anchors[y], np.full(4, DATA[:, 0].max()))


def test_one_replica_alone_keeps_its_tensor() -> None:
    for type in ("ReplicatedAllReduce", "ReplicatedReduceScatter"):
        builder, x, y = built(type, OP.Add, None)
        anchors = infer(builder, popart.DataFlow(1, [y]), {x: DATA[0]})
        np.testing.assert_array_equal(anchors[y], DATA[0])


def test_a_shard_in_a_subgraph_is_that_of_all_replicas() -> None:
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [5])
    callee = builder.createSubgraphBuilder()
    callee.addOutputTensor(callee.aiGraphcore.replicatedreducescatter([callee.addInputTensor("FLOAT", [5])]))
    y = builder.aiGraphcore.call([x], 1, callee)[0]
    shard = infer(builder, popart.DataFlow(1, [y]), {x: DATA}, options(R=4))[y]
    np.testing.assert_array_equal(shard, result("ReplicatedReduceScatter", OP.Add, None))


def refused(type: str, operator: Any, group: Any, kind: str = "FLOAT") -> str:
    builder = popart.Builder()
    x = builder.addInputTensor(kind, [5])
    attributes = {"__collectiveOperator": int(operator), "__collectiveCommGroup": [int(group[0]), group[1]]}
    y = builder.customOp(type, 1, "ai.graphcore", [x], attributes)[0]
    opts = options(R=4)
    with pytest.raises(popart.popart_exception) as error:
        popart.InferenceSession(builder.getModelProto(), popart.DataFlow(1, [y]), device(opts), userOptions=opts)
    return str(error.value.args[0])


@pytest.mark.parametrize("type", ["ReplicatedAllReduce", "ReplicatedReduceScatter"])
def test_groups_and_types_that_do_not_fit_are_refused_by_the_constructor(type: str) -> None:
    assert "4 is not divisible by 3" in refused(type, OP.Add, (T.Consecutive, 3))
    assert "operator logical_and does not take int32; it takes bool" in refused(
        type, OP.LogicalAnd, (T.All, 0), "INT32"
    )
    assert "operator add does not take bool; use" in refused(type, OP.Add, (T.All, 0), "BOOL")


@pytest.mark.parametrize("counts", [(2, 2), (1, 3), (1, 1, 1, 1)])
@pytest.mark.parametrize("group", GROUPS, ids=str)
def test_collectives_reach_over_instances(group: Any, counts: tuple[int, ...]) -> None:
    builder, x, y = built("ReplicatedAllReduce", OP.Add, group)

    def work(instance: Instance) -> np.ndarray:
        opts = instance.configure(options())
        flow = popart.DataFlow(1, [y])
        session = session_on(instance, popart.InferenceSession, builder.getModelProto(), flow, userOptions=opts)
        session.prepareDevice()
        anchors = session.initAnchorArrays()
        own = np.ascontiguousarray(DATA[instance.offset : instance.offset + instance.local])
        session.run(popart.PyStepIO({x: own}, anchors))
        return np.array(anchors[y]).reshape(instance.local, 5)

    reduced = np.concatenate(on_instances(counts, work))
    np.testing.assert_array_equal(reduced, result("ReplicatedAllReduce", OP.Add, group))


def test_unknown_numbers_are_refused() -> None:
    with pytest.raises(popart.popart_exception, match=r"operator 9.*0 to 8"):
        popart.Builder(built("ReplicatedAllReduce", 9, None)[0].getModelProto())
    with pytest.raises(popart.popart_exception, match=r"group type 4.*0 to 3"):
        popart.Builder(built("ReplicatedReduceScatter", None, (4, 0))[0].getModelProto())


def layers(limit: int | None) -> tuple[Any, list[str], Any]:
    """Five weights of 256 bytes; all-reduces of at most ``limit`` bytes."""
    builder = popart.Builder()
    h = x = builder.addInputTensor("FLOAT", [2, 8])
    random = np.random.default_rng(1)
    weights = [builder.addInitializedInputTensor(random.standard_normal((8, 8)).astype(np.float32)) for _ in range(5)]
    for w in weights:
        h = builder.aiOnnx.tanh([builder.aiOnnx.matmul([h, w])])
    loss = builder.aiGraphcore.l1loss([h], 1.0)
    opts = options(R=2)
    if limit is not None:
        opts.gclOptions = {"maximum_reduce_many_buffer_size": str(limit)}
    session = train(builder, popart.DataFlow(1, [loss]), loss, popart.ConstSGD(0.1), opts)
    session.run(
        popart.PyStepIO({x: random.standard_normal((2, 2, 8)).astype(np.float32)}, session.initAnchorArrays())
    )
    return session, weights, [session.engine.read(id) for id in weights]


@pytest.mark.parametrize(("limit", "count"), [(None, 1), (10_000, 1), (512, 3), (300, 5), (1, 5)])
def test_gradients_are_merged_up_to_a_limit(limit: int | None, count: int) -> None:
    session, _, gradients = layers(limit)
    assert session.getSummaryReport().count("AllReduce") == count
    for gradient, other in zip(gradients, layers(None)[2], strict=True):
        np.testing.assert_array_equal(gradient, other)


def test_the_limit_is_a_number() -> None:
    opts = options(R=2, gclOptions={"maximum_reduce_many_buffer_size": "much"})
    builder = popart.Builder()
    loss = builder.aiGraphcore.identityloss([builder.addInitializedInputTensor(np.ones(2, np.float32))])
    session = popart.TrainingSession(
        builder.getModelProto(),
        popart.DataFlow(1, [loss]),
        loss,
        popart.ConstSGD(0.1),
        device(opts),
        userOptions=opts,
    )
    with pytest.raises(popart.popart_exception, match=r"maximum_reduce_many_buffer_size=much.*bytes"):
        session.prepareDevice()


def test_an_ipu_reduces_at_most_its_own_largest_gradient_at_once() -> None:
    """Regardless of larger gradients of another IPU; its own small ones become one collective."""
    builder = popart.Builder()
    y = builder.addInputTensor("FLOAT", [2, 64])
    for ipu, widths in enumerate(((64, 64), (8, 8, 8))):
        with builder.virtualGraph(ipu):
            for width in widths:
                rows = builder.getTensorShape(y)[1]
                w = builder.addInitializedInputTensor(np.ones((rows, width), np.float32))
                y = builder.aiOnnx.gemm([y, w, builder.addInitializedInputTensor(np.zeros(width, np.float32))])
    with builder.virtualGraph(1):
        loss = builder.aiGraphcore.l1loss([y], 1.0)
    shared = popart.TensorLocation(popart.TensorStorage.OnChip, popart.ReplicatedTensorSharding.On)
    opts = options(R=2, virtualGraphMode=popart.VirtualGraphMode.Manual)
    opts.optimizerStateTensorLocationSettings = popart.TensorLocationSettings(shared, 0, 0)
    device = popart.DeviceManager().createSimDevice({"numIPUs": 4, "tilesPerIPU": 1472})
    optimizer = popart.SGD({"defaultLearningRate": (0.1, True), "defaultMomentum": (0.9, True)})
    flow = popart.DataFlow(1, [loss])
    session = popart.TrainingSession(builder.getModelProto(), flow, loss, optimizer, device, userOptions=opts)
    session.prepareDevice()
    merged = [leaf.members for leaf in leaves(session.executable.program) if isinstance(leaf, ShardCollectives)]
    on_second = [ops for ops in merged if ops[0].place.ipu == 1 and ops[0].type == "ReduceScatterGradient"]
    graph = session.executable.graph
    sizes = [sum(graph.tensor(op.inputs[0]).nbytes for op in ops) for ops in on_second]
    assert max(sizes) == 64 * 8 * 4
    assert len(sizes) < 6
