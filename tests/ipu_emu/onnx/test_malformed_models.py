"""Malformed models: mutated bytes and graphs, unusual values; the only error is a popart_exception."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from ipu_emu import popart
from tests.ipu_emu.helpers.sessions import train


def model() -> bytes:
    """A small network with most kinds of ops."""
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [2, 3, 6, 6])
    w = builder.addInitializedInputTensor(np.ones((4, 3, 3, 3), np.float32))
    m = builder.addInitializedInputTensor(np.ones((36, 5), np.float32))
    y = builder.aiOnnx.relu([builder.aiOnnx.conv([x, w], pads=[1, 1, 1, 1])])
    (y,) = builder.aiOnnx.maxpool([y], 1, [2, 2], strides=[2, 2])
    y = builder.aiOnnx.matmul([builder.aiOnnx.flatten([y]), m])
    y = builder.aiOnnx.softmax([builder.reshape_const(builder.aiOnnx, [y], [-1, 5])])
    parts = builder.aiOnnx.split([y], 2, 1, [2, 3])
    y = builder.aiOnnx.concat([builder.aiOnnx.transpose([part], [1, 0]) for part in parts], 0)
    builder.addOutputTensor(builder.aiOnnx.reducesum([y], [0], 1))
    return builder.getModelProto()


GOOD = model()


def outcome(data: bytes) -> str:
    """The result of compiling a model: "good", or the text of the popart_exception."""
    try:
        outputs = popart.Builder(data).getOutputTensorIds()
        if outputs:
            device = popart.DeviceManager().createCpuDevice()
            popart.InferenceSession(data, popart.DataFlow(1, outputs), device)
    except popart.popart_exception as error:
        return str(error)
    return "good"


def test_mutated_bytes() -> None:
    chance = random.Random(1)
    refused = 0
    for _ in range(300):
        data = bytearray(GOOD)
        for _ in range(chance.choice([1, 1, 2, 8])):
            place = chance.randrange(len(data))
            kind = chance.randrange(3)
            if kind == 0:
                data[place] = chance.randrange(256)
            elif kind == 1:
                del data[place : place + chance.randrange(1, 20)]
            else:
                data[place:place] = bytes(chance.randrange(256) for _ in range(chance.randrange(1, 9)))
        text = outcome(bytes(data))
        assert text
        refused += text != "good"
    assert refused > 100


def test_a_weight_that_no_node_reads_needs_a_name_that_is_text() -> None:
    weights = [onnx.numpy_helper.from_array(np.ones((2, 2), np.float32), name) for name in ("w", "spareX")]
    inputs, outputs = (onnx.helper.make_tensor_value_info(name, 1, [2, 2]) for name in "xy")
    node = onnx.helper.make_node("MatMul", ["x", "w"], ["y"])
    proto = onnx.helper.make_model(
        onnx.helper.make_graph([node], "g", [inputs], [outputs], weights),
        opset_imports=[onnx.helper.make_opsetid("", 11)],
    )
    data = proto.SerializeToString()
    assert outcome(data) == "good"
    assert "is not in UTF-8" in outcome(data.replace(b"spareX", b"spare\xff"))


def drop_input(graph: onnx.GraphProto, node: onnx.NodeProto, chance: random.Random) -> None:
    if node.input:
        del node.input[chance.randrange(len(node.input))]


def rewire(graph: onnx.GraphProto, node: onnx.NodeProto, chance: random.Random) -> None:
    ids = [i.name for i in graph.input] + [o for n in graph.node for o in n.output] + ["nowhere", ""]
    if node.input:
        node.input[chance.randrange(len(node.input))] = chance.choice(ids)


def rename(graph: onnx.GraphProto, node: onnx.NodeProto, chance: random.Random) -> None:
    node.op_type = chance.choice(
        [n.op_type for n in graph.node] + ["Gather", "Loop", "If", "LSTM", "Pad", "Nonsense"]
    )


def odd_attribute(graph: onnx.GraphProto, node: onnx.NodeProto, chance: random.Random) -> None:
    names = [a.name for a in node.attribute] + [
        "axis",
        "axes",
        "perm",
        "pads",
        "strides",
        "kernel_shape",
        "split",
        "to",
    ]
    name = chance.choice(names)
    others = [a for a in node.attribute if a.name != name]
    del node.attribute[:]
    values = [-7, 99, [], [0], [-1, 3, 2**40], 0.5, "text", [1.5, 2.5], 2**62, np.zeros(3), [2, 2, 2, 2, 2, 2]]
    value = chance.choice(values)
    odd = helper.make_tensor(name, 1, [3], [0, 1, 2]) if isinstance(value, np.ndarray) else value
    kind = onnx.AttributeProto.INTS if isinstance(value, list) and not value else None
    node.attribute.extend([*others, helper.make_attribute(name, odd, attr_type=kind)])


def odd_shape(graph: onnx.GraphProto, node: onnx.NodeProto, chance: random.Random) -> None:
    shape = chance.choice([[], [0], [2, 3], [0, 3, 6, 6], [2, 3, -1, 6], [2**31, 2**31, 2**31, 8]])
    kind = chance.choice([1, 7, 9, 10, 11, 8, 16])
    graph.input[0].CopyFrom(helper.make_tensor_value_info(graph.input[0].name, kind, shape))


def more_outputs(graph: onnx.GraphProto, node: onnx.NodeProto, chance: random.Random) -> None:
    node.output.extend(chance.choice([["more"], [""], [*node.output[:1]], ["a", "b", "c", "d", "e", "f"]]))


def no_outputs(graph: onnx.GraphProto, node: onnx.NodeProto, chance: random.Random) -> None:
    del node.output[:]


MUTATIONS: list[Callable[[onnx.GraphProto, onnx.NodeProto, random.Random], None]] = [
    drop_input,
    rewire,
    rename,
    odd_attribute,
    odd_attribute,
    odd_shape,
    more_outputs,
    no_outputs,
]


def test_mutated_graphs() -> None:
    chance = random.Random(2)
    refused = 0
    for _ in range(300):
        proto = onnx.load_model_from_string(GOOD)
        for _ in range(chance.choice([1, 1, 2])):
            chance.choice(MUTATIONS)(proto.graph, chance.choice(proto.graph.node), chance)
        text = outcome(proto.SerializeToString())
        assert text
        refused += text != "good"
    assert refused > 150


def test_a_name_that_is_no_text_is_refused() -> None:
    proto = onnx.load_model_from_string(GOOD)
    proto.graph.node[0].attribute[0].name = "marked"
    assert "the name b'mark\\xffd' is not in UTF-8" in outcome(
        proto.SerializeToString().replace(b"marked", b"mark\xffd")
    )


def test_operands_that_fit_no_replacing_op_are_refused() -> None:
    builder = popart.Builder()
    (y,) = builder.aiOnnx.maxpool([builder.addInputTensor("FLOAT", [1, 1, 6, 6])], 1, [2, 2])
    scales = builder.aiOnnx.constant(np.array([1, 1, 2, 2], np.float32))
    builder.addOutputTensor(builder.aiOnnx.resize([y, scales], mode="linear"))
    proto = onnx.load_model_from_string(builder.getModelProto())
    proto.graph.node[0].attribute.remove(next(a for a in proto.graph.node[0].attribute if a.name == "kernel_shape"))
    proto.graph.node[0].attribute.append(helper.make_attribute("kernel_shape", [1.5, 2.5]))
    assert "is malformed: TypeError: 'float' object" in outcome(proto.SerializeToString())


def test_an_axis_between_two_others_is_refused() -> None:
    builder = popart.Builder()
    builder.addOutputTensor(builder.aiOnnx.unsqueeze([builder.addInputTensor("FLOAT", [3])], [0]))
    proto = onnx.load_model_from_string(builder.getModelProto())
    del proto.graph.node[0].attribute[:]
    proto.graph.node[0].attribute.append(helper.make_attribute("axes", [0.5]))
    assert "use distinct axes from -2 to 1" in outcome(proto.SerializeToString())


def test_a_first_state_of_another_shape_is_refused() -> None:
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [5, 2, 3])
    w, r, h = (builder.addInputTensor("FLOAT", shape) for shape in ([1, 8, 3], [1, 8, 2], [1, 2, 3]))
    with pytest.raises(popart.popart_exception, match=r"must be the first state of \(1, 2, 2\)"):
        builder.getTensorShape(builder.aiOnnx.lstm([x, w, r, "", "", h], 3)[0])


@pytest.mark.parametrize("shape", [[0], [0, 3], [2, 0, 4]])
def test_tensors_of_no_elements(shape: list[int]) -> None:
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", shape)
    y = builder.aiOnnx.relu([builder.aiOnnx.add([x, x])])
    outputs = [y, builder.aiOnnx.concat([y, y], 0), builder.aiOnnx.reducesum([y], None, 0)]
    device = popart.DeviceManager().createCpuDevice()
    session = popart.InferenceSession(builder.getModelProto(), popart.DataFlow(1, outputs), device)
    session.prepareDevice()
    anchors = session.initAnchorArrays()
    session.run(popart.PyStepIO({x: np.zeros(shape, np.float32)}, anchors))
    assert anchors[outputs[0]].size == 0
    assert anchors[outputs[2]] == 0


def test_not_a_number_keeps_its_position() -> None:
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [3])
    outputs = [getattr(builder.aiOnnx, name)([x]) for name in ("relu", "abs", "floor", "tanh", "neg")]
    outputs += [builder.aiOnnx.max([x, x]), builder.aiOnnx.clip([x], 1.0, -1.0)]
    device = popart.DeviceManager().createCpuDevice()
    session = popart.InferenceSession(builder.getModelProto(), popart.DataFlow(1, outputs), device)
    session.prepareDevice()
    anchors = session.initAnchorArrays()
    session.run(popart.PyStepIO({x: np.array([1, np.nan, 2], np.float32)}, anchors))
    for id in outputs:
        assert np.isnan(anchors[id]).tolist() == [False, True, False], id


def test_the_largest_of_a_window_with_nan_is_nan() -> None:
    """As in PyTorch; the gradient and the index are those of the NaN."""
    builder = popart.Builder()
    value = np.array([[[[1, np.nan, 5, 4], [3, 2, -np.inf, 6]]]], np.float32).repeat(17, 0)
    x = builder.addInitializedInputTensor(value)
    y, places = builder.aiOnnx.maxpool([x], 2, [2, 2], strides=[2, 2])
    deep = builder.aiOnnx.maxpool([builder.reshape_const(builder.aiOnnx, [x], [17, 1, 1, 2, 4])], 1, [1, 2, 2])[0]
    loss = builder.aiGraphcore.identityloss([y], popart.ReductionType.Sum)
    gradient = popart.reservedGradientPrefix() + x
    session = train(builder, popart.DataFlow(1, [y, places, deep, gradient]), loss, popart.ConstSGD(1.0))
    anchors = session.initAnchorArrays()
    session.run(popart.PyStepIO({}, anchors))
    np.testing.assert_array_equal(anchors[y][:, 0, 0], [[np.nan, 6]] * 17)
    np.testing.assert_array_equal(anchors[deep][:, 0, 0, 0], [[np.nan, np.nan, 6]] * 17)
    np.testing.assert_array_equal(anchors[places].reshape(17, 2) % 8, [[1, 7]] * 17)
    np.testing.assert_array_equal(anchors[gradient][0, 0], [[0, 1, 0, 0], [0, 0, 0, 1]])


@pytest.mark.parametrize("kind", [np.float32, np.float16])
def test_a_loss_of_nan_does_not_look_like_a_number(kind: type) -> None:
    """A training that has diverged must not report the loss of the smallest probability."""
    builder = popart.Builder()
    p = builder.addInitializedInputTensor(np.array([[np.nan, 0.5], [0.25, 0.5]], kind))
    labels = builder.addInputTensor("INT32", [2])
    loss = builder.aiGraphcore.nllloss([p, labels], popart.ReductionType.NoReduction)
    total = builder.aiGraphcore.identityloss([loss])
    gradient = popart.reservedGradientPrefix() + p
    session = train(builder, popart.DataFlow(1, [loss, gradient]), total, popart.ConstSGD(1.0))
    anchors = session.initAnchorArrays()
    session.run(popart.PyStepIO({labels: np.zeros(2, np.int32)}, anchors))
    assert np.isnan(anchors[loss]).tolist() == [True, False]
    assert np.isnan(anchors[gradient]).tolist() == [[True, False], [False, False]]


WEIGHT = {size: np.ones(size, np.float32) for size in ((3,), (1, 8, 3), (1, 8, 2), (1, 6, 3), (1, 6, 2))}
EMPTY: dict[str, tuple[tuple[int, ...], list[np.ndarray], Callable[[Any, str, list[str]], str]]] = {
    "max pooling": ((0, 3, 4, 4), [], lambda b, x, w: b.aiOnnx.maxpool([x], 1, [2, 2])[0]),
    "average pooling": ((0, 3, 4, 4), [], lambda b, x, w: b.aiOnnx.averagepool([x], [2, 2])),
    "local response": ((0, 3, 4, 4), [], lambda b, x, w: b.aiOnnx.lrn([x], 3)),
    "batch normalisation": (
        (0, 3, 2, 2),
        [WEIGHT[3,]] * 4,
        lambda b, x, w: b.aiOnnx.batchnormalization([x, *w], 5)[0],
    ),
    "group normalisation": (
        (0, 3),
        [WEIGHT[3,]] * 2,
        lambda b, x, w: b.aiGraphcore.groupnormalization([x, *w], 1)[0],
    ),
    "instance normalisation": (
        (2, 3, 0),
        [WEIGHT[3,]] * 2,
        lambda b, x, w: b.aiOnnx.instancenormalization([x, *w]),
    ),
    "medians of no rows": ((0, 3), [], lambda b, x, w: b.aiGraphcore.reducemedian([x], [1])[0]),
    "logarithm of no classes": ((3, 0), [], lambda b, x, w: b.aiOnnx.logsoftmax([x])),
    "mean of nothing": ((3, 0), [], lambda b, x, w: b.aiOnnx.reducemean([x], [1])),
    "lstm": ((5, 0, 3), [WEIGHT[1, 8, 3], WEIGHT[1, 8, 2]], lambda b, x, w: b.aiOnnx.lstm([x, *w], 3)[0]),
    "gru": ((5, 0, 3), [WEIGHT[1, 6, 3], WEIGHT[1, 6, 2]], lambda b, x, w: b.aiOnnx.gru([x, *w], 2)[0]),
}


@pytest.mark.parametrize("name", EMPTY)
def test_tensors_without_elements_train(name: str) -> None:
    shape, arrays, make = EMPTY[name]
    builder = popart.Builder()
    x = builder.addInitializedInputTensor(np.zeros(shape, np.float32))
    y = make(builder, x, [builder.addInitializedInputTensor(array) for array in arrays])
    loss = builder.aiGraphcore.identityloss([y], popart.ReductionType.Sum)
    gradient = popart.reservedGradientPrefix() + x
    session = train(builder, popart.DataFlow(1, [loss, gradient]), loss, popart.ConstSGD(1.0))
    anchors = session.initAnchorArrays()
    session.run(popart.PyStepIO({}, anchors))
    assert anchors[gradient].shape == shape
    assert anchors[loss] == 0 or name == "mean of nothing"


def test_the_median_of_nothing_is_refused() -> None:
    builder = popart.Builder()
    y = builder.aiGraphcore.reducemedian([builder.addInputTensor("FLOAT", [3, 0])], [1])[0]
    with pytest.raises(popart.popart_exception, match="have no middle element"):
        builder.getTensorShape(y)


@pytest.mark.parametrize("dims", [[-4, 4], [-1, 4], [-4, -4]])
@pytest.mark.parametrize("repeats", [1, 10_000], ids=["small", "large"])
def test_negative_sizes_of_weights_are_refused(dims: list[int], repeats: int) -> None:
    for field, kind in (("float_data", onnx.TensorProto.FLOAT), ("int32_data", onnx.TensorProto.FLOAT16)):
        tensor = onnx.TensorProto(name="w", data_type=kind, dims=[dims[0] * repeats, dims[1]])
        getattr(tensor, field).extend([1] * abs(tensor.dims[0] * tensor.dims[1]))
        node = helper.make_node("MatMul", ["x", "w"], ["y"])
        inputs = [helper.make_tensor_value_info("x", kind, [2, 4])]
        graph = helper.make_graph([node], "g", inputs, [helper.make_tensor_value_info("y", kind, [2, 4])], [tensor])
        proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 11)], ir_version=7)
        assert "no size can be negative" in outcome(proto.SerializeToString())
