"""Builder: ids, scopes, opsets, and the arguments of ops."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ipu_emu import popart
from ipu_emu.onnx.properties import ModelProperties

VECTOR = popart.TensorInfo("FLOAT", [2])


def test_ids_of_inputs_weights_and_outputs() -> None:
    builder = popart.Builder()
    assert [builder.addInputTensor(VECTOR) for _ in range(3)] == ["input", "input/1", "input/2"]
    assert builder.addInputTensor("FLOAT16", [1], debugContext="image") == "image"
    weight = np.zeros(2, np.float32)
    assert [builder.addInitializedInputTensor(weight) for _ in range(2)] == ["init_input", "init_input/1"]
    assert builder.addInitializedInputTensor(weight, "w") == "w"
    assert [builder.aiOnnx.add(["input", "w"]) for _ in range(3)] == ["Add:0", "Add:0/1", "Add:0/2"]
    assert builder.aiGraphcore.l1loss(["Add:0"], 0.1) == "L1:0"
    assert builder.aiOnnx.maxpool([builder.addInputTensor("FLOAT", [1, 1, 2, 2])], 1, [2, 2]) == ["MaxPool:0"]


BROADCAST = popart.InputSettings(popart.ReplicatedStreamMode.Broadcast)
ONES = np.ones(2, np.float32)


@pytest.mark.parametrize(
    ("add", "id"),
    [
        (lambda builder: builder.addInputTensor(tensorInfo=VECTOR), "input"),
        (lambda builder: builder.addInputTensor(dataType="FLOAT", shape=[2]), "input"),
        (lambda builder: builder.addInputTensor(VECTOR, "x"), "x"),
        (lambda builder: builder.addInputTensor(VECTOR, debugPrefix="x"), "x"),
        (lambda builder: builder.addInputTensor(VECTOR, BROADCAST, "x"), "x"),
        (lambda builder: builder.addInputTensor(VECTOR, settings=BROADCAST, debugContext="x"), "x"),
        (lambda builder: builder.addInputTensor("FLOAT", [2], "x"), "x"),
        (lambda builder: builder.addInputTensor("FLOAT", [2], popart.DebugContext("x")), "x"),
        (lambda builder: builder.addInitializedInputTensor(initVal=ONES), "init_input"),
        (lambda builder: builder.addInitializedInputTensor(ONES, popart.VariableSettings(), "x"), "x"),
        (lambda builder: builder.addInitializedInputTensor(ONES, debugPrefix="x"), "x"),
    ],
)
def test_inputs_are_described_in_any_form(add: Any, id: str) -> None:
    builder = popart.Builder()
    assert add(builder) == id
    assert (builder.getTensorShape(id), builder.getTensorDtypeString(id)) == ([2], "float32")


def test_parameters_that_inputs_do_not_have() -> None:
    builder = popart.Builder()
    with pytest.raises(TypeError, match=r"'setings'.*tensorInfo, dataType, shape, settings"):
        builder.addInputTensor(VECTOR, setings=BROADCAST)
    with pytest.raises(TypeError, match=r"initVal, variableSettings, debugContext, debugPrefix.*name"):
        builder.addInitializedInputTensor(ONES, name="x")


def test_settings_after_an_element_type_are_dropped_as_in_popart() -> None:
    builder = popart.Builder()
    with pytest.warns(UserWarning, match="have no effect, as in PopART; give a TensorInfo"):
        builder.addInputTensor("FLOAT", [2], BROADCAST)
    assert ModelProperties.of(builder.graph.metadata).broadcast == frozenset()
    assert ModelProperties.of(builder.graph.metadata | BROADCAST.metadata("x")).broadcast == {"x"}


def test_input_settings_keep_their_values() -> None:
    tiles, exchange = popart.TileSet.IO, popart.ExchangeStrategy.OverlapLoops
    settings = popart.InputSettings(tiles, exchange, popart.ReplicatedStreamMode.Broadcast)
    assert (settings.tileSet(), settings.exchangeStrategy()) == (tiles, exchange)
    assert settings.replicatedStreamMode() is popart.ReplicatedStreamMode.Broadcast
    settings.setTileSet(popart.TileSet.Compute)
    assert settings.metadata("x") == {
        "__input_exchange_strategy/x": "OverlapLoops",
        "__replicated_stream_mode/x": "Broadcast",
    }


def test_an_id_is_unique_in_higher_and_lower_scopes() -> None:
    builder = popart.Builder()
    x = builder.addInputTensor(VECTOR)
    inner = builder.createSubgraphBuilder()
    assert inner.addInputTensor(VECTOR) == "input/1"
    assert inner.createSubgraphBuilder().addInputTensor(VECTOR, "deep") == "deep"
    assert inner.aiOnnx.exp(["input/1"]) == "Exp:0"
    assert builder.aiOnnx.exp([x]) == "Exp:0/1"
    assert builder.addInputTensor(VECTOR, "deep") == "deep/1"


def test_name_scopes_nest_in_front_of_ids() -> None:
    builder = popart.Builder()
    x = builder.addInputTensor(VECTOR)
    with builder.nameScope("a"):
        assert builder.aiOnnx.exp([x]) == "a/Exp:0"
        with builder.nameScope("b"):
            assert builder.getNameScope() == "a/b/"
            assert builder.aiOnnx.exp([x]) == "a/b/Exp:0"
            assert builder.addInitializedInputTensor(np.zeros(2, np.float32), "w") == "a/b/w"
    assert builder.aiOnnx.exp([x]) == "Exp:0"


def test_reserved_prefixes() -> None:
    names = ["Gradient", "Accum", "Accl", "Accl1", "Accl2", "Accl3", "Step", "Counter", "Restored", "Stashed"]
    assert [getattr(popart, f"reserved{name}Prefix")() for name in names] == [f"{name}___" for name in names]
    assert popart.reservedUpdatedVarPrefix() == "UpdatedVar___"
    assert popart.reservedRandomSeedPrefix() == "randomSeed___"


def test_shapes_and_types_are_inferred() -> None:
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT16", [4, 3, 8, 8])
    w = builder.addInitializedInputTensor(np.zeros((5, 3, 3, 3), np.float16))
    y = builder.aiOnnx.conv([x, w], strides=[2, 2], pads=[1, 1, 1, 1])
    assert (builder.getTensorShape(y), builder.getTensorDtypeString(y)) == ([4, 5, 4, 4], "float16")
    assert builder.getTensorDtypeString(builder.aiOnnx.cast([y], "INT32")) == "int32"
    assert (builder.isInitializer(w), builder.isInitializer(x)) == (True, False)
    assert builder.getInputTensorIds() == [x, w]
    assert builder.getTrainableTensorIds() == [w]
    builder.addOutputTensor(y)
    assert builder.getOutputTensorIds() == [y]


def test_attributes_by_position_follow_the_reference() -> None:
    """Required attributes come first, then the optional ones, both in alphabetical order."""
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [1, 2, 6, 6])
    w = builder.addInitializedInputTensor(np.zeros((2, 1, 3, 3), np.float32))
    y = builder.aiOnnx.conv([x, w], [2, 2], 2, [3, 3], [1, 1, 1, 1], [1, 1], "name")
    assert builder.getInt64VectorNodeAttribute("dilations", {y}) == [2, 2]
    assert builder.getInt64NodeAttribute("group", {y}) == 2
    assert builder.getInt64VectorNodeAttribute("kernel_shape", {y}) == [3, 3]
    assert builder.getInt64VectorNodeAttribute("pads", {y}) == [1, 1, 1, 1]
    assert builder.getInt64VectorNodeAttribute("strides", {y}) == [1, 1]
    g = builder.aiOnnxOpset10.gemm([builder.addInputTensor("FLOAT", [2, 2]) for _ in range(3)], 0.5, 2.0, 1, 0)
    assert [builder.getFloatNodeAttribute(name, {g}) for name in ("alpha", "beta")] == [0.5, 2.0]
    assert [builder.getInt64NodeAttribute(name, {g}) for name in ("transA", "transB")] == [1, 0]


def test_the_same_op_in_different_opsets() -> None:
    pooled = []
    for opset, values in ((7, ([2, 2],)), (8, (1, [2, 2])), (10, (1, [2, 2], 0))):
        builder = popart.Builder()
        x = builder.addInputTensor("FLOAT", [1, 1, 4, 4])
        pooled.append(getattr(builder, f"aiOnnxOpset{opset}").maxpool([x], *values))
    assert pooled == ["MaxPool:0", ["MaxPool:0"], ["MaxPool:0"]]


def test_the_first_opset_is_locked() -> None:
    builder = popart.Builder()
    x = builder.addInputTensor(VECTOR)
    assert builder.aiOnnxOpset9.exp([x]) == "Exp:0"
    locked = [builder, popart.Builder(opsets={"ai.onnx": 9}), popart.Builder(builder.getModelProto())]
    for other in [*locked, builder.createSubgraphBuilder()]:
        with pytest.raises(RuntimeError) as error:
            _ = other.aiOnnxOpset11
        assert error.value.args[0] == (
            "Invalid opset 'aiOnnxOpset11' selected. Opset for domain ai.onnx already defined as 9"
        )
    assert builder.aiOnnx.exp([x]) == "Exp:0/1"


@pytest.mark.parametrize("to", ["INT32", "int32", popart.DataType.INT32])
def test_a_type_to_cast_to_has_several_names(to: Any) -> None:
    builder = popart.Builder()
    y = builder.aiOnnx.cast([builder.addInputTensor(VECTOR)], to)
    assert builder.getTensorDtypeString(y) == "int32"


def test_ops_that_cannot_be_loaded() -> None:
    builder = popart.Builder()
    x = builder.addInputTensor(VECTOR)
    with pytest.raises(popart.popart_exception, match="Custom op Cube of domain com"):
        builder.customOp("Cube", 1, "com.acme", [x], {})
    with pytest.raises(AttributeError, match="No op 'binarizer' in opset 1"):
        builder.aiOnnxMl.binarizer([x], 0.5)


def test_unknown_ops_and_attributes() -> None:
    builder = popart.Builder()
    x = builder.addInputTensor(VECTOR)
    with pytest.raises(AttributeError, match="No op 'nothing'"):
        _ = builder.aiOnnx.nothing
    with pytest.raises(TypeError, match=r"softmax\(\): incompatible function arguments"):
        builder.aiOnnx.softmax([x], strength=2)
    with pytest.raises(TypeError, match=r"2 values.*axis, debugContext.*3"):
        builder.aiOnnx.softmax([x], 1, "name", 3)
    with pytest.raises(TypeError, match="args is 'input'; give a list of ids"):
        builder.aiOnnx.softmax(x)
    with pytest.raises(popart.popart_exception, match=r"Add has invalid number of inputs 1. Must be between 2..2"):
        builder.aiOnnx.add([x])
    with pytest.raises(popart.popart_exception, match=r"Gemm has invalid number of inputs 2. Must be between 3..3"):
        builder.aiOnnx.gemm([builder.addInputTensor("FLOAT", [2, 2])] * 2)
    with pytest.raises(popart.popart_exception, match=r"Unknown tensor 'y' \(valid"):
        builder.aiOnnx.add([x, "y"])


@pytest.mark.parametrize(
    ("opset", "op", "count", "attributes", "bounds"),
    [
        (10, "gemm", 1, (), "3..3"),
        (11, "gemm", 1, (), "2..3"),
        (9, "slice", 2, ([1], [0]), "1..1"),
        (10, "slice", 2, (), "3..5"),
        (10, "topk", 1, (), "2..2"),
        (10, "clip", 3, (), "1..1"),
        (10, "sum", 0, (), "1..inf"),
    ],
)
def test_numbers_of_inputs_are_those_of_the_opset(
    opset: int, op: str, count: int, attributes: Any, bounds: str
) -> None:
    builder = popart.Builder(opsets={"ai.onnx": opset, "ai.graphcore": 1})
    xs = [builder.addInputTensor("FLOAT", [2, 2]) for _ in range(count)]
    with pytest.raises(popart.popart_exception) as error:
        getattr(builder.aiOnnx, op)(xs, *attributes)
    assert error.value.args[0].endswith(f"has invalid number of inputs {count}. Must be between {bounds}")


def test_old_broadcasting_must_align_the_last_axes() -> None:
    builder = popart.Builder()
    a, b = builder.addInputTensor("FLOAT", [2, 3]), builder.addInputTensor("FLOAT", [3])
    assert builder.aiOnnxOpset6.add([a, b], axis=1, broadcast=1) == "Add:0"
    builder.aiOnnxOpset6.add([a, b], axis=0, broadcast=1)
    with pytest.raises(popart.popart_exception, match="axis 0 does not align"):
        popart.Builder(builder.getModelProto())


def test_a_negative_dimension_is_refused_at_once() -> None:
    builder = popart.Builder()
    x, w = builder.addInputTensor("FLOAT", [2, 3, 2, 8]), builder.addInputTensor("FLOAT", [5, 3, 4, 3])
    with pytest.raises(popart.popart_exception) as error:
        builder.aiOnnx.conv([x, w])
    assert error.value.args[0] == (
        "Output 'Conv:0' of node 'Conv' has invalid shape, [2 5 -1 6]. Values must be non-negative in each shape "
        "dimension."
    )


def test_tensor_info() -> None:
    info = popart.TensorInfo(np.float16, [2, 3])
    assert (info.shape(), info.data_type(), info.data_type_lcase()) == ([2, 3], "FLOAT16", "float16")
    assert popart.TensorInfo(np.zeros((4, 1), np.int32)) == popart.TensorInfo("INT32", [4, 1])
    assert popart.TensorInfo(popart.DataType.FLOAT16, (2, 3)) == info
    with pytest.raises(popart.popart_exception, match="Unrecognised data type 'FLOAT17'"):
        popart.TensorInfo("FLOAT17", [1])


def test_shapes_behind_an_op_whose_inputs_do_not_fit_are_not_known() -> None:
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [2, 3])
    wrong = builder.aiOnnx.matmul([x, x])
    later = builder.aiOnnx.relu([wrong])
    for id in (wrong, later):
        for query in (builder.getTensorShape, builder.getTensorDtypeString):
            with pytest.raises(popart.popart_exception, match=f"Shape and type of tensor '{id}' are not known: "):
                query(id)
    assert builder.getTensorShape(builder.aiOnnx.relu([x])) == [2, 3]
