"""Loops with a computed count or condition, compared with the same loop in numpy; and nested bodies."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

from ipu_emu import popart
from tests.ipu_emu.helpers.sessions import infer, options, train
from tests.ipu_emu.ops.test_control import VECTOR, X, body_with

COUNT, FLAG = popart.TensorInfo("INT32", []), popart.TensorInfo("BOOL", [])


def doubled(builder: popart.Builder, states: list[str], trips: str, kind: popart.TensorInfo) -> list[str]:
    """(a, b) becomes (b, a + b + i), ``trips`` times."""

    def body(c: popart.Builder, i: str, going: str, a: str, b: str) -> list[str]:
        return [going, b, c.aiOnnx.add([c.aiOnnx.add([a, b]), c.aiOnnx.cast([i], kind.data_type())])]

    kinds = [COUNT, FLAG, kind, kind]
    return list(builder.aiOnnx.loop([trips, "", *states], 2, body_with(builder, kinds, body)))


def expected(a: np.ndarray, b: np.ndarray, trips: int) -> tuple[np.ndarray, np.ndarray]:
    for i in range(trips):
        a, b = b, (a + b).astype(a.dtype) + a.dtype.type(i)
    return a, b


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_the_number_of_iterations_may_be_an_input(dtype: type) -> None:
    builder = popart.Builder()
    kind = popart.TensorInfo(dtype, [3])
    a, b, trips = (builder.addInputTensor(info) for info in (kind, kind, COUNT))
    outputs = doubled(builder, [a, b], trips, kind)
    first, second = X.astype(dtype), 2 * X.astype(dtype)
    for number in (0, 1, 2, 7):
        flow, inputs = popart.DataFlow(1, outputs), {a: first, b: second, trips: np.array(number, np.int32)}
        results = infer(builder, flow, inputs)
        for id, value in zip(outputs, expected(first, second, number), strict=True):
            np.testing.assert_array_equal(results[id], value)


def halving(builder: popart.Builder, x: str, limit: str) -> str:
    """x / 2 until its sum is below the limit: a loop without a count, whose body uses tensors of the graph."""
    going = builder.aiOnnx.less([limit, builder.aiOnnx.reducesum([x], None, 0)])

    def body(c: popart.Builder, i: str, condition: str, state: str) -> list[str]:
        half = c.aiOnnx.mul([state, c.aiOnnx.constant(np.array(0.5, np.float32))])
        return [c.aiOnnx.less([limit, c.aiOnnx.reducesum([half], None, 0)]), half]

    return str(builder.aiOnnx.loop(["", going, x], 1, body_with(builder, [COUNT, FLAG, VECTOR], body))[0])


def test_a_loop_may_have_only_a_condition() -> None:
    builder = popart.Builder()
    x, limit = builder.addInputTensor(VECTOR), builder.addInputTensor("FLOAT", [])
    y = halving(builder, x, limit)
    for bound, halvings in ((100.0, 0), (4.0, 1), (0.1, 6)):
        outputs = infer(
            builder, popart.DataFlow(1, [y]), {x: np.full(3, 2.0, np.float32), limit: np.float32([bound])}
        )
        np.testing.assert_array_equal(outputs[y], np.full(3, 2.0 / 2**halvings))


def test_every_replica_and_micro_batch_counts_for_itself() -> None:
    builder = popart.Builder()
    x, limit = builder.addInputTensor(VECTOR), builder.addInputTensor("FLOAT", [])
    y = halving(builder, x, limit)
    opts = options(enableReplicatedGraphs=True, replicatedGraphCount=2)
    limits = np.array([1.6, 0.9, 0.4, 100], np.float32)
    data = np.ones((2, 2, 3), np.float32)
    outputs = infer(builder, popart.DataFlow(2, [y]), {x: data, limit: limits}, opts)
    np.testing.assert_array_equal(outputs[y][..., 0], [[0.5, 0.25], [0.125, 1.0]])


def test_an_executable_with_a_loop_is_kept(tmp_path: Path) -> None:
    builder = popart.Builder()
    x, limit = builder.addInputTensor(VECTOR), builder.addInputTensor("FLOAT", [])
    y = halving(builder, x, limit)
    opts = options(enableEngineCaching=True, cachePath=str(tmp_path))
    inputs = {x: np.ones(3, np.float32), limit: np.float32([0.8])}
    for _ in range(2):
        np.testing.assert_array_equal(infer(builder, popart.DataFlow(1, [y]), inputs, opts)[y], np.full(3, 0.25))
    assert len(list(tmp_path.glob("*.ipuexe"))) == 1


def test_loops_and_branches_within_a_loop() -> None:
    """Adds j to x for j < i, in odd rounds i; else multiplies by the exponential of the weight."""
    builder = popart.Builder()
    x, trips = builder.addInputTensor(VECTOR), builder.addInputTensor(COUNT)
    w = builder.addInitializedInputTensor(np.array(0.25, np.float32))

    def round(c: popart.Builder, i: str, going: str, state: str) -> list[str]:
        factor = c.aiOnnx.exp([w])

        def inner(d: popart.Builder, j: str, on: str, s: str) -> list[str]:
            return [on, d.aiOnnx.add([s, d.aiOnnx.cast([j], "FLOAT")])]

        def odd(d: popart.Builder) -> list[str]:
            return list(d.aiOnnx.loop([i, "", state], 1, body_with(d, [COUNT, FLAG, VECTOR], inner)))

        two = c.aiOnnx.constant(np.array(2, np.int32))
        halves = c.aiOnnx.mul([c.aiOnnx.div([i, two]), two])
        even = body_with(c, [], lambda d: [d.aiOnnx.mul([state, factor])])
        (new,) = c.aiOnnx.logical_if([c.aiOnnx.equal([i, halves])], 1, body_with(c, [], odd), even)
        return [going, new]

    (y,) = builder.aiOnnx.loop([trips, "", x], 1, body_with(builder, [COUNT, FLAG, VECTOR], round))
    result = infer(builder, popart.DataFlow(1, [y]), {x: X, trips: np.array(6, np.int32)})[y]
    value = X
    for i in range(6):
        value = value + np.float32(sum(range(i))) if i % 2 else value * np.exp(np.float32(0.25))
    np.testing.assert_allclose(result, value, rtol=1e-6)


def test_a_branch_within_a_branch_uses_what_the_outer_one_makes() -> None:
    builder = popart.Builder()
    x, test = builder.addInputTensor(VECTOR), builder.addInputTensor(FLAG)

    def outer(c: popart.Builder) -> list[str]:
        y = c.aiOnnx.exp([x])
        twice, square = (body_with(c, [], lambda d, op=op: [getattr(d.aiOnnx, op)([y, y])]) for op in ("add", "mul"))
        return list(c.aiOnnx.logical_if([test], 1, square, twice))

    negated = body_with(builder, [], lambda c: [c.aiOnnx.neg([x])])
    (z,) = builder.aiOnnx.logical_if([test], 1, negated, body_with(builder, [], outer))
    for flag, value in ((True, 2 * np.exp(X)), (False, -X)):
        np.testing.assert_allclose(infer(builder, popart.DataFlow(1, [z]), {x: X, test: np.array(flag)})[z], value)


def test_convolutions_in_a_loop_and_around_it() -> None:
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(3)
    image, weight = rng.normal(size=(2, 3, 5, 5)).astype("f"), rng.normal(size=(3, 3, 3, 3)).astype("f") / 4
    builder = popart.Builder()
    x, trips = builder.addInputTensor(popart.TensorInfo(image)), builder.addInputTensor(COUNT)
    w = builder.addInitializedInputTensor(weight)

    def conv(c: popart.Builder, id: str) -> str:
        return str(c.aiOnnx.relu([c.aiOnnx.conv([id, w], [1, 1], 1, [], [1, 1, 1, 1], [1, 1])]))

    kinds = [COUNT, FLAG, popart.TensorInfo(image)]
    body = body_with(builder, kinds, lambda c, i, going, state: [going, conv(c, state)])
    y = conv(builder, builder.aiOnnx.loop([trips, "", conv(builder, x)], 1, body)[0])
    value = torch.tensor(image)
    for _ in range(5):
        value = torch.relu(torch.nn.functional.conv2d(value, torch.tensor(weight), padding=1))
    result = infer(builder, popart.DataFlow(1, [y]), {x: image, trips: np.array(3, np.int32)})[y]
    np.testing.assert_allclose(result, value.numpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("trips", [0, 30_000])
def test_a_known_count_may_be_large_or_zero(trips: int) -> None:
    """Running sums, collected."""
    builder = popart.Builder()
    x = builder.addInputTensor(VECTOR)

    def body(c: popart.Builder, i: str, going: str, state: str) -> list[str]:
        new = c.aiOnnx.add([state, x])
        return [going, new, c.aiOnnx.reducesum([new], None, 0)]

    count = builder.aiOnnx.constant(np.array(trips, np.int64))
    child = body_with(builder, [COUNT, FLAG, VECTOR], body)
    last, sums = builder.aiOnnx.loop([count, "", x], 2, child)
    outputs = infer(builder, popart.DataFlow(1, [last, sums]), {x: np.array([1, 2, 0], np.float32)})
    np.testing.assert_array_equal(outputs[last], [trips + 1, 2 * trips + 2, 0])
    np.testing.assert_array_equal(outputs[sums], 3 * np.arange(2, trips + 2))


def test_gradients_may_bypass_a_computed_loop_but_not_pass_through_it() -> None:
    builder = popart.Builder()
    x = builder.addInitializedInputTensor(X)
    limit = builder.addInputTensor("FLOAT", [])
    y = halving(builder, builder.aiGraphcore.detach([x]), limit)
    loss = builder.aiGraphcore.identityloss([builder.aiOnnx.mul([x, y])], popart.ReductionType.Sum)
    gradient = popart.reservedGradientPrefix() + x
    session = train(builder, popart.DataFlow(1, [gradient]), loss, popart.ConstSGD(1e-30))
    anchors = session.initAnchorArrays()
    session.run(popart.PyStepIO({limit: np.float32([0.5])}, anchors))
    np.testing.assert_array_equal(anchors[gradient], X / 4)
    through = builder.aiGraphcore.identityloss([halving(builder, x, limit)], popart.ReductionType.Sum)
    with pytest.raises(popart.popart_exception, match=r"no gradient.*loop"):
        train(builder, popart.DataFlow(1, [gradient]), through, popart.ConstSGD(1e-30))


@pytest.mark.parametrize(
    ("text", "counted", "outputs", "build"),
    [
        ("M .input 0. is not a constant, so the shape", True, 2, lambda c, s: [c.aiOnnx.exp([s]), s]),
        ("the loop never ends", False, 1, lambda c, s: [c.aiOnnx.exp([s])]),
        ("is random or changes a variable", True, 1, lambda c, s: [c.aiOnnx.dropout([s], 1)[0]]),
    ],
)
def test_unsupported_uses_of_a_computed_loop_are_refused(text: str, counted: bool, outputs: int, build: Any) -> None:
    builder = popart.Builder()
    x, trips = builder.addInputTensor(VECTOR), builder.addInputTensor(COUNT)
    body = body_with(builder, [COUNT, FLAG, VECTOR], lambda c, i, going, s: [going, *build(c, s)])
    ids = builder.aiOnnx.loop([trips if counted else "", "", x], outputs, body)
    with pytest.raises(popart.popart_exception, match=text):
        infer(builder, popart.DataFlow(1, [ids[0]]), {x: X, trips: np.array(2, np.int32)})


@pytest.mark.parametrize("back", [0, 1])
def test_scan_of_opset_8_treats_each_sample_apart(back: int) -> None:
    kinds = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in "srno"]
    nodes = [helper.make_node("Add", ["s", "r"], ["n"]), helper.make_node("Mul", ["n", "r"], ["o"])]
    body = helper.make_graph(nodes, "body", kinds[:2], kinds[2:])
    node = helper.make_node(
        "Scan", ["", "start", "x"], ["last", "rows"], body=body, num_scan_inputs=1, directions=[back]
    )
    shapes = {"start": [3, 2], "x": [3, 4, 2], "last": [3, 2], "rows": [3, 4, 2]}
    infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in shapes.items()]
    graph = helper.make_graph([node], "g", infos[:2], infos[2:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 8)])
    rng = np.random.default_rng(0)
    inputs = {name: rng.normal(size=shapes[name]).astype("f") for name in ("start", "x")}
    outputs = infer(popart.Builder(model.SerializeToString()), popart.DataFlow(1, ["last", "rows"]), inputs)
    rows = inputs["x"][:, ::-1] if back else inputs["x"]
    sums = inputs["start"][:, None] + np.cumsum(rows, 1)
    np.testing.assert_allclose(outputs["last"], sums[:, -1], rtol=1e-5)
    np.testing.assert_allclose(outputs["rows"], sums * rows, rtol=1e-5)


@pytest.mark.parametrize("bounded", ["min", "mod", "clip", "bool"])
@pytest.mark.parametrize("ends", [False, True])
def test_a_loop_of_a_bounded_number_has_gradients(bounded: str, ends: bool) -> None:
    """w to the power of 1 + trips; where the condition ends it, the state is at most 30."""
    builder = popart.Builder(opsets={"ai.onnx": 11})
    trips = builder.addInputTensor("BOOL" if bounded == "bool" else "INT32", [])
    four = builder.aiOnnx.constant(np.array(4, np.int32))
    limits = {
        "min": lambda: builder.aiOnnx.min([trips, four]),
        "mod": lambda: builder.aiOnnx.mod([trips, builder.aiOnnx.constant(np.array(5, np.int32))]),
        "clip": lambda: builder.aiOnnx.clip([trips, "", four]),
        "bool": lambda: builder.aiOnnx.cast([trips], "INT32"),
    }
    w = builder.addInitializedInputTensor(np.array([2, 3, 1], np.float32))
    limit = builder.aiOnnx.constant(np.array(30, np.float32))

    def body(c: popart.Builder, i: str, going: str, state: str) -> list[str]:
        new = c.aiOnnx.mul([state, w])
        return [c.aiOnnx.less([c.aiOnnx.reducemax([new], None, 0), limit]) if ends else going, new]

    (y,) = builder.aiOnnx.loop([limits[bounded](), "", w], 1, body_with(builder, [COUNT, FLAG, VECTOR], body))
    loss = builder.aiGraphcore.identityloss([y], popart.ReductionType.Sum)
    gradient = popart.reservedGradientPrefix() + w
    session = train(builder, popart.DataFlow(1, [y, gradient]), loss, popart.ConstSGD(1e-9))
    for number in (0, 1) if bounded == "bool" else (0, 1, 3, 4):
        anchors = session.initAnchorArrays()
        kind = np.bool_ if bounded == "bool" else np.int32
        session.run(popart.PyStepIO({trips: np.array(number, kind)}, anchors))
        power = min(number, 3 if ends else 4) + 1
        np.testing.assert_allclose(anchors[y], np.array([2.0, 3, 1]) ** power, rtol=1e-6)
        np.testing.assert_allclose(anchors[gradient], power * np.array([2.0, 3, 1]) ** (power - 1), rtol=1e-6)
