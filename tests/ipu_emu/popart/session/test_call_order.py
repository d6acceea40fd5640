"""Sessions: calls before prepareDevice, and a second prepareDevice."""

from __future__ import annotations

import numpy as np
import pytest

from ipu_emu import popart
from tests.ipu_emu.helpers.linear_regression import Regression
from tests.ipu_emu.helpers.sessions import device, options


def unprepared() -> popart.TrainingSession:
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [4])
    w = builder.addInitializedInputTensor(np.ones(4, np.float32), "w")
    dropped = builder.aiOnnx.dropout([builder.aiOnnx.mul([x, w])], 1)[0]
    loss = builder.aiGraphcore.l1loss([dropped], 0.1)
    flow = popart.DataFlow(1, [loss])
    return popart.TrainingSession(builder.getModelProto(), flow, loss, popart.SGD({}), device(options()))


def text(call: object, *args: object) -> str:
    assert callable(call)
    with pytest.raises(popart.popart_runtime_error) as error:
        call(*args)
    return str(error.value.args[0])


def test_calls_before_prepare_device() -> None:
    session = unprepared()
    before = "Devicex::prepare() must be called before Devicex::{} is called."
    assert text(session.setRandomSeed, 3) == before.format("setRandomSeedFromHost(uint64_t)")
    assert text(session.getRandomSeed) == before.format("getRandomSeedToHost()")
    assert text(session.loadEngineAndConnectStreams) == (
        "Trying to load an engine but no compiled engine. Did you forget to call prepareDevice()?"
    )


def test_executables_of_a_model_of_an_ipu_cannot_be_exported() -> None:
    session = Regression().training()
    assert text(session.compileAndExport, "x") == "Executables for device type ipu-model cannot be saved"


def test_a_second_prepare_device_keeps_the_weights_of_the_host() -> None:
    model = Regression()
    session = model.training()
    session.prepareDevice()
    first = session.engine.read("w")
    session.run(popart.PyStepIO({model.x: model.data[:1]}, session.initAnchorArrays()))
    assert np.abs(session.engine.read("w") - first).max() > 0


@pytest.mark.parametrize("root", [3, 1, -1, 0.5])
def test_weights_are_broadcast_by_an_instance_of_the_job(root: int) -> None:
    session = unprepared()
    session.broadcastWeights(0)
    with pytest.raises(popart.popart_exception, match=rf"rootRank is {root}, .* from 0 to 0$"):
        session.broadcastWeights(root)


def test_tensors_by_name() -> None:
    session = Regression().training()
    assert session.getTensorIds() == session.getAllTensorIds()
    with pytest.raises(popart.popart_exception) as error:
        session.getInfo("nothing")
    assert error.value.args[0] == "TensorInfo for `nothing' not set"
    assert isinstance(session.getSerializedGraph(), bytes)
