"""Ops of imported models: sequences of known length, ops that ONNX defines by others, and unknown ops."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from ipu_emu import popart
from tests.ipu_emu.ops.cases.onnx_cases import run

INT = np.int64


def model(
    nodes: Sequence[onnx.NodeProto], shape: Sequence[int], outputs: Sequence[str], opset: int
) -> onnx.ModelProto:
    x = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, shape)
    infos = [helper.make_tensor_value_info(id, onnx.TensorProto.FLOAT, None) for id in outputs]
    graph = helper.make_graph(list(nodes), "g", [x], infos)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])


def number(id: str, value: Any) -> onnx.NodeProto:
    return helper.make_node("Constant", [], [id], value=numpy_helper.from_array(np.array(value, INT)))


@pytest.mark.parametrize("opset", [11, 13, 20])
def test_sequences_of_known_length_are_their_tensors(opset: int) -> None:
    node = helper.make_node
    nodes = [
        node("SplitToSequence", ["x"], ["rows"], axis=0, keepdims=0),
        number("last", -1),
        number("first", 0),
        node("SequenceAt", ["rows", "last"], ["y"]),
        node("SequenceErase", ["rows", "first"], ["fewer"]),
        node("SequenceInsert", ["fewer", "y", "first"], ["more"]),
        node("ConcatFromSequence", ["more"], ["z"], axis=0, new_axis=1),
    ]
    x = np.arange(6, dtype=np.float32).reshape(3, 2)
    results = run(model(nodes, [3, 2], ["y", "z"], opset), {"x": x})
    np.testing.assert_array_equal(results["y"], x[2])
    np.testing.assert_array_equal(results["z"], x[[2, 1, 2]])


def test_unequal_parts() -> None:
    nodes = [
        number("sizes", [1, 3]),
        helper.make_node("SplitToSequence", ["x", "sizes"], ["parts"], axis=0),
        number("one", 1),
        helper.make_node("SequenceAt", ["parts", "one"], ["y"]),
    ]
    x = np.arange(4, dtype=np.float32)
    np.testing.assert_array_equal(run(model(nodes, [4], ["y"], 13), {"x": x})["y"], x[1:])


def test_an_op_that_onnx_defines_by_others() -> None:
    nodes = [helper.make_node("CenterCropPad", ["x", "shape"], ["y"], axes=[0])]
    x = np.arange(5, dtype=np.float32)
    results = run(model([number("shape", [3]), *nodes], [5], ["y"], 18), {"x": x})
    np.testing.assert_array_equal(results["y"], [1, 2, 3])


def test_all_ops_that_are_not_supported_are_named() -> None:
    nodes = [
        helper.make_node("StringNormalizer", ["x"], ["a"], name="norm"),
        helper.make_node("ImageDecoder", ["x"], ["b"], name="first"),
        helper.make_node("ImageDecoder", ["x"], ["c"]),
        helper.make_node("Relu", ["x"], ["y"]),
    ]
    with pytest.raises(popart.popart_exception) as error:
        run(model(nodes, [2], ["y"], 20), {"x": np.zeros(2, np.float32)})
    text = str(error.value.args[0])
    assert "ai.onnx.ImageDecoder: first, c\n" in text
    assert "ai.onnx.StringNormalizer: norm (devices have no strings; convert them to numbers on the host)\n" in text
    assert "Relu" not in text
    assert "AdamUpdate" not in text


def test_models_stored_in_bfloat16_are_computed_in_float() -> None:
    stored, node = onnx.TensorProto.BFLOAT16, helper.make_node
    w = helper.make_tensor("w", stored, [2], [0.5, 3.0])
    nodes = [node("Cast", ["x"], ["c"], to=stored), node("Mul", ["c", "w"], ["y"])]
    x = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [2])
    y = helper.make_tensor_value_info("y", stored, [2])
    graph = helper.make_graph(nodes, "g", [x], [y], [w])
    results = run(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)]), {"x": np.ones(2, np.float32)}
    )
    assert results["y"].dtype == np.float32
    np.testing.assert_array_equal(results["y"], [0.5, 3])


def test_step_data_may_be_bfloat16() -> None:
    narrow = pytest.importorskip("ml_dtypes", reason="ml_dtypes is missing; onnx brings it").bfloat16
    stored, node = onnx.TensorProto.BFLOAT16, helper.make_node
    infos = [helper.make_tensor_value_info(id, stored, [2]) for id in ("x", "y")]
    graph = helper.make_graph([node("Neg", ["x"], ["y"])], "g", infos[:1], infos[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)])
    with pytest.warns(UserWarning, match="step data is converted to FLOAT"):
        results = run(model, {"x": np.array([1.5, -2], narrow)})
    np.testing.assert_array_equal(results["y"], [-1.5, 2])
