"""Sessions: information about themselves, their device and their data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from ipu_emu import popart
from tests.ipu_emu.helpers.linear_regression import Regression
from tests.ipu_emu.helpers.sessions import device, options, train


def test_information() -> None:
    session = Regression().training()
    assert session.getInfo("w") == popart.TensorInfo("FLOAT", [3, 2])
    assert {"w", "b", "Gradient___w", "Accl1___w"} <= session.getAllTensorIds()
    assert (session.hasInfo("w"), session.hasInfo("W")) == (True, False)
    assert "WeightUpdate UpdatedVar___w" in session.getSummaryReport()
    with pytest.warns(UserWarning, match="no random behaviour"):
        session.setRandomSeed(3)


def test_wall_time_is_accounted_for() -> None:
    model = Regression()
    session = model.training()
    model.steps(session, range(20))
    wall = session.wallSeconds()
    assert set(wall) == {"compute", "collectives", "host I/O", "other", "total"}
    assert wall["compute"] > 0
    assert wall["host I/O"] > 0
    assert wall["collectives"] == 0
    assert wall["total"] == pytest.approx(sum(wall.values()) - wall["total"])


class TestCycles:
    def session(self, **values: Any) -> tuple[Regression, Any]:
        model = Regression()
        flow = popart.DataFlow(2, [model.loss])
        return model, train(model.builder, flow, model.loss, model.optimizer, options(**values))

    def run(self, model: Regression, session: Any) -> None:
        session.run(popart.PyStepIO({model.x: model.data[:2]}, session.initAnchorArrays()))

    def test_cycles_are_modelled(self) -> None:
        both = {popart.Instrumentation.Outer, popart.Instrumentation.Inner}
        model, session = self.session(instrumentWithHardwareCycleCounter=True, hardwareInstrumentations=both)
        self.run(model, session)
        first = session.getCycleCount()
        self.run(model, session)
        assert session.getCycleCount() == session.getCycleCount("inner_ipu_0") == first > 0

    def test_errors(self) -> None:
        model, session = self.session()
        with pytest.raises(popart.popart_runtime_error, match=r"^Must call run before getCycleCount\.$"):
            session.getCycleCount()
        self.run(model, session)
        with pytest.raises(popart.popart_exception) as error:
            session.getCycleCount()
        assert error.value.args[0] == (
            "SessionOption 'instrumentWithHardwareCycleCounter' must be set to true in order to measure cycle count"
        )
        model, session = self.session(instrumentWithHardwareCycleCounter=True)
        self.run(model, session)
        with pytest.raises(popart.popart_exception) as error:
            session.getCycleCount("inner_ipu_0")
        assert error.value.args[0] == (
            "Invalid id for cycle counter, 'inner_ipu_0'. Make sure you have set "
            "SessionOption::hardwareInstrumentations correctly."
        )


@pytest.mark.parametrize(
    ("mode", "check"),
    [
        (popart.SyntheticDataMode.Zeros, lambda x: not x.any()),
        (popart.SyntheticDataMode.RandomNormal, lambda x: abs(x.mean()) < 0.1 and abs(x.std() - 1) < 0.1),
        (
            popart.SyntheticDataMode.RandomUniform,
            lambda x: x.min() >= 0 and x.max() < 1 and abs(x.mean() - 0.5) < 0.1,
        ),
    ],
)
def test_synthetic_data_is_made_on_the_device(mode: Any, check: Any) -> None:
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [1000])
    y = builder.aiOnnx.identity([x])
    opts = options(syntheticDataMode=mode, R=2)
    flow = popart.DataFlow(3, [y])
    session = popart.InferenceSession(builder.getModelProto(), flow, device(opts), userOptions=opts)
    session.prepareDevice()
    anchors = {y: np.full((3, 2, 1000), 7, np.float32)}
    session.run(popart.PyStepIO({x: np.full(3, 9, np.float32)}, anchors))
    assert (anchors[y] == 7).all()
    assert check(session.engine.read(y, 1))


def test_a_device_belongs_to_one_at_a_time(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("IPU_EMU_CLAIMS", str(tmp_path))  # a Pod that no other test uses
    manager = popart.DeviceManager()
    on_demand = manager.acquireAvailableDevice(16, connectionType=popart.DeviceConnectionType.OnDemand)
    assert not on_demand.isAttached
    with manager.acquireAvailableDevice(16) as device:
        assert device.isAttached
        assert popart.DeviceManager().tryAcquireAvailableDevice(1) is None
        assert not on_demand.attach()
    assert on_demand.attach()
    on_demand.detach()


def test_the_environment_names_the_pod(monkeypatch: pytest.MonkeyPatch) -> None:
    def sizes() -> int:
        return len(popart.DeviceManager().enumerateDevices())

    assert sizes() == 16
    monkeypatch.setenv("POPDIST_NUM_TOTAL_REPLICAS", "20")
    monkeypatch.setenv("POPDIST_NUM_LOCAL_REPLICAS", "5")
    monkeypatch.setenv("POPDIST_NUM_IPUS_PER_REPLICA", "2")
    assert sizes() == 64
    monkeypatch.setenv("IPU_EMU_SYSTEM", "Pod-4")
    assert sizes() == 4
    monkeypatch.setenv("IPU_EMU_SYSTEM", "pod5")
    with pytest.raises(popart.popart_exception, match="IPU_EMU_SYSTEM=pod5: there is no such system; use pod4"):
        popart.DeviceManager()


def test_open_shapes_are_given_by_the_session() -> None:
    model = Regression()
    proto = onnx.load_from_string(model.builder.getModelProto())
    for dimension in proto.graph.input[0].type.tensor_type.shape.dim:
        dimension.dim_param = "n"
    with pytest.raises(popart.popart_exception) as error:
        popart.InferenceSession(proto.SerializeToString(), popart.DataFlow(1, [model.y]), device(options()))
    assert error.value.args[0] == (
        f"Input tensor '{model.x}' must be specified in InputShapeInfo, as it has shape [n n], which uses an unknown "
        "value 'n'."
    )
    shapes = popart.InputShapeInfo()
    shapes.add(model.x, popart.TensorInfo("FLOAT", [4, 3]))
    opts = options()
    session = popart.InferenceSession(
        proto.SerializeToString(), popart.DataFlow(1, [model.y]), device(opts), shapes, userOptions=opts
    )
    session.prepareDevice()
    np.testing.assert_allclose(model.answer(session), model.data[0] @ model.first["w"], rtol=1e-6)
