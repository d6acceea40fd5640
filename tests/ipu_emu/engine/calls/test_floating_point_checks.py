"""enableFloatingPointChecks: a step raises if an op produces an infinity or NaN, and only then."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from ipu_emu import popart
from tests.ipu_emu.helpers.sessions import infer, options, train

_Build = Callable[[popart.Builder, str], str]

#: A function that builds a model of x, the value of x, and the error.
CASES: dict[str, tuple[_Build, list[float], str]] = {
    "root": (lambda b, x: b.aiOnnx.sqrt([x]), [-1.0], "Op Sqrt (Sqrt:0): invalid operation"),
    "quotient": (lambda b, x: b.aiOnnx.div([x, x]), [0.0], "Op Div (Div:0): invalid operation"),
    "reciprocal": (lambda b, x: b.aiOnnx.reciprocal([x]), [0.0], "Op Reciprocal (Reciprocal:0): division by zero or"),
    "logarithm": (lambda b, x: b.aiOnnx.log([x]), [0.0], "Op Log (Log:0): division by zero or overflow"),
    "exponential": (lambda b, x: b.aiOnnx.exp([x]), [89.0], "Op Exp (Exp:0): division by zero or overflow"),
    "half": (lambda b, x: b.aiOnnx.cast([x], "FLOAT16"), [7e4], "Op Cast (Cast:0): division by zero or overflow"),
    "difference": (lambda b, x: b.aiOnnx.sub([x, x]), [np.inf], "Op Sub (Sub:0): invalid operation"),
}


@pytest.mark.parametrize("name", CASES)
def test_nan_stops_the_step(name: str) -> None:
    build, data, text = CASES[name]
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [1])
    flow, inputs = popart.DataFlow(1, [build(builder, x)]), {x: np.array(data, np.float32)}
    assert not np.isfinite(*infer(builder, flow, inputs).values()).any()
    with pytest.raises(popart.poplar_application_runtime_error) as error:
        infer(builder, flow, inputs, options(enableFloatingPointChecks=True))
    assert error.value.args[0].startswith(f"Floating point exception in {text}")


def test_given_data_may_have_any_value() -> None:
    """Infinities and NaN in the data raise no error, wherever they are used."""
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [3])
    y, z = builder.aiOnnx.softmax([x], 0), builder.aiOnnx.relu([builder.aiOnnx.abs([x])])
    opts = options(enableFloatingPointChecks=True)
    for row in ([1.0, -np.inf, 0.0], [np.nan, 1.0, np.inf]):
        outputs = infer(builder, popart.DataFlow(1, [y, z]), {x: np.array(row, np.float32)}, opts)
        np.testing.assert_array_equal(outputs[z], np.abs(row))


def trained(rate: float, replicas: int = 1, halves: bool = False) -> np.ndarray:
    """The weight after two steps of descending a large gradient."""
    builder = popart.Builder()
    w = builder.addInitializedInputTensor(np.ones(2, np.float16 if halves else np.float32))
    x = builder.addInputTensor("FLOAT16" if halves else "FLOAT", [2])
    loss = builder.aiGraphcore.identityloss([builder.aiOnnx.mul([w, x])], popart.ReductionType.Sum)
    opts = options(enableFloatingPointChecks=True, R=replicas)
    session = train(
        builder, popart.DataFlow(1, [loss]), loss, popart.SGD({"defaultLearningRate": (rate, True)}), opts
    )
    data = np.full((replicas, 2), 3e4, np.float16 if halves else np.float32)
    for _ in range(2):
        session.run(popart.PyStepIO({x: data}, session.initAnchorArrays()))
    weight = np.empty(2, data.dtype)
    session.weightsToHost()
    session.readWeights(popart.PyWeightsIO({w: weight}))
    return weight


def test_updates_and_sums_over_replicas_are_watched_too() -> None:
    np.testing.assert_allclose(trained(1e-4), [-5, -5], rtol=1e-5)
    with pytest.raises(popart.poplar_runtime_error, match="division by zero or overflow"):
        trained(3e34)
    with pytest.raises(
        popart.poplar_runtime_error, match="in the reduction of gradients: division by zero or overflow"
    ):
        trained(1e-4, replicas=4, halves=True)


def test_loops_are_watched() -> None:
    builder = popart.Builder()
    x, trips = builder.addInputTensor("FLOAT", [1]), builder.addInputTensor("INT32", [])
    body = builder.createSubgraphBuilder()
    _, going, state = (
        body.addInputTensor(kind, shape) for kind, shape in (("INT32", []), ("BOOL", []), ("FLOAT", [1]))
    )
    for id in (going, body.aiOnnx.mul([state, state])):
        body.addOutputTensor(id)
    (y,) = builder.aiOnnx.loop([trips, "", x], 1, body)
    flow, opts = popart.DataFlow(1, [y]), options(enableFloatingPointChecks=True)
    inputs = {x: np.float32([1e5]), trips: np.array(2, np.int32)}
    np.testing.assert_allclose(infer(builder, flow, inputs, opts)[y], 1e20, rtol=1e-6)
    with pytest.raises(popart.poplar_runtime_error, match=r"Op Mul [(]Mul:0[)]: division by zero or overflow"):
        infer(builder, flow, inputs | {trips: np.array(3, np.int32)}, opts)
