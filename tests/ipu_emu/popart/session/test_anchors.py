"""Anchors and the order of step data, compared with a slow and obvious model of PopART's rules."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ipu_emu import popart
from tests.helpers.mpi_jobs import PROGRAMS, run_job
from tests.helpers.warm_processes import EMULATOR
from tests.ipu_emu.helpers.reference_anchors import check_all
from tests.ipu_emu.helpers.sessions import device, infer, options, train
from tests.ipu_emu.helpers.threaded_instances import on_instances

#: Comparisons of check_all: kinds with their periods, two accumulations with 4 and 5 anchors, two steps.
EVERY = (3 * 3 + 6) * (4 + 5) * 2


@pytest.mark.parametrize("counts", [(1,), (2,), (4,), (1, 1), (2, 2), (1, 3)])
def test_every_anchor_of_a_training(counts: tuple[int, ...]) -> None:
    """All kinds, for one and several local replicas, and for instances as threads."""
    assert on_instances(counts, check_all) == [EVERY] * len(counts)


PROCESSES = PROGRAMS / "ipu_emu/anchors.py"


def test_every_anchor_in_two_processes(tmp_path: Path) -> None:
    job = run_job(PROCESSES, tmp_path, counts=(2, 2), modules=EMULATOR).succeeded()
    for said in job.out:
        assert f"compared {EVERY}" in said


def identity(shape: list[int]) -> tuple[popart.Builder, str, str]:
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", shape)
    return builder, x, builder.aiOnnx.identity([x])


@pytest.mark.parametrize(
    ("kind", "want"),
    [
        (("All",), [[10, 11], [20, 21], [30, 31]]),
        (("Final",), [30, 31]),
        (("Sum",), [60, 63]),
        (("EveryN", 3), [30, 31]),
    ],
)
def test_the_example_with_two_replicas(kind: Any, want: Any) -> None:
    builder, x, y = identity([])
    data = np.array([10, 11, 20, 21, 30, 31], np.float32)
    anchors = infer(builder, popart.DataFlow(3, {y: popart.AnchorReturnType(*kind)}), {x: data}, options(R=2))
    np.testing.assert_array_equal(anchors[y], want)


def test_every_n_counts_micro_batches() -> None:
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [])
    w = builder.addInitializedInputTensor(np.zeros((), np.float32))
    y = builder.aiOnnx.add([x, w])
    loss = builder.aiGraphcore.identityloss([builder.aiGraphcore.detach([y])])
    for kind, want in ((("EveryN", 3), [4, 32]), (("All",), [[1, 2], [4, 8], [16, 32]])):
        flow = popart.DataFlow(3, {y: popart.AnchorReturnType(*kind)})
        session = train(builder, flow, loss, popart.ConstSGD(0.1), options(A=2))
        anchors = session.initAnchorArrays()
        session.run(popart.PyStepIO({x: np.array([1, 2, 4, 8, 16, 32], np.float32)}, anchors))
        np.testing.assert_array_equal(anchors[y], want)


def test_the_replica_varies_fastest() -> None:
    """Replica 0 sees 10, 12 in batch 0 and 14, 16 in batch 1: w -= 0.1 * sum over its micro-batches and replicas."""
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [1])
    w = builder.addInitializedInputTensor(np.zeros(1, np.float32))
    loss = builder.aiGraphcore.identityloss([builder.aiOnnx.mul([x, w])], popart.ReductionType.Sum)
    accumulator = popart.reservedAccumPrefix() + w
    flow = popart.DataFlow(2, {accumulator: popart.AnchorReturnType("All"), w: popart.AnchorReturnType("All")})
    session = train(builder, flow, loss, popart.ConstSGD(0.1), options(R=2, A=2))
    anchors = session.initAnchorArrays()
    session.run(popart.PyStepIO({x: np.arange(10, 18, dtype=np.float32)}, anchors))
    # [b, a, r, 1]: per-replica running sums, before the reduction over replicas
    np.testing.assert_array_equal(anchors[accumulator][..., 0], [[[10, 11], [22, 24]], [[14, 15], [30, 32]]])
    # with accumulation every micro-batch reports the weight before the update of its batch
    after = np.float32(-0.1 * 46)
    np.testing.assert_allclose(anchors[w][..., 0], [[[0, 0], [0, 0]], [[after, after], [after, after]]], rtol=1e-6)


@pytest.mark.parametrize(
    ("kind", "factor", "want"),
    [("All", 1, [1, 3, 6]), ("Final", 1, 6), ("Sum", 1, 10), ("All", 2, [[0, 0], [3, 3]]), ("Final", 2, 10)],
)
def test_variables_are_returned_after_the_update_unless_gradients_accumulate(
    kind: str, factor: int, want: Any
) -> None:
    """w grows by x at every update, as the learning rate is 1 and the loss -x w."""
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [])
    w = builder.addInitializedInputTensor(np.zeros((), np.float32))
    loss = builder.aiGraphcore.identityloss([builder.aiOnnx.neg([builder.aiOnnx.mul([x, w])])])
    bps = 3 if factor == 1 else 2
    flow = popart.DataFlow(bps, {w: popart.AnchorReturnType(kind)})
    session = train(builder, flow, loss, popart.ConstSGD(1.0), options(A=factor))
    anchors = session.initAnchorArrays()
    session.run(popart.PyStepIO({x: np.arange(1, bps * factor + 1, dtype=np.float32)}, anchors))
    np.testing.assert_array_equal(anchors[w], want)


def test_broadcast_inputs_have_no_replica_dimension() -> None:
    builder = popart.Builder()
    settings = popart.InputSettings(popart.ReplicatedStreamMode.Broadcast)
    x = builder.addInputTensor(popart.TensorInfo("FLOAT", [2]), settings)
    y = builder.aiGraphcore.scale([x], 2.0)
    data = np.array([[1, 2], [3, 4]], np.float32)
    anchors = infer(builder, popart.DataFlow(2, [y]), {x: data}, options(R=3))
    np.testing.assert_array_equal(anchors[y], np.repeat(2 * data[:, None], 3, axis=1))


def test_an_anchor_shape_keeps_the_ones_of_the_tensor() -> None:
    builder, x, y = identity([1, 3, 1])
    anchors = infer(builder, popart.DataFlow(1, [y]), {x: np.zeros((1, 3, 1), np.float32)})
    assert anchors[y].shape == (1, 3, 1)


def test_inputs_weights_and_views_can_be_anchored() -> None:
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [2, 3])
    w = builder.addInitializedInputTensor(np.full((3, 2), 2, np.float32))
    flat = builder.aiOnnx.flatten([w], 0)
    y = builder.aiOnnx.matmul([x, w])
    data = np.arange(6, dtype=np.float32)
    anchors = infer(builder, popart.DataFlow(1, [x, w, flat, y]), {x: data})
    np.testing.assert_array_equal(anchors[x], data.reshape(2, 3))
    np.testing.assert_array_equal(anchors[w], np.full((3, 2), 2))
    np.testing.assert_array_equal(anchors[flat], np.full((1, 6), 2))


class TestErrors:
    """Texts of section 6.2 of the reference."""

    @pytest.mark.parametrize(
        ("arguments", "text"),
        [
            (("some",), "Invalid anchor return type ID supplied: some"),
            (("Final", 2), "A return period should not be supplied for this anchor return type"),
            (("sum", 2), "A return period should not be supplied for this anchor return type"),
            (("EveryN", 0), "Anchor return period must be greater than zero"),
            (("EVERYN",), "Must specify return period with option 'EVERYN'"),
        ],
    )
    def test_return_types(self, arguments: Any, text: str) -> None:
        with pytest.raises(popart.popart_exception) as error:
            popart.AnchorReturnType(*arguments)
        assert error.value.args[0] == text

    @pytest.mark.parametrize(
        ("bps", "period", "text"),
        [
            (2, 3, "Return period must be <= to the number of batches per step"),
            (4, 3, "Return period must be a factor of the number of batches per step"),
            (0, None, "'Batches per step' must be greater than zero"),
        ],
    )
    def test_data_flow(self, bps: int, period: int | None, text: str) -> None:
        anchors = {} if period is None else {"x": popart.AnchorReturnType("EveryN", period)}
        with pytest.raises(popart.popart_exception) as error:
            popart.DataFlow(bps, anchors)
        assert error.value.args[0] == text

    def test_unknown_anchor(self) -> None:
        builder, x, _ = identity([2])
        with pytest.raises(
            popart.popart_exception, match=r"Anchor tensor `nothing' not in Ir Tensors. The tensors are:"
        ):
            infer(builder, popart.DataFlow(1, ["nothing"]), {x: np.zeros(2, np.float32)})


def test_data_flow_answers() -> None:
    flow = popart.DataFlow(4, {"a": popart.AnchorReturnType("everyn", 2), "b": popart.AnchorReturnType("Final")})
    assert (flow.batchesPerStep(), flow.nAnchors(), flow.anchors()) == (4, 2, ["a", "b"])
    assert flow.isAnchored("a")
    assert not flow.isAnchored("c")
    assert (flow.art("a").id(), flow.art("a").rp()) == (popart.AnchorReturnTypeId.EveryN, 2)
    assert popart.DataFlow(1, ["c"]).art("c").id() is popart.AnchorReturnTypeId.All
    named = popart.AnchorReturnType(anchorTypeString="EveryN", returnPeriod=2, tileSet=popart.TileSet.IO)
    assert (named.rp(), named.tileSet()) == (2, popart.TileSet.IO)
    assert popart.DataFlow(1, anchorIds=["c"], anchorReturnType=popart.AnchorReturnType("Sum")).anchors() == ["c"]
    with pytest.raises(TypeError, match=r"'c'.*'All'.*AnchorReturnType"):
        popart.DataFlow(1, {"c": "All"})
    for wrong in ("cost", b"cost", None, 3):
        with pytest.raises(popart.popart_exception, match="give a list of tensor ids"):
            popart.DataFlow(1, wrong)
    with pytest.raises(
        TypeError, match=r"Anchors are given as 'cost'; give a list of tensor ids, such as \['cost'\]"
    ):
        popart.DataFlow(1, anchorIds="cost")
    with pytest.raises(TypeError, match=r"AnchorReturnType\(\) has no parameter 'period'"):
        popart.AnchorReturnType("EveryN", period=2)


def test_a_period_that_no_longer_divides_the_batches() -> None:
    builder, _, y = identity([2])
    flow = popart.DataFlow(4, {y: popart.AnchorReturnType("EveryN", np.int64(2))})
    opts = options()
    session = popart.InferenceSession(builder.getModelProto(), flow, device(opts), userOptions=opts)
    session.dataFlow.setBatchesPerStep(3)
    with pytest.raises(RuntimeError) as error:
        session.initAnchorArrays()
    assert error.value.args[0] == "Invalid anchor period, is not divisble by batchesPerStep"
