"""Sessions: setting and reading weights, saved models, the order of calls, and information about the session."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from ipu_emu import popart
from tests.ipu_emu.helpers.linear_regression import Regression, assert_equal, weights
from tests.ipu_emu.helpers.sessions import device, options, train


def test_weights_must_be_loaded_before_training() -> None:
    model = Regression()
    session = popart.TrainingSession(
        model.builder.getModelProto(),
        popart.DataFlow(1, [model.loss]),
        model.loss,
        model.optimizer,
        device(options()),
    )
    session.prepareDevice()
    with pytest.raises(popart.popart_runtime_error) as error:
        model.steps(session, range(1))
    assert error.value.args[0] == (
        "Must call weightsFromHost before run as the model has initializers and the session has been created in "
        "training mode"
    )


def test_a_run_before_prepare_device_raises() -> None:
    model = Regression()
    session = popart.InferenceSession(model.builder.getModelProto(), popart.DataFlow(1, [model.y]), device(options()))
    with pytest.raises(popart.popart_runtime_error, match="call prepareDevice"):
        model.answer(session)


def test_host_weights_change_only_when_they_are_fetched() -> None:
    model = Regression()
    session = model.training()
    model.steps(session, range(1))
    arrays = {"w": np.empty((3, 2), np.float32)}
    session.readWeights(popart.PyWeightsIO(arrays))
    np.testing.assert_array_equal(arrays["w"], model.first["w"])
    assert np.abs(weights(session)["w"] - model.first["w"]).max() > 0


def test_written_weights_are_used_at_once() -> None:
    model = Regression()
    session = model.inference(constantWeights=False)
    session.writeWeights(popart.PyWeightsIO({"w": np.zeros((3, 2), np.float32), "b": np.ones(2, np.float32)}))
    np.testing.assert_array_equal(model.answer(session), np.ones((4, 2)))


def test_weights_have_the_type_of_the_model() -> None:
    model = Regression()
    session = model.training()
    session.weightsToHost()
    double, fixed = np.zeros((3, 2)), np.zeros((3, 2), np.float32)
    fixed.flags.writeable = False
    wrong = "Type discrepancy for tensor w. User provided : DOUBLE and expected : FLOAT"
    for array, text in ((double, wrong), (fixed, "is read-only"), (double.tolist(), "give a numpy array")):
        with pytest.raises(popart.popart_exception) as error:
            session.readWeights(popart.PyWeightsIO({"w": array}))
        assert text in error.value.args[0]
    with pytest.raises(popart.popart_runtime_error) as error:
        session.writeWeights(popart.PyWeightsIO({"w": double}))
    assert wrong in error.value.args[0]


def test_a_model_that_cannot_be_written_leaves_nothing_behind(tmp_path: Path) -> None:
    session = Regression().training()
    for path in (tmp_path / "none" / "model.onnx", tmp_path):
        with pytest.raises(popart.popart_exception, match="Cannot write the model"):
            session.modelToHost(str(path))
    assert sorted(tmp_path.parent.glob(f"{tmp_path.name}*")) == [tmp_path]


def test_constant_weights_are_refused() -> None:
    model = Regression()
    session = model.inference()
    np.testing.assert_allclose(model.answer(session), model.data[0] @ model.first["w"], rtol=1e-6)
    with pytest.raises(popart.popart_exception) as error:
        session.writeWeights(popart.PyWeightsIO({"w": np.zeros((3, 2), np.float32)}))
    assert error.value.args[0] == (
        "Cannot call writeWeights when constantWeights is set. Set `constantWeights` to False in the "
        "`SessionOption`s when initialising the session to enable this behaviour."
    )
    with pytest.raises(popart.popart_runtime_error) as error:
        session.resetHostWeights(model.builder.getModelProto())
    assert error.value.args[0] == "Cannot call resetHostWeights when constantWeights is set"


def test_a_saved_model_has_weights_in_order_and_then_the_states(tmp_path: Path) -> None:
    model, file = Regression(), str(tmp_path / "model.onnx")
    session = model.training()
    model.steps(session, range(3))
    session.modelToHost(file)
    saved = {proto.name: numpy_helper.to_array(proto) for proto in onnx.load(file).graph.initializer}
    assert list(saved) == ["w", "b", "Accl1___w", "Accl1___b"]
    assert_equal(saved, weights(session, *saved))
    assert [path.name for path in tmp_path.iterdir()] == ["model.onnx"]


@pytest.mark.parametrize("way", ["reset", "construct"])
def test_training_continues_where_it_was_saved(tmp_path: Path, way: str) -> None:
    """10 steps, save, load, 10 more = 20 steps, bitwise, optimiser state included."""
    model, file = Regression(), str(tmp_path / "model.onnx")
    unbroken, half = model.training(), model.training()
    model.steps(unbroken, range(20))
    model.steps(half, range(10))
    half.modelToHost(file)
    if way == "reset":
        rest = model.training()
        rest.resetHostWeights(file)
        with pytest.raises(popart.popart_runtime_error, match=r"^Must call weightsFromHost"):
            model.steps(rest, range(1))
        rest.weightsFromHost()
    else:
        rest = model.training(file)
    model.steps(rest, range(10, 20))
    ids = ("w", "b", "Accl1___w", "Accl1___b")
    assert_equal(weights(rest, *ids), weights(unbroken, *ids))


def test_a_saved_model_can_be_used_for_inference(tmp_path: Path) -> None:
    model, file = Regression(), str(tmp_path / "model.onnx")
    session = model.training()
    model.steps(session, range(5))
    session.modelToHost(file)
    trained = weights(session)
    want = model.data[0] @ trained["w"] + trained["b"]
    np.testing.assert_allclose(model.answer(model.inference(file)), want, rtol=1e-5, atol=1e-6)


class TestResetErrors:
    def other(self, name: str, shape: tuple[int, ...]) -> bytes:
        builder = popart.Builder()
        builder.addOutputTensor(
            builder.aiOnnx.exp([builder.addInitializedInputTensor(np.zeros(shape, np.float32), name)])
        )
        return builder.getModelProto()

    def test_a_weight_that_is_not_in_the_session(self) -> None:
        session = Regression().training()
        with pytest.raises(popart.popart_runtime_error) as error:
            session.resetHostWeights(self.other("z", (2,)))
        assert error.value.args[0] == "resetWeights, no tensor 'z' in tensors"
        session.resetHostWeights(self.other("z", (2,)), True)

    def test_a_weight_of_another_shape(self) -> None:
        with pytest.raises(popart.popart_runtime_error) as error:
            Regression().training().resetHostWeights(self.other("w", (2,)))
        assert error.value.args[0] == (
            "Trying to reset weights using tensor with non matching tensor info. Tensor ID: w"
        )


def test_constructor_errors() -> None:
    model, info = Regression(), device(options())
    with pytest.raises(popart.popart_exception, match=r"^User must specify an anchor tensor when doing inference.$"):
        popart.InferenceSession(model.builder.getModelProto(), popart.DataFlow(1, []), info)
    with pytest.raises(popart.popart_exception, match=r"device.*None"):
        popart.InferenceSession(model.builder.getModelProto(), popart.DataFlow(1, [model.y]), None)
    with pytest.raises(popart.popart_exception, match=r"^Failed to load a ModelProto from the string 'nothing'"):
        popart.InferenceSession("nothing", popart.DataFlow(1, ["y"]), info)
    with pytest.raises(popart.popart_exception) as error:
        popart.TrainingSession(
            model.builder.getModelProto(), popart.DataFlow(1, []), model.y, popart.ConstSGD(0.1), info
        )
    assert error.value.args[0] == f"Loss tensor, '{model.y}', must be a scalar tensor"


def refusal(add: Callable[[popart.Builder], object]) -> str:
    """The error of a session about a model with an invalid op, which the Builder accepts."""
    builder = popart.Builder()
    ids: Any = add(builder)
    builder.addOutputTensor(ids if isinstance(ids, str) else ids[-1])
    flow = popart.DataFlow(1, builder.getOutputTensorIds())
    with pytest.raises(popart.popart_exception) as error:
        popart.InferenceSession(builder.getModelProto(), flow, popart.DeviceManager().createCpuDevice())
    return str(error.value.args[0])


def nll(kind: str, shape: list[int]) -> Callable[[popart.Builder], object]:
    return lambda b: b.aiGraphcore.nllloss([b.addInputTensor("FLOAT", [4, 3]), b.addInputTensor(kind, shape)])


def test_loss_and_label_errors() -> None:
    assert refusal(nll("FLOAT", [4])) == (
        "Expected the label tensor NllOp to be an integer data type (fixed point), not the case for input with info: "
        "FLOAT [4]. This error for Op Nll (Nll:0). "
    )
    assert refusal(nll("INT32", [3])) == (
        "The label tensor ([3]) must have shape [4] to match all but the final dimension of the probabilities tensor "
        "([4 3]) in Op Nll (Nll:0). "
    )
    scalar = refusal(lambda b: b.aiGraphcore.l1loss([b.addInputTensor("FLOAT", [])], 0.1))
    assert scalar == "L1Op not valid for rank-0 tensor (scalar)"
    ratio = refusal(lambda b: b.aiOnnx.dropout([b.addInputTensor("FLOAT", [2])], 1, 1.0))
    assert ratio == "Dropout (Dropout:0) ratio value 1 is not valid. Please use a value in the interval [0,1)"


def test_replicas_share_weights_and_see_their_own_data() -> None:
    model = Regression()
    flow = popart.DataFlow(1, {model.loss: popart.AnchorReturnType("All")})
    session = train(model.builder, flow, model.loss, model.optimizer, options(R=4))
    assert (session.replicationFactor, session.accumulationFactor) == (4, 1)
    anchors = session.initAnchorArrays()
    session.run(popart.PyStepIO({model.x: model.data[:4]}, anchors))
    want = [np.abs(x @ model.first["w"]).mean() for x in model.data[:4]]
    np.testing.assert_allclose(anchors[model.loss], want, rtol=1e-6)
    engine = session.engine
    for replica in range(1, 4):
        np.testing.assert_array_equal(engine.read("w", replica), engine.read("w", 0))


def test_a_session_continues_after_an_error() -> None:
    model = Regression()
    session, other = model.training(), model.training()
    for bad in ({}, {model.x: np.zeros(3, np.float32)}, {model.x: np.zeros((4, 3), np.int32)}):
        with pytest.raises(popart.popart_exception):
            session.run(popart.PyStepIO(bad, session.initAnchorArrays()))
    for training in (session, other):
        model.steps(training, range(3))
    assert_equal(weights(session), weights(other))


def test_options_are_copied_and_runs_take_handles() -> None:
    model, opts = Regression(), options(R=2)
    session = popart.InferenceSession(
        model.builder.getModelProto(), popart.DataFlow(1, [model.y]), device(opts), userOptions=opts
    )
    opts.replicatedGraphCount = 4
    session.prepareDevice()
    anchors = session.initAnchorArrays()
    session.run(0, popart.PyStepIO({model.x: model.data[:2]}, anchors))
    assert anchors[model.y].shape == (2, 4, 2)
