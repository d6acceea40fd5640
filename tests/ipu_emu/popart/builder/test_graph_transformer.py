"""GraphTransformer: its models, checked by ONNX's checker, its reference evaluator and a session."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from ipu_emu import popart
from tests.ipu_emu.ops.cases.onnx_cases import run

RNG = np.random.default_rng(0)


def model(
    nodes: list[Any], inputs: dict[str, np.dtype[Any]], weights: dict[str, np.ndarray], *, opset: int = 10
) -> bytes:
    """A model of vectors of two elements, whose one output is y, with the weights among its inputs."""
    numbers = {name: helper.np_dtype_to_tensor_dtype(np.dtype(kind)) for name, kind in inputs.items()}
    infos = [helper.make_tensor_value_info(name, number, [2]) for name, number in numbers.items()]
    protos = [numpy_helper.from_array(value, name) for name, value in weights.items()]
    infos += [helper.make_tensor_value_info(proto.name, proto.data_type, proto.dims) for proto in protos]
    y = helper.make_tensor_value_info("y", infos[0].type.tensor_type.elem_type, [2])
    graph = helper.make_graph(nodes, "g", infos, [y], protos)
    version = 3 if opset <= 8 else 4
    built = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=version)
    return bytes(built.SerializeToString())


def changed(proto: bytes, method: str, *arguments: Any) -> onnx.ModelProto:
    transformer = popart.GraphTransformer(proto)
    getattr(transformer, method)(*arguments)
    transformed = onnx.load_model_from_string(transformer.getModelProto())
    onnx.checker.check_model(transformed, full_check=True)
    return transformed


def affine(kind: Any, **extra: np.ndarray) -> bytes:
    """y = x * w + c, where c is a constant of the graph."""
    nodes = [
        helper.make_node("Constant", [], ["c"], value=numpy_helper.from_array(np.array([1, 2], kind))),
        helper.make_node("Mul", ["x", "w"], ["p"]),
        helper.make_node("Add", ["p", "c"], ["y"]),
    ]
    return model(nodes, {"x": kind}, {"w": np.array([3, 5], kind), **extra}, opset=14)


CONVERSIONS = [
    ("convertFloatsToHalfs", np.float32, np.float16),
    ("convertDoublesToFloats", np.float64, np.float32),
    ("convertDoublesToHalfs", np.float64, np.float16),
    ("convertBFloats16ToFloat32", ml_dtypes.bfloat16, np.float32),
    ("convertUINT8ToINT32", np.uint8, np.int32),
    ("convertUINT16ToINT32", np.uint16, np.int32),
    ("convertINT8ToINT32", np.int8, np.int32),
    ("convertINT16ToINT32", np.int16, np.int32),
    ("convertINT64ToINT32", np.int64, np.int32),
]


@pytest.mark.parametrize(("method", "old", "new"), CONVERSIONS)
def test_a_conversion_changes_inputs_weights_constants_and_outputs(method: str, old: Any, new: Any) -> None:
    converted = changed(affine(old), method)
    x = np.array([7, 11], new)
    result = run(converted, {"x": x})["y"]
    assert result.dtype == new
    np.testing.assert_array_equal(result, ReferenceEvaluator(converted).run(None, {"x": x})[0])
    np.testing.assert_array_equal(result, [22, 57])


def test_other_types_are_unchanged() -> None:
    proto = affine(np.float32)
    for method, old, _ in CONVERSIONS:
        if old is not np.float32:
            assert changed(proto, method) == onnx.load_model_from_string(proto)


def test_casts_and_bodies_are_converted_too() -> None:
    value = numpy_helper.from_array(np.array([1, 2], np.float32))
    y = helper.make_tensor_value_info("b", TensorProto.FLOAT, [2])
    body = helper.make_graph([helper.make_node("Constant", [], ["b"], value=value)], "body", [], [y])
    nodes = [
        helper.make_node("If", ["flag"], ["a"], then_branch=body, else_branch=body),
        helper.make_node("Cast", ["n"], ["f"], to=TensorProto.FLOAT),
        helper.make_node("Add", ["a", "f"], ["s"]),
        helper.make_node("Add", ["s", "x"], ["y"]),
    ]
    inputs = {"x": np.float32, "n": np.int32}
    converted = changed(model(nodes, inputs, {"flag": np.array(True)}), "convertFloatsToHalfs")
    result = run(converted, {"x": np.array([1, 1], np.float16), "n": np.array([3, 4], np.int32)})["y"]
    assert (result.dtype, result.tolist()) == (np.float16, [5, 7])


def test_values_that_no_int32_holds_are_clipped_on_demand_only() -> None:
    proto = affine(np.int64, far=np.array([2**40, -(2**40), 5]))
    transformer = popart.GraphTransformer(proto)
    with pytest.raises(popart.popart_exception, match=r"'far'.*1099511627776.*clip=True"):
        transformer.convertINT64ToINT32()
    assert onnx.load_model_from_string(transformer.getModelProto()) == onnx.load_model_from_string(proto)
    transformer.convertINT64ToINT32(clip=True)
    far = onnx.load_model_from_string(transformer.getModelProto()).graph.initializer[1]
    assert numpy_helper.to_array(far).tolist() == [2**31 - 1, -(2**31), 5]


def test_unused_inputs_go() -> None:
    nodes = [helper.make_node("Mul", ["x", "w"], ["y"])]
    proto = model(nodes, {"x": np.float32, "z": np.float32}, {"w": np.ones(2, np.float32), "u": np.ones(3)})
    graph = changed(proto, "removeUnusedInputs").graph
    assert [info.name for info in graph.input] == ["x", "w"]
    assert [proto.name for proto in graph.initializer] == ["w"]


def test_initializers_become_constants_that_are_not_trained() -> None:
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [2])
    w, b = (builder.addInitializedInputTensor(np.array([3, 5], np.float32), name) for name in "wb")
    loss = builder.aiGraphcore.l1loss([builder.aiOnnx.add([builder.aiOnnx.mul([x, w]), b])], 1.0)
    builder.addOutputTensor(loss)
    converted = changed_quietly(builder.getModelProto(), "convertInitializersToConstants", [b])
    device = popart.DeviceManager().createCpuDevice()
    flow = popart.DataFlow(1, {loss: popart.AnchorReturnType("All")})
    session = popart.TrainingSession(converted, flow, loss, popart.ConstSGD(0.5), device)
    session.prepareDevice()
    session.weightsFromHost()
    anchors = session.initAnchorArrays()
    session.run(popart.PyStepIO({x: np.ones(2, np.float32)}, anchors))
    session.weightsToHost()
    weight = np.empty(2, np.float32)
    session.readWeights(popart.PyWeightsIO({w: weight}))
    assert (float(anchors[loss]), weight.tolist()) == (8.0, [2.75, 4.75])
    assert popart.Builder(converted).getTrainableTensorIds() == [w]
    session.close()


def changed_quietly(proto: bytes, method: str, *arguments: Any) -> bytes:
    """As ``changed``, for models with ops that ONNX's checker does not support."""
    transformer = popart.GraphTransformer(proto)
    getattr(transformer, method)(*arguments)
    return transformer.getModelProto()


def test_all_integer_initializers_become_constants() -> None:
    proto = affine(np.float32, i=np.array([1]), u=np.array([1], np.uint8), f=np.ones(1, np.float16))
    graph = changed(proto, "convertAllFixedPointInitializersToConstants").graph
    assert [proto.name for proto in graph.initializer] == ["w", "f"]
    assert [node.output[0] for node in graph.node] == ["i", "u", "c", "p", "y"]


def test_initializers_in_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "weights.bin"
    transformer = popart.GraphTransformer(affine(np.float32))
    transformer.saveInitializersExternally(["w"], str(file))
    assert np.fromfile(file, np.float32).tolist() == [3, 5]
    proto = onnx.load_model_from_string(transformer.getModelProto())
    assert proto.graph.initializer[0].data_location == TensorProto.EXTERNAL
    assert run(proto, {"x": np.array([7, 11], np.float32)})["y"].tolist() == [22, 57]


def test_an_id_that_is_no_initializer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    transformer, file = popart.GraphTransformer(affine(np.float32)), str(tmp_path / "f")
    with pytest.raises(popart.popart_exception, match=r"^TensorId x not in the model initalizers"):
        transformer.convertInitializersToConstants(["w", "x"])
    with pytest.raises(popart.popart_exception, match=r"^Tensor 'x' is not an initializer$"):
        transformer.saveInitializersExternally(["w", "x"], file)
    transformer.saveInitializersExternally(["w"], file)
    with pytest.raises(popart.popart_exception, match=r"^Tensor 'w' already has an external data_location$"):
        transformer.saveInitializersExternally(["w"], file)
    assert run(onnx.load_model_from_string(transformer.getModelProto()), {"x": np.array([7, 11], np.float32)})


@pytest.mark.parametrize("name", ["", "bn"])
def test_batch_normalisation_and_dropout_for_training(name: str) -> None:
    weights = {key: np.ones(2, np.float32) for key in ("s", "b", "m", "v")}
    nodes = [
        helper.make_node("BatchNormalization", ["x", *weights], ["n"], name=name, is_test=1),
        helper.make_node("Dropout", ["n"], ["y"], is_test=1),
    ]
    proto = model(nodes, {"x": np.float32}, weights, opset=6)
    norm, dropout = onnx.load_model_from_string(changed_quietly(proto, "prepareNodesForTraining")).graph.node
    prefix = name or "n"
    assert list(norm.output) == ["n", *(f"{prefix}_{key}" for key in ("mean", "var", "saved_mean", "saved_var"))]
    assert [helper.get_node_attr_value(node, "is_test") for node in (norm, dropout)] == [0, 0]


def test_from_a_file_and_from_nonsense(tmp_path: Path) -> None:
    file = tmp_path / "model.onnx"
    file.write_bytes(affine(np.float32))
    transformed = onnx.load_model_from_string(popart.GraphTransformer(str(file)).getModelProto())
    assert transformed == onnx.load_model_from_string(affine(np.float32))
    with pytest.raises(popart.popart_exception, match="Failed to load a ModelProto from the string 'nonsense'"):
        popart.GraphTransformer("nonsense")
