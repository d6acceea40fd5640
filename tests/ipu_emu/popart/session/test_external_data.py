"""Models with constants, and with weights in separate files: what modelToHost writes, and where."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from ipu_emu import popart
from tests.ipu_emu.helpers.sessions import device, options

MOMENTUM = popart.SGD({"defaultLearningRate": (0.5, False), "defaultMomentum": (0.5, False)})
X = np.array([[1, 2], [3, 4]], np.float32)


class Affine:
    """y = reshape(x * w + v + c), loss = sum(y): the gradient of w is x, that of v is 1."""

    def __init__(self, opset: int = 10) -> None:
        self.builder = popart.Builder(opsets={"ai.onnx": opset})
        a = self.builder.aiOnnx
        self.x = self.builder.addInputTensor("FLOAT", [2, 2], "x")
        self.w = self.builder.addInitializedInputTensor(np.ones((2, 2), np.float32), "w")
        self.v = self.builder.addInitializedInputTensor(np.zeros(2, np.float32), "v")
        c = a.constant(np.array([[1, 2], [3, 4]], np.float32))
        y = a.add([a.add([a.mul([self.x, self.w]), c]), self.v])
        self.y = self.builder.reshape_const(a, [y], [4])
        self.loss = a.reducesum([self.y], keepdims=0)
        self.builder.addOutputTensor(self.y)

    def trained(self, model: Any = None, optimizer: Any = MOMENTUM) -> popart.TrainingSession:
        flow = popart.DataFlow(1, [self.loss])
        session = popart.TrainingSession(
            model or self.builder.getModelProto(), flow, self.loss, optimizer, device(options())
        )
        session.prepareDevice()
        session.weightsFromHost()
        session.run(popart.PyStepIO({self.x: X}, session.initAnchorArrays()))
        return session


def read(model: onnx.ModelProto) -> dict[str, list[float]]:
    return {p.name: onnx.numpy_helper.to_array(p).reshape(-1).tolist() for p in model.graph.initializer}


@pytest.mark.parametrize("opset", [9, 10, 11])
def test_constants_remain_nodes(opset: int, tmp_path: Path) -> None:
    runtime = pytest.importorskip("onnxruntime")
    net, path = Affine(opset), tmp_path / "model.onnx"
    net.trained().modelToHost(str(path))
    model = onnx.load(path)
    onnx.checker.check_model(model, full_check=True)
    assert [info.name for info in model.graph.input] == ["x", "w", "v"]
    assert list(read(model)) == ["w", "v", "Accl___w", "Accl___v"]
    before = onnx.load_model_from_string(net.builder.getModelProto())
    numbers = {entry.key for entry in before.metadata_props}
    assert {f"__debug_id/input/{id}" for id in ("x", "w", "v")} == numbers
    assert [node.op_type for node in model.graph.node] == [node.op_type for node in before.graph.node]
    settings = runtime.SessionOptions()
    settings.log_severity_level = 3
    (result,) = runtime.InferenceSession(str(path), settings).run([net.y], {"x": X})
    np.testing.assert_array_equal(result, (X * (1 - 0.5 * X) + [[1, 2], [3, 4]] - 1).reshape(-1))
    net.trained(str(path)).modelToHost(str(path))
    assert read(onnx.load(path))["Accl___v"] == [1.5, 1.5]


def external(net: Affine, folder: Path, ids: list[str]) -> str:
    net.builder.saveInitializersExternally(ids, str(folder / "weights.bin"))
    net.builder.saveModelProto(str(folder / "model.onnx"))
    return str(folder / "model.onnx")


def test_model_to_host_updates_the_file_of_the_data(tmp_path: Path) -> None:
    net, data, saved = Affine(), tmp_path / "weights.bin", str(tmp_path / "trained.onnx")
    model = external(net, tmp_path, ["w"])
    assert data.stat().st_size == 16
    before = data.read_bytes()
    session = net.trained(model)
    assert data.read_bytes() == before
    session.modelToHost(saved)
    assert data.stat().st_size == 16
    proto = onnx.load(saved, load_external_data=False)
    outside = [p.name for p in proto.graph.initializer if p.data_location == onnx.TensorProto.EXTERNAL]
    assert outside == ["w", "Accl___w"]
    onnx.checker.check_model(saved, full_check=True)
    np.testing.assert_array_equal(np.fromfile(data, np.float32).reshape(2, 2), 1 - 0.5 * X)
    np.testing.assert_array_equal(np.fromfile(f"{saved}.data", np.float32).reshape(2, 2), 0.5 * X)
    files = ["model.onnx", "trained.onnx", "trained.onnx.data", "weights.bin"]
    assert sorted(path.name for path in tmp_path.iterdir()) == files
    again, plain = net.trained(saved), Affine().trained()
    plain.run(popart.PyStepIO({net.x: X}, plain.initAnchorArrays()))
    for trained, path in ((again, saved), (plain, str(tmp_path / "plain.onnx"))):
        trained.modelToHost(path)
    assert data.stat().st_size == Path(f"{saved}.data").stat().st_size == 16
    assert read(onnx.load(saved)) == read(onnx.load(tmp_path / "plain.onnx"))


def test_data_that_cannot_be_written_are_unchanged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    net, data = Affine(), tmp_path / "weights.bin"
    session = net.trained(external(net, tmp_path, ["w", "v"]))
    before = data.read_bytes()

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(popart.popart_exception, match=r"weights\.bin': No space left on device; name a file"):
        session.modelToHost(str(tmp_path / "trained.onnx"))
    assert data.read_bytes() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model.onnx", "weights.bin"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a link to another user")
def test_a_link_that_another_user_has_put_in_the_place_of_the_data_is_not_written_to(tmp_path: Path) -> None:
    net, data, private = Affine(), tmp_path / "weights.bin", tmp_path / "private"
    model = external(net, tmp_path, ["w"])
    session = net.trained(model)
    data.rename(private)
    before = private.read_bytes()
    data.symlink_to("private")
    os.lchown(data, 65534, -1)
    with pytest.raises(popart.popart_exception, match=r"'w'.*link"):
        net.trained(model)
    with pytest.raises(popart.popart_exception, match=r"weights\.bin'.*link"):
        session.modelToHost(model)
    assert private.read_bytes() == before


def test_names_relative_to_the_working_directory_must_be_in_the_folder_of_the_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "models").mkdir()
    monkeypatch.chdir(tmp_path)
    for name in ("models/weights.bin", "weights.bin"):
        net = Affine()
        net.builder.saveInitializersExternally(["w"], name)
        (tmp_path / "models" / "model.onnx").write_bytes(net.builder.getModelProto())
        if name == "weights.bin":
            (tmp_path / "models" / name).unlink()
            with pytest.raises(popart.popart_exception, match="is not in the folder of the model"):
                net.trained("models/model.onnx")
        else:
            net.trained("models/model.onnx").modelToHost("models/trained.onnx")
            np.testing.assert_array_equal(np.fromfile(name, np.float32), (1 - 0.5 * X).reshape(-1))


@pytest.mark.parametrize("form", ["path", "bytes", "object", "initializers", "builder", "transformer", "report"])
@pytest.mark.parametrize("kind", ["absolute", "dotdot", "link"])
def test_data_outside_of_the_folder_of_the_model_are_neither_read_nor_written(
    kind: str, form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, private = tmp_path / "model", tmp_path / "private"
    folder.mkdir()
    private.write_bytes(b"PRECIOUS" * 64)
    (folder / "link").symlink_to(private)
    net = Affine()
    net.builder.saveInitializersExternally(["w"], str(folder / "weights.bin"))
    net.builder.saveModelProto(str(folder / "good.onnx"))
    proto = onnx.load(folder / "good.onnx", load_external_data=False)
    proto.graph.initializer[0].external_data[0].value = {"absolute": str(private), "dotdot": "../private"}.get(
        kind, kind
    )
    file, data = str(folder / "model.onnx"), proto.SerializeToString()
    Path(file).write_bytes(data)
    monkeypatch.chdir(folder)
    attempts = {
        "path": lambda: net.trained(file),
        "bytes": lambda: net.trained(data),
        "object": lambda: net.trained(proto),
        "initializers": lambda: net.trained("good.onnx").resetHostWeights(file),
        "builder": lambda: popart.Builder(file),
        "transformer": lambda: popart.GraphTransformer(file),
        "report": lambda: popart.NumericsReport(file, file, file, file),
    }
    with pytest.raises(popart.popart_exception, match=r"'w' .* is not in the folder of the model"):
        attempts[form]()
    assert private.read_bytes() == b"PRECIOUS" * 64


def test_sessions_leave_the_data_alone_and_saving_again_takes_no_more_space(tmp_path: Path) -> None:
    net, adam = Affine(), popart.Adam({"defaultLearningRate": (0.1, False)})
    model, data = external(net, tmp_path, ["w", "v"]), tmp_path / "weights.bin"
    before, sizes = data.read_bytes(), set()
    for _ in range(2):
        session = net.trained(model, adam)
        assert data.read_bytes() == before
        session.modelToHost(str(tmp_path / "trained.onnx"))
        before = data.read_bytes()
        sizes.add(sum(file.stat().st_size for file in tmp_path.iterdir()))
    assert len(sizes) == 1
    saved_state = read(onnx.load(tmp_path / "trained.onnx"))
    np.testing.assert_allclose(saved_state["Accl1___w"], 0.1 * X.reshape(-1), rtol=1e-6)


def test_a_model_in_another_folder_gets_data_of_its_own(tmp_path: Path) -> None:
    net, other, data = Affine(), tmp_path / "other", tmp_path / "weights.bin"
    other.mkdir()
    (tmp_path / "private").write_text("private")
    (other / "trained.onnx.data").symlink_to("../private")
    model, before = external(net, tmp_path, ["w"]), data.read_bytes()
    net.trained(model).modelToHost(str(other / "trained.onnx"))
    assert data.read_bytes() == before
    assert (tmp_path / "private").read_text() == "private"
    assert read(onnx.load(other / "trained.onnx"))["w"] == (1 - 0.5 * X).reshape(-1).tolist()
    net.trained(str(other / "trained.onnx"))


def test_two_weights_at_one_place_are_saved_with_both_values(tmp_path: Path) -> None:
    net = Affine()
    model = external(net, tmp_path, ["w", "v"])
    proto = onnx.load(model, load_external_data=False)
    proto.graph.initializer[1].external_data[1].value = "0"
    Path(model).write_bytes(proto.SerializeToString())
    net.trained(model).modelToHost(model)
    saved = read(onnx.load(model))
    assert saved["w"] == (1 - 0.5 * X).reshape(-1).tolist()
    assert saved["v"] == [0, 0]


def test_a_file_that_is_gone(tmp_path: Path) -> None:
    net, data = Affine(), tmp_path / "weights.bin"
    model = external(net, tmp_path, ["w"])
    session = net.trained(model)
    data.unlink()
    text = f"^Unrecognised file name '{data}' for externally stored tensor 'w'$"
    with pytest.raises(popart.popart_exception, match=text):
        session.modelToHost(str(tmp_path / "trained.onnx"))
    with pytest.raises(popart.popart_exception, match=r"^Unrecognised file name '.*weights\.bin' for externally"):
        net.trained(model)
    with pytest.raises(RuntimeError, match=r"weights\.bin, but it doesn't exist or is not accessible"):
        popart.Builder(model)


def test_data_move_to_another_file(tmp_path: Path) -> None:
    net, old, new = Affine(), str(tmp_path / "weights.bin"), str(tmp_path / "new.bin")
    session = net.trained(external(net, tmp_path, ["w", "v"]))
    start = f"Updating externally saved tensor location from file '{old}' to file '{new}', but file"
    Path(new).touch()
    with pytest.raises(popart.popart_runtime_error, match=f"^{start} '{new}' already exists$"):
        session.updateExternallySavedTensorLocations(old, new)
    Path(new).unlink()
    with pytest.raises(
        popart.popart_runtime_error, match=r"^No ONNX model initializers have external location set to"
    ):
        session.updateExternallySavedTensorLocations(new, old)
    session.updateExternallySavedTensorLocations(old, new)
    assert not Path(old).exists()
    session.modelToHost(str(tmp_path / "trained.onnx"))
    assert read(onnx.load(tmp_path / "trained.onnx"))["v"] == [-1, -1]
    Path(new).rename(old)
    start = start.replace(old, "?").replace(new, old).replace("?", new)
    with pytest.raises(popart.popart_runtime_error, match=f"^{start} '{new}' does not exist$"):
        session.updateExternallySavedTensorLocations(new, old)


def test_the_builder_refuses_missing_folders_and_unknown_initializers(tmp_path: Path) -> None:
    net, file = Affine(), str(tmp_path / "none" / "weights")
    text = f"^Saving tensor data to file {file}, but its parent directory does not exist$"
    with pytest.raises(popart.popart_exception, match=text):
        net.builder.saveInitializersExternally(["w"], file)
    with pytest.raises(popart.popart_exception, match=r"^Tensor 'x' is not an initializer$"):
        net.builder.saveInitializersExternally(["x"], str(tmp_path / "weights"))
    net.builder.saveInitializersExternally(["w"], str(tmp_path / "weights"))
    with pytest.raises(popart.popart_exception, match=r"^Tensor 'w' already has an external data_location$"):
        net.builder.saveInitializersExternally(["w"], str(tmp_path / "weights"))
    net.builder.saveInitializersExternally(["v"], str(tmp_path / "weights"))
    assert (tmp_path / "weights").stat().st_size == 24


def test_a_model_is_saved_only_after_prepare_device(tmp_path: Path) -> None:
    net = Affine()
    flow = popart.DataFlow(1, [net.loss])
    session = popart.TrainingSession(net.builder.getModelProto(), flow, net.loss, MOMENTUM, device(options()))
    with pytest.raises(
        popart.popart_runtime_error, match=r"^Devicex::prepare\(\) must be called before Devicex::wei"
    ):
        session.modelToHost(str(tmp_path / "model.onnx"))
