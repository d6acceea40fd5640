"""ModelProto: the models that the Builder writes and reads."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import numpy_helper

from ipu_emu import popart

VECTOR = popart.TensorInfo("FLOAT", [2])


def test_initializers_in_their_own_file(tmp_path: Path) -> None:
    builder = popart.Builder()
    values = {name: np.random.default_rng(1).uniform(size=(3, 2)).astype(np.float32) for name in ("a", "b")}
    ids = [builder.addInitializedInputTensor(value, name) for name, value in values.items()]
    builder.addOutputTensor(builder.aiOnnx.add(ids))
    builder.saveInitializersExternally(["b"], str(tmp_path / "weights"))
    model = onnx.load_model_from_string(builder.getModelProto())
    assert [proto.data_location for proto in model.graph.initializer] == [0, onnx.TensorProto.EXTERNAL]
    again = popart.Builder(builder.getModelProto())
    for name, value in values.items():
        np.testing.assert_array_equal(again.graph.data[name], value)
    (tmp_path / "weights").unlink()
    with pytest.raises(RuntimeError, match=r"weights, but it doesn't exist or is not accessible"):
        popart.Builder(builder.getModelProto())


def test_a_saved_model_finds_its_data_in_its_folder_and_is_not_saved_elsewhere(tmp_path: Path) -> None:
    builder = popart.Builder()
    weight = builder.addInitializedInputTensor(np.arange(6, dtype=np.float32).reshape(2, 3))
    builder.addOutputTensor(builder.aiOnnx.relu([weight]))
    builder.saveInitializersExternally([weight], str(tmp_path / "weights"))
    (tmp_path / "other").mkdir()
    builder.saveModelProto(str(tmp_path / "model.onnx"))
    again = popart.Builder(str(tmp_path / "model.onnx")).graph.data[weight]
    np.testing.assert_array_equal(again, builder.graph.data[weight])
    with pytest.raises(popart.popart_exception, match=f"The data of '{weight}' are in '{tmp_path}/weights'"):
        builder.saveModelProto(str(tmp_path / "other" / "model.onnx"))
    assert not list((tmp_path / "other").iterdir())
    saved = onnx.load(str(tmp_path / "model.onnx"))
    np.testing.assert_array_equal(numpy_helper.to_array(saved.graph.initializer[0]), builder.graph.data[weight])


def test_a_model_that_cannot_be_saved_leaves_nothing_behind(tmp_path: Path) -> None:
    builder = popart.Builder()
    weight = builder.addInitializedInputTensor(np.ones(2, np.float32))
    builder.addOutputTensor(builder.aiOnnx.relu([weight]))
    for path in (tmp_path / "none" / "model.onnx", tmp_path):
        text = "Cannot write the initializers" if path == tmp_path else "its parent directory does not exist"
        with pytest.raises(popart.popart_exception, match=text):
            builder.saveInitializersExternally([weight], str(path))
        with pytest.raises(popart.popart_exception, match="Cannot write the model"):
            builder.saveModelProto(str(path))
    assert sorted(tmp_path.parent.glob(f"{tmp_path.name}*")) == [tmp_path]
    assert not list(tmp_path.iterdir())
    assert popart.Builder(builder.getModelProto()).getOutputTensorIds() == builder.getOutputTensorIds()


def all_types() -> dict[str, np.ndarray]:
    types = ["float32", "float16", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "bool"]
    return {name: np.array([[1, 0, 3], [0, 1, 1]]).astype(name) for name in types}


def values_in(builder: popart.Builder) -> dict[str, np.ndarray]:
    """The initializers of a builder's model."""
    model = onnx.load_model_from_string(builder.getModelProto())
    return {proto.name: numpy_helper.to_array(proto) for proto in model.graph.initializer}


class TestModelProto:
    def test_initializers_are_in_typed_fields_in_order(self) -> None:
        builder = popart.Builder()
        values = all_types()
        for name, value in values.items():
            builder.addInitializedInputTensor(value, name)
        model = onnx.load_model_from_string(builder.getModelProto())
        assert [proto.name for proto in model.graph.initializer] == list(values)
        for proto, value in zip(model.graph.initializer, values.values(), strict=True):
            assert not proto.raw_data
            np.testing.assert_array_equal(numpy_helper.to_array(proto), value)
        assert list(model.graph.initializer[0].float_data) == [1, 0, 3, 0, 1, 1]

    def test_every_type_survives_the_way_out_and_in(self) -> None:
        builder = popart.Builder()
        for name, value in all_types().items():
            builder.addInitializedInputTensor(value, name)
        again = values_in(popart.Builder(builder.getModelProto()))
        for name, value in all_types().items():
            np.testing.assert_array_equal(again[name], value)
            assert again[name].dtype == value.dtype

    @pytest.mark.parametrize("count", [0, 1, 31, 32, 4095, 4096, 600_000])
    def test_floats_are_written_as_protobuf_writes_them(self, count: int) -> None:
        value = np.random.default_rng(count).standard_normal(count).astype(np.float32)
        builder = popart.Builder()
        builder.addInitializedInputTensor(value[::-1], "w")
        written = onnx.load_model_from_string(builder.getModelProto()).graph.initializer[0]
        assert written == onnx.helper.make_tensor("w", onnx.TensorProto.FLOAT, (count,), value[::-1])

    @pytest.mark.parametrize("count", [0, 1, 2, 5])
    def test_halves_of_any_number_and_form_can_be_read(self, count: int) -> None:
        value = np.arange(count).astype(np.float16)
        builder = popart.Builder()
        builder.addInitializedInputTensor(value, "w")
        model = onnx.load_model_from_string(builder.getModelProto())
        for proto in (model.graph.initializer[0], numpy_helper.from_array(value, "w"), packed(value)):
            model.graph.initializer[0].CopyFrom(proto)
            np.testing.assert_array_equal(values_in(popart.Builder(model.SerializeToString()))["w"], value)

    @pytest.mark.parametrize("count", [1, 5])
    def test_onnx_and_onnx_runtime_read_halves(self, count: int) -> None:
        """Weights and constants alike, of every sign."""
        runtime = pytest.importorskip("onnxruntime")
        values = np.linspace(-2, 3, 4 * count).astype(np.float16).reshape(4, count)
        builder = popart.Builder(opsets={"ai.onnx": 10})
        weight = builder.addInitializedInputTensor(values[:, ::-1].T, "w")
        total = builder.aiOnnx.add([weight, builder.aiOnnx.constant(values.T)])
        builder.addOutputTensor(total)
        model = onnx.load_model_from_string(builder.getModelProto())
        onnx.checker.check_model(model, full_check=True)
        np.testing.assert_array_equal(numpy_helper.to_array(model.graph.initializer[0]), values[:, ::-1].T)
        settings = runtime.SessionOptions()
        settings.log_severity_level = 3
        (total_read,) = runtime.InferenceSession(builder.getModelProto(), settings).run([total], {})
        np.testing.assert_array_equal(total_read, values[:, ::-1].T + values.T)

    def test_versions_and_domains(self) -> None:
        for opset, version in ((6, 3), (8, 3), (9, 4), (11, 4)):
            builder = popart.Builder(opsets={"ai.onnx": opset})
            builder.aiOnnx.exp([builder.addInputTensor(VECTOR)])
            model = onnx.load_model_from_string(builder.getModelProto())
            assert model.ir_version == version
            assert {(entry.domain, entry.version) for entry in model.opset_import} == {
                ("", opset),
                ("ai.graphcore", 1),
            }

    def test_onnx_accepts_it(self) -> None:
        builder = popart.Builder()
        x = builder.addInputTensor("FLOAT", [2, 3])
        w = [builder.addInitializedInputTensor(np.zeros(shape, np.float32)) for shape in ((3, 4), (4,))]
        y = builder.aiOnnx.gemm([x, *w])
        builder.addOutputTensor(builder.reshape_const(builder.aiOnnx, [y], [4, 2]))
        onnx.checker.check_model(onnx.load_model_from_string(builder.getModelProto()), full_check=True)

    def test_a_file_or_bytes_can_be_read(self, tmp_path: Path) -> None:
        builder = popart.Builder()
        builder.addOutputTensor(builder.aiOnnx.exp([builder.addInputTensor(VECTOR)]))
        file = str(tmp_path / "model.onnx")
        builder.saveModelProto(file)
        for source in (file, builder.getModelProto()):
            again = popart.Builder(source)
            assert again.getOutputTensorIds() == ["Exp:0"]
            assert again.getTensorShape("Exp:0") == [2]
            assert again.getModelProto() == builder.getModelProto()

    def test_anything_but_a_model_is_refused(self) -> None:
        for source in ("no such file.onnx", b"\x00\x01 rubbish"):
            with pytest.raises(
                popart.popart_exception, match=r"^Failed to load a ModelProto from the string '"
            ) as error:
                popart.Builder(source)
            assert error.value.args[0].endswith(
                "'.\nCheck that it is either a valid path to an existing onnx model file, or is a valid onnx "
                "ModelProto string."
            )


def packed(value: np.ndarray) -> onnx.TensorProto:
    """PopART's own form: two halves in each int32, the last one alone if their number is odd."""
    proto = onnx.TensorProto(name="w", data_type=onnx.TensorProto.FLOAT16, dims=value.shape)
    halves = np.concatenate([value, np.zeros(value.size % 2, np.float16)])
    proto.int32_data.extend(halves.view(np.int32).tolist())
    return proto


@pytest.mark.parametrize("opset", [6, 8, 9])
def test_constants_of_integers_are_valid_in_every_opset(opset: int) -> None:
    """Constant of opsets before 9 is of a floating-point type: onnxruntime refuses any other."""
    builder = popart.Builder(opsets={"ai.onnx": opset})
    x = builder.addInputTensor(popart.TensorInfo("FLOAT", [2, 3]))
    shape = builder.aiOnnx.constant(np.array([3, 2]))
    large = builder.aiOnnx.constant(np.array([2**40 + 1, -1]))
    builder.addOutputTensor(builder.aiOnnx.reshape([x, shape]))
    builder.addOutputTensor(large)
    proto = builder.getModelProto()
    model = onnx.load_model_from_string(proto)
    onnx.checker.check_model(model, full_check=True)
    data = np.arange(6, dtype=np.float32).reshape(2, 3)
    y, number = onnxruntime.InferenceSession(proto).run(None, {x: data})
    np.testing.assert_array_equal(y, data.reshape(3, 2))
    assert number.tolist() == [2**40 + 1, -1]
    assert popart.Builder(proto).getTensorShape(model.graph.output[0].name) == [3, 2]
