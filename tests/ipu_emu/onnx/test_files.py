"""ONNX models as objects."""

import os
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from ipu_emu import popart
from ipu_emu.errors import EmulatorError
from ipu_emu.onnx.files import parsed


class Exported:
    """What an exporter returns: an object with the model."""

    def __init__(self, model):
        self.model_proto = model


def model():
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in "xy")
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", [x], [y])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 11)])


def test_a_model_or_what_has_one_is_read_like_its_bytes():
    proto = model()
    expected = parsed(proto.SerializeToString()).proto
    for source in (proto, Exported(proto)):
        assert parsed(source).proto == expected
    assert isinstance(expected, onnx.ModelProto)


def test_a_session_runs_a_model_object():
    device = popart.DeviceManager().createCpuDevice()
    flow = popart.DataFlow(1, {"y": popart.AnchorReturnType("All")})
    session = popart.InferenceSession(model(), flow, device)
    session.prepareDevice()
    anchors = session.initAnchorArrays()
    session.run(popart.PyStepIO({"x": np.float32([-1, 2])}, anchors))
    assert anchors["y"].tolist() == [0, 2]


def test_a_file_of_zeros_is_refused_before_it_is_read(tmp_path: Path) -> None:
    (tmp_path / "x.onnx").touch()
    os.truncate(tmp_path / "x.onnx", 1 << 40)  # more than memory holds
    for light in (True, False):
        with pytest.raises(EmulatorError, match="Failed to load a ModelProto"):
            parsed(tmp_path / "x.onnx", light=light)
