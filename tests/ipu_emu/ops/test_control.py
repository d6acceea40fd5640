"""Call, if, loop and scan: their values, their gradients, and their conversion to ONNX and back."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

from ipu_emu import popart
from tests.ipu_emu.helpers.sessions import infer, options, train

X = np.array([0.5, -1.0, 2.0], np.float32)
VECTOR = popart.TensorInfo("FLOAT", [3])


def body_with(builder: popart.Builder, inputs: list[popart.TensorInfo], build: Any) -> popart.Builder:
    """A subgraph whose outputs are what ``build`` returns."""
    child = builder.createSubgraphBuilder()
    ids = [child.addInputTensor(info) for info in inputs]
    for id in build(child, *ids):
        child.addOutputTensor(id)
    return child


def values(builder: popart.Builder, outputs: list[str], inputs: dict[str, Any]) -> list[np.ndarray]:
    results = infer(builder, popart.DataFlow(1, outputs), inputs)
    return [results[id] for id in outputs]


def test_a_called_subgraph_runs_on_its_arguments() -> None:
    builder = popart.Builder()
    a, b = builder.addInputTensor(VECTOR), builder.addInputTensor(VECTOR)
    twice = body_with(builder, [VECTOR, VECTOR], lambda c, x, y: [c.aiOnnx.add([x, c.aiOnnx.mul([y, y])])])
    first = builder.aiGraphcore.call([a, b], 1, twice)
    (second,) = builder.aiGraphcore.call([*first, a], 1, twice)
    assert (first, second) == (["Call:0"], "Call:0/1")
    (actual,) = values(builder, [second], {a: X, b: 2 * X})
    np.testing.assert_allclose(actual, X + 4 * X * X + X * X, rtol=1e-6)


@pytest.mark.parametrize("condition", [True, False])
@pytest.mark.parametrize("known", [True, False])
def test_if_executes_one_branch(condition: bool, known: bool) -> None:
    builder = popart.Builder()
    x = builder.addInputTensor(VECTOR)
    flag = np.array(condition)
    test = builder.aiOnnx.constant(flag) if known else builder.addInputTensor("BOOL", [])
    double = body_with(builder, [], lambda c: [c.aiOnnx.add([x, x])])
    square = body_with(builder, [], lambda c: [c.aiOnnx.mul([x, x])])
    (y,) = builder.aiOnnx.logical_if([test], 1, square, double)
    (actual,) = values(builder, [y], {x: X} if known else {x: X, test: flag})
    np.testing.assert_allclose(actual, 2 * X if condition else X * X)


def looped(builder: popart.Builder, x: str, limit: float | None) -> list[str]:
    """x = 1.5 x five times, while the sum of x is below the limit."""
    trips, go = builder.aiOnnx.constant(np.array(5, np.int64)), builder.aiOnnx.constant(np.array(True))

    def body(c: popart.Builder, i: str, going: str, state: str) -> list[str]:
        new = c.aiOnnx.mul([state, c.aiOnnx.constant(np.array(1.5, np.float32))])
        if limit is None:
            return [going, new, c.aiOnnx.add([new, c.aiOnnx.cast([i], "FLOAT")])]
        below = c.aiOnnx.less([c.aiOnnx.reducesum([new], None, 0), c.aiOnnx.constant(np.array(limit, np.float32))])
        return [below, new]

    kinds = [popart.TensorInfo("INT64", []), popart.TensorInfo("BOOL", []), VECTOR]
    return list(builder.aiOnnx.loop([trips, go, x], 2 if limit is None else 1, body_with(builder, kinds, body)))


def test_loop_carries_its_state_and_collects_results() -> None:
    builder = popart.Builder()
    x = builder.addInputTensor(VECTOR)
    last, rows = values(builder, looped(builder, x, None), {x: X})
    np.testing.assert_allclose(last, X * 1.5**5, rtol=1e-6)
    np.testing.assert_allclose(rows, [X * 1.5 ** (i + 1) + i for i in range(5)], rtol=1e-6)


def test_a_loop_stops_when_its_condition_is_false() -> None:
    builder = popart.Builder()
    x = builder.addInputTensor(VECTOR)
    (last,) = values(builder, looped(builder, x, 3.0), {x: X})
    np.testing.assert_allclose(last, X * 1.5**2, rtol=1e-6)  # the sums are 2.25 and 3.375


def test_slices_move_with_the_iterations() -> None:
    """x[i : i + 2] for each i; the gradient of an element is the number of slices that contain it."""
    builder = popart.Builder(opsets={"ai.onnx": 11, "ai.graphcore": 1})
    x = builder.addInitializedInputTensor(np.arange(5, dtype=np.float32))
    trips = builder.aiOnnx.constant(np.array(4, np.int64))
    go, first = builder.aiOnnx.constant(np.array(True)), builder.aiOnnx.constant(np.zeros(2, np.float32))

    def body(c: Any, i: str, going: str, total: str) -> list[str]:
        start = c.aiOnnx.unsqueeze([i], [0])
        end = c.aiOnnx.add([c.aiOnnx.constant(np.array([2], np.int64)), start])
        part = c.aiOnnx.slice([x, start, end, c.aiOnnx.constant(np.array([-1], np.int64))])
        return [going, c.aiOnnx.add([total, part]), part]

    kinds = [popart.TensorInfo("INT64", []), popart.TensorInfo("BOOL", []), popart.TensorInfo("FLOAT", [2])]
    total, parts = builder.aiOnnx.loop([trips, go, first], 2, body_with(builder, kinds, body))
    loss = builder.aiGraphcore.identityloss([total], popart.ReductionType.Sum)
    gradient = popart.reservedGradientPrefix() + x
    session = train(builder, popart.DataFlow(1, [total, parts, gradient]), loss, popart.ConstSGD(1e-30))
    anchors = session.initAnchorArrays()
    session.run(popart.PyStepIO({}, anchors))
    np.testing.assert_array_equal(anchors[parts], [[i, i + 1] for i in range(4)])
    np.testing.assert_array_equal(anchors[total], [6, 10])
    np.testing.assert_array_equal(anchors[gradient], [1, 2, 2, 2, 1])


def test_gradients_pass_through_loops_and_branches() -> None:
    builder = popart.Builder()
    x = builder.addInitializedInputTensor(X)
    test = builder.addInputTensor("BOOL", [])
    y = looped(builder, x, 3.0)[0]
    (z,) = builder.aiOnnx.logical_if(
        [test],
        1,
        body_with(builder, [], lambda c: [c.aiOnnx.neg([y])]),
        body_with(builder, [], lambda c: [c.aiOnnx.mul([y, y])]),
    )
    loss = builder.aiGraphcore.identityloss([z], popart.ReductionType.Sum)
    gradient = popart.reservedGradientPrefix() + x
    session = train(builder, popart.DataFlow(1, [gradient]), loss, popart.ConstSGD(1e-30))
    for flag, expected in ((True, 2 * 1.5**4 * X), (False, np.full(3, -(1.5**2)))):
        anchors = session.initAnchorArrays()
        session.run(popart.PyStepIO({test: np.array(flag)}, anchors))
        np.testing.assert_allclose(anchors[gradient], expected, rtol=1e-6)


def test_onnx_reads_what_the_builder_writes() -> None:
    builder = popart.Builder(opsets={"ai.onnx": 11})
    x = builder.addInputTensor(VECTOR)
    outputs = looped(builder, x, None)
    for id in outputs:
        builder.addOutputTensor(id)
    model = onnx.load_model_from_string(builder.getModelProto())
    onnx.checker.check_model(model)
    again = popart.Builder(builder.getModelProto())
    expected = ReferenceEvaluator(model).run(None, {x: X})
    for actual, value in zip(values(again, outputs, {x: X}), expected, strict=True):
        np.testing.assert_allclose(actual, value, rtol=1e-6)


def test_scan_slices_and_stacks() -> None:
    """A running sum over the rows, from the last to the first."""
    from onnx import TensorProto, helper

    state, row, new, out = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [2]) for n in ("s", "r", "n", "o"))
    nodes = [helper.make_node("Add", ["s", "r"], ["n"]), helper.make_node("Identity", ["n"], ["o"])]
    body = helper.make_graph(nodes, "body", [state, row], [new, out])
    attributes = {"num_scan_inputs": 1, "scan_input_directions": [1]}
    node = helper.make_node("Scan", ["start", "x"], ["last", "rows"], body=body, **attributes)
    info = helper.make_tensor_value_info
    inputs = [info("start", TensorProto.FLOAT, [2]), info("x", TensorProto.FLOAT, [3, 2])]
    outputs = [info("last", TensorProto.FLOAT, [2]), info("rows", TensorProto.FLOAT, [3, 2])]
    model = helper.make_model(
        helper.make_graph([node], "g", inputs, outputs), opset_imports=[helper.make_opsetid("", 11)]
    )
    x, start = np.arange(6, dtype=np.float32).reshape(3, 2), np.array([1, -1], np.float32)
    results = infer(
        popart.Builder(model.SerializeToString()), popart.DataFlow(1, ["last", "rows"]), {"start": start, "x": x}
    )
    np.testing.assert_allclose(results["rows"], start + np.cumsum(x[::-1], 0))
    np.testing.assert_allclose(results["last"], start + x.sum(0))


@pytest.mark.parametrize(
    ("text", "build"),
    [
        (
            r"number of inputs \(2\) does not match that of the callee subgraph \(1\)",
            lambda b, x, c: b.aiGraphcore.call([x, x], 1, c),
        ),
        ("the attribute callee with its subgraph is missing", lambda b, x, c: b.aiGraphcore.call([x], 1, 5)),
        ("the condition must be a BOOL scalar", lambda b, x, c: b.aiOnnx.logical_if([x], 1, c, c)),
    ],
)
def test_calls_that_do_not_match_their_subgraphs_are_refused(text: str, build: Any) -> None:
    builder = popart.Builder()
    x = builder.addInputTensor(VECTOR)
    child = body_with(builder, [VECTOR], lambda c, y: [c.aiOnnx.exp([y])])
    with pytest.raises(popart.popart_exception, match=text):
        popart.Builder(built(builder, build, x, child))


def built(builder: popart.Builder, build: Any, x: str, child: popart.Builder) -> bytes:
    build(builder, x, child)
    return builder.getModelProto()


def nested(builder: popart.Builder, x: str, outer: str, inner: str) -> str:
    """If ``outer``: square root or logarithm, selected by ``inner``; else the square."""

    def choice(c: popart.Builder) -> list[str]:
        log = body_with(c, [], lambda d: [d.aiOnnx.log([x])])
        root = body_with(c, [], lambda d: [d.aiOnnx.sqrt([x])])
        return list(c.aiOnnx.logical_if([inner], 1, log, root))

    square = body_with(builder, [], lambda c: [c.aiOnnx.mul([x, x])])
    return str(builder.aiOnnx.logical_if([outer], 1, square, body_with(builder, [], choice))[0])


#: Value and gradient by (outer, inner), and data: all but one of the branches would give NaN for the second element.
BRANCHES: dict[tuple[bool, bool], tuple[Any, Any, list[float]]] = {
    (True, True): (np.sqrt, lambda x: 0.5 / np.sqrt(x), [1, 2, 0.5]),
    (True, False): (np.log, lambda x: 1 / x, [1, 2, 0.5]),
    (False, True): (np.square, lambda x: 2 * x, [1, -2, 0]),
    (False, False): (np.square, lambda x: 2 * x, [-1, 0, 3]),
}


@pytest.mark.parametrize("halves", [False, True])
@pytest.mark.parametrize("ipus", [1, 2])
def test_branches_that_are_not_taken_do_not_run(ipus: int, halves: bool) -> None:
    """Neither forward nor backward, nor on an IPU other than that of the conditions."""
    dtype = np.float16 if halves else np.float32
    builder = popart.Builder()
    x = builder.addInitializedInputTensor(np.zeros(3, dtype))
    data, flags = builder.addInputTensor(popart.TensorInfo(dtype, [3])), builder.addInputTensor("INT32", [2])
    with builder.virtualGraph(0):
        known = builder.aiOnnx.cast([flags], "BOOL")
        outer, inner = builder.aiOnnx.split([known], 2, 0, [1, 1])
        total = builder.aiOnnx.add([x, data])
    with builder.virtualGraph(ipus - 1):
        y = nested(builder, total, outer, inner)
        loss = builder.aiGraphcore.identityloss([y], popart.ReductionType.Sum)
    opts = options(virtualGraphMode=popart.VirtualGraphMode.Manual)
    gradient = popart.reservedGradientPrefix() + x
    device = popart.DeviceManager().createIpuModelDevice({"numIPUs": ipus})
    flow, rule = popart.DataFlow(1, [y, gradient]), popart.ConstSGD(1e-30)
    session = popart.TrainingSession(builder.getModelProto(), flow, loss, rule, device, userOptions=opts)
    session.prepareDevice()
    session.weightsFromHost()
    for chosen, (value, slope, row) in BRANCHES.items():
        anchors, inputs = session.initAnchorArrays(), np.array(row, dtype)
        session.run(popart.PyStepIO({data: inputs, flags: np.array(chosen, np.int32)}, anchors))
        np.testing.assert_allclose(anchors[y], value(inputs), rtol=1e-3 if halves else 1e-6)
        np.testing.assert_allclose(anchors[gradient], slope(inputs), rtol=1e-3 if halves else 1e-6, atol=1e-20)


def test_statistics_in_a_branch_change_only_where_it_is_taken() -> None:
    builder = popart.Builder()
    x, test = builder.addInputTensor("FLOAT", [4, 2]), builder.addInputTensor("BOOL", [])
    scale, bias, mean, var = (builder.addInitializedInputTensor(np.full(2, n, np.float32)) for n in (1, 0, 0, 1))

    def normalised(c: popart.Builder) -> list[str]:
        return [c.aiOnnx.batchnormalization([x, scale, bias, mean, var], 5, 1e-5, 0.5)[0]]

    plain = body_with(builder, [], lambda c: [c.aiOnnx.mul([x, scale])])
    (y,) = builder.aiOnnx.logical_if([test], 1, plain, body_with(builder, [], normalised))
    loss = builder.aiGraphcore.identityloss([y], popart.ReductionType.Sum)
    session = train(builder, popart.DataFlow(1, [loss]), loss, popart.ConstSGD(1e-30), limits=False)
    statistics, data = np.zeros(2, np.float32), np.ones((4, 2), np.float32)
    for flag, expected in ((False, 0.0), (True, 0.5), (False, 0.5), (True, 0.75)):
        session.run(popart.PyStepIO({x: data, test: np.array(flag)}, session.initAnchorArrays()))
        session.weightsToHost()
        session.readWeights(popart.PyWeightsIO({mean: statistics}))
        np.testing.assert_allclose(statistics, expected)


def test_where_the_condition_is_known_the_branches_may_differ_in_shape() -> None:
    builder = popart.Builder()
    x = builder.addInputTensor(VECTOR)
    test = builder.aiOnnx.constant(np.array(False))
    negated = body_with(builder, [], lambda c: [c.aiOnnx.neg([x])])
    total = body_with(builder, [], lambda c: [c.aiOnnx.reducesum([x], None, 0)])
    (y,) = builder.aiOnnx.logical_if([test], 1, negated, total)
    np.testing.assert_array_equal(values(builder, [y], {x: X})[0], -X)
