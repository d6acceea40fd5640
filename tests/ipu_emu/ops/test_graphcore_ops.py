"""Ops of aiGraphcore, and random ops, without a gradient or with random results."""

from __future__ import annotations

import numpy as np
import pytest

from ipu_emu import popart
from tests.ipu_emu.helpers.sessions import infer, train


def test_buckets_are_those_of_numpy() -> None:
    x = np.array([[-1.0, 0.0, 0.5], [2.0, 3.5, 7.0]], np.float32)
    edges = np.array([0, 2, 3.5], np.float32)
    builder = popart.Builder()
    id = builder.addInputTensor(popart.TensorInfo(x))
    boundaries = builder.aiOnnx.constant(edges)
    left = builder.aiGraphcore.bucketize([id, boundaries])
    right = builder.aiGraphcore.bucketize([id, boundaries], 1)
    outputs = infer(builder, popart.DataFlow(1, [left, right]), {id: x})
    np.testing.assert_array_equal(outputs[left], np.digitize(x, edges, right=True))
    np.testing.assert_array_equal(outputs[right], np.digitize(x, edges))


@pytest.mark.parametrize("right", [0, 1])
def test_of_unsorted_boundaries_the_first_bucket_counts(right: int) -> None:
    """Bucket i holds b[i - 1] < x <= b[i], to the right b[i - 1] <= x < b[i]; then 0 counts, then their number."""
    x, edges = np.array([-2, 0, 1, 2, 3, 4, 5, 9], np.float32), np.array([1, 4, 2, 5], np.float32)
    builder = popart.Builder()
    id = builder.addInputTensor(popart.TensorInfo(x))
    output = builder.aiGraphcore.bucketize([id, builder.aiOnnx.constant(edges)], right)
    expected = []
    for value in x:
        inside = [
            i for i in (1, 2, 3) if (edges[i - 1] <= value < edges[i] if right else edges[i - 1] < value <= edges[i])
        ]
        first = value < edges[0] if right else value <= edges[0]
        expected.append(inside[0] if inside else 0 if first else len(edges))
    np.testing.assert_array_equal(infer(builder, popart.DataFlow(1, [output]), {id: x})[output], expected)


def test_a_tensor_with_another_layout_is_the_same() -> None:
    builder = popart.Builder()
    ids = [builder.addInitializedInputTensor(np.arange(n, dtype=np.float32)) for n in (3, 5)]
    remapped = [
        builder.aiGraphcore.tensorremap(ids[:1]),
        builder.aiGraphcore.tensorremap(ids, popart.TensorRemapType.Fwd),
    ]
    loss = builder.aiGraphcore.identityloss([builder.aiOnnx.add(remapped)], popart.ReductionType.Sum)
    gradient = popart.reservedGradientPrefix() + ids[0]
    session = train(builder, popart.DataFlow(1, [*remapped, gradient]), loss, popart.ConstSGD(0.1))
    anchors = session.initAnchorArrays()
    session.run(popart.PyStepIO({}, anchors))
    for id in remapped:
        np.testing.assert_array_equal(anchors[id], [0, 1, 2])
    np.testing.assert_array_equal(anchors[gradient], [2, 2, 2])


def test_a_variable_gets_the_assigned_value() -> None:
    builder = popart.Builder()
    weights = builder.addInitializedInputTensor(np.zeros(3, np.float32))
    id = builder.addInputTensor(popart.TensorInfo("FLOAT", [3]))
    builder.aiGraphcore.copyvarupdate([weights, id])
    loss = builder.aiGraphcore.l1loss([id], 1.0)
    session = train(builder, popart.DataFlow(1, [loss]), loss, popart.ConstSGD(0.1))
    value = np.array([3, 1, 2], np.float32)
    session.run(popart.PyStepIO({id: value}, session.initAnchorArrays()))
    weight = np.empty(3, np.float32)
    session.weightsToHost()
    session.readWeights(popart.PyWeightsIO({weights: weight}))
    np.testing.assert_array_equal(weight, value)


@pytest.mark.parametrize("zero", [False, True])
def test_a_ctc_loss_without_any_path_is_infinite_or_0(zero: bool) -> None:
    """Three equal labels need five time steps."""
    builder = popart.Builder()
    logs = builder.addInitializedInputTensor(np.full((4, 2, 3), np.log(1 / 3), np.float32))
    numbers = [np.array(v, np.uint32) for v in ([[1, 1, 1], [1, 2, 0]], [4, 4], [3, 2])]
    rest = [builder.aiOnnx.constant(value) for value in numbers]
    losses = builder.aiGraphcore.ctcloss([logs, *rest], popart.ReductionType.NoReduction, 0, "UNDEFINED", zero)
    total = builder.aiGraphcore.identityloss([losses], popart.ReductionType.Sum)
    gradient = popart.reservedGradientPrefix() + logs
    session = train(builder, popart.DataFlow(1, [losses, gradient]), total, popart.ConstSGD(1e-30))
    anchors = session.initAnchorArrays()
    session.run(popart.PyStepIO({}, anchors))
    assert anchors[losses][0] == (0 if zero else np.inf)
    paths = 15  # of length 4 over b 1 b 2 b, counted by hand: 3^4 sequences, of which 15 shorten to 1 2
    assert anchors[losses][1] == pytest.approx(-np.log(paths / 81), rel=1e-6)
    if zero:
        assert np.isfinite(anchors[gradient]).all()


def test_shaped_dropout_keeps_or_drops_whole_rows() -> None:
    builder = popart.Builder()
    x = builder.addInitializedInputTensor(np.ones((400, 3), np.float32))
    y = builder.aiGraphcore.shapeddropout([x], [400, 1], 0.25)
    loss = builder.aiGraphcore.identityloss([y], popart.ReductionType.Sum)
    gradient = popart.reservedGradientPrefix() + x
    session = train(builder, popart.DataFlow(1, [y, gradient]), loss, popart.ConstSGD(1e-30))
    anchors = session.initAnchorArrays()
    session.run(popart.PyStepIO({}, anchors))
    dropped = anchors[y]
    np.testing.assert_array_equal(dropped, np.broadcast_to(dropped[:, :1], dropped.shape))
    assert set(np.unique(dropped)) == {0, np.float32(1 / 0.75)}
    assert 0.68 < (dropped[:, 0] > 0).mean() < 0.82
    np.testing.assert_array_equal(anchors[gradient], dropped)
    identity = infer(builder, popart.DataFlow(1, [y]), {})
    np.testing.assert_array_equal(identity[y], np.ones((400, 3)))


def test_multinomial_draws_classes_as_often_as_their_probabilities_say() -> None:
    shares = np.array([[0.1, 0.2, 0.7], [0.5, 0.5, 0.0]], np.float32)
    builder = popart.Builder()
    id = builder.addInputTensor(popart.TensorInfo(shares))
    drawn = builder.aiOnnx.multinomial([builder.aiOnnx.log([id])], 6, 4000)
    draws = infer(builder, popart.DataFlow(1, [drawn]), {id: shares})[drawn]
    assert draws.shape == (2, 4000)
    assert draws.dtype == np.int32
    for row, expected in zip(draws, shares, strict=True):
        np.testing.assert_allclose(np.bincount(row, minlength=3) / 4000, expected, atol=0.03)


@pytest.mark.parametrize(("training", "ratio"), [(True, 0.25), (False, 0.25), (True, 0.0)])
def test_a_dropout_of_opset_12_is_active_by_its_input(training: bool, ratio: float) -> None:
    builder = popart.Builder()
    x = builder.addInitializedInputTensor(np.ones(4000, np.float32))
    rest = [builder.aiOnnx.constant(np.array(value)) for value in (np.float32(ratio), training)]
    (y,) = builder.customOp("Dropout", 12, "ai.onnx", [x, *rest], {})
    loss = builder.aiGraphcore.identityloss([y], popart.ReductionType.Sum)
    session = train(builder, popart.DataFlow(1, [y]), loss, popart.ConstSGD(1e-30))
    anchors = session.initAnchorArrays()
    session.run(popart.PyStepIO({}, anchors))
    dropped = (anchors[y] == 0).mean()
    assert abs(dropped - (ratio if training else 0)) < 0.03
    assert anchors[y].max() == pytest.approx(1 / (1 - ratio) if training else 1)


def test_abort_ends_the_step_where_its_input_is_not_zero() -> None:
    builder = popart.Builder()
    x, test = builder.addInputTensor("FLOAT", [2]), builder.addInputTensor("INT32", [])
    builder.aiGraphcore.abort([test])
    y = builder.aiOnnx.neg([x])
    inputs = {x: np.ones(2, np.float32), test: np.array(0, np.int32)}
    np.testing.assert_array_equal(infer(builder, popart.DataFlow(1, [y]), inputs)[y], [-1, -1])
    with pytest.raises(popart.poplar_application_runtime_error, match="The program was aborted by Op Abort"):
        infer(builder, popart.DataFlow(1, [y]), inputs | {test: np.array(3, np.int32)})


def test_abort_without_an_input_always_ends_the_step() -> None:
    builder = popart.Builder()
    y = builder.aiOnnx.neg([builder.addInputTensor("FLOAT", [2])])
    builder.aiGraphcore.abort([])
    with pytest.raises(popart.poplar_application_runtime_error, match="The program was aborted"):
        infer(builder, popart.DataFlow(1, [y]), {"input": np.ones(2, np.float32)})


def test_printtensor_prints_values_and_gradients(capfd: pytest.CaptureFixture[str]) -> None:
    builder = popart.Builder()
    x = builder.addInitializedInputTensor(np.array([1.5, -2.0], np.float32))
    y = builder.aiGraphcore.printtensor([x], title="weights")
    quiet = builder.aiGraphcore.printtensor([y], 0, "a name", "twice")
    loss = builder.aiGraphcore.identityloss([builder.aiOnnx.add([quiet, y])], popart.ReductionType.Sum)
    session = train(builder, popart.DataFlow(1, [loss]), loss, popart.ConstSGD(0.5))
    assert capfd.readouterr().err == ""
    session.run(popart.PyStepIO({}, session.initAnchorArrays()))
    printed = [
        "weights: [1.5000000 -2.0000000]",
        "twice: [1.5000000 -2.0000000]",
        "Gradient___weights: [2.0000000 2.0000000]",
    ]
    assert capfd.readouterr().err.splitlines() == printed


def test_convolutions_planned_together_need_no_bias() -> None:
    builder = popart.Builder()
    x, w = np.arange(16, dtype=np.float32).reshape(1, 1, 4, 4), np.ones((1, 1, 3, 3), np.float32)
    ids = [builder.addInputTensor(popart.TensorInfo(array)) for array in (x, w)]
    first, second = builder.aiGraphcore.multiconv([ids, ids], strides=[[1, 1], [2, 2]])
    outputs = infer(builder, popart.DataFlow(1, [first, second]), dict(zip(ids, (x, w), strict=True)))
    np.testing.assert_array_equal(outputs[first][0, 0], [[45, 54], [81, 90]])
    np.testing.assert_array_equal(outputs[second][0, 0], [[45]])


def test_whole_numbers_can_be_scaled() -> None:
    builder = popart.Builder()
    x = builder.addInputTensor("INT32", [3])
    y = builder.aiGraphcore.scale([x], 2)
    outputs = infer(builder, popart.DataFlow(1, [y]), {x: np.array([1, -2, 3], np.int32)})
    np.testing.assert_array_equal(outputs[y], [2, -4, 6])


@pytest.mark.parametrize("loss", ["identityloss", "nllloss"])
def test_a_reduction_that_does_not_exist_is_refused(loss: str) -> None:
    builder = popart.Builder()
    inputs = [builder.addInputTensor("FLOAT", [2, 3]), builder.addInputTensor("INT32", [2])]
    output = getattr(builder.aiGraphcore, loss)(inputs if loss == "nllloss" else inputs[:1], reduction="sum")
    with pytest.raises(popart.popart_exception, match=r"'sum'.*Mean, Sum, NoReduction"):
        infer(builder, popart.DataFlow(1, [output]), {})


def test_labels_are_integers_of_32_bits() -> None:
    builder = popart.Builder()
    output = builder.aiGraphcore.nllloss(
        [builder.addInputTensor("FLOAT", [2, 3]), builder.addInputTensor("INT8", [2])]
    )
    with pytest.raises(popart.popart_exception, match="Expected the label tensor NllOp to be an integer data type"):
        infer(builder, popart.DataFlow(1, [output]), {})


@pytest.mark.parametrize(("apart", "expected"), [(0, [10, 16, 6, 5]), (1, [10, 6, 6, 5])])
def test_gradients_of_slices_that_do_not_overlap_are_written(apart: int, expected: list[float]) -> None:
    """If they do overlap, the last slice counts; gradients of other readers of the tensor are added."""
    builder = popart.Builder()
    w = builder.addInitializedInputTensor(np.ones(4, np.float32))
    at = [builder.aiOnnx.constant(np.array([start], np.uint32)) for start in (0, 1)]
    first, second = (builder.aiGraphcore.dynamicslice([w, start], [0], [2], apart) for start in at)
    weights = builder.aiOnnx.constant(np.array([0, 0, 0, 5], np.float32))
    parts = [
        builder.aiGraphcore.scale([builder.aiOnnx.reducesum([first])], 10.0),
        builder.aiGraphcore.scale([builder.aiOnnx.reducesum([second])], 6.0),
        builder.aiOnnx.reducesum([builder.aiOnnx.mul([w, weights])]),
    ]
    loss = builder.aiGraphcore.identityloss([builder.aiOnnx.sum(parts)], popart.ReductionType.Sum)
    gradient = popart.reservedGradientPrefix() + w
    session = train(builder, popart.DataFlow(1, [gradient]), loss, popart.ConstSGD(0.1))
    anchors = session.initAnchorArrays()
    session.run(popart.PyStepIO({}, anchors))
    assert anchors[gradient].tolist() == expected
