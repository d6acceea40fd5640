"""Resize in the opsets of PopART: its elements compared with a loop over the output, and its errors."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from ipu_emu import popart
from tests.ipu_emu.helpers.sessions import infer, train

#: The place in an input of n elements of output element i, with scale s.
PLACES: dict[str, Callable[[int, float, int], float]] = {
    "half_pixel": lambda i, s, n: (i + 0.5) / s - 0.5,
    "pytorch_half_pixel": lambda i, s, n: (i + 0.5) / s - 0.5 if n * s > 1 else 0.0,
    "asymmetric": lambda i, s, n: i / s,
    "align_corners": lambda i, s, n: i * (n - 1) / (n * s - 1) if n * s != 1 else 0.0,
}
ROUND: dict[str, Callable[[float], int]] = {
    "floor": math.floor,
    "ceil": math.ceil,
    "round_prefer_floor": lambda x: math.ceil(x - 0.5),
    "round_prefer_ceil": lambda x: math.floor(x + 0.5),
}
SCALES = [2.0, 0.5, 1.5, 0.2, 3.0]
X = np.random.default_rng(3).normal(size=(2, 5)).astype(np.float32)


def resize(x: np.ndarray, scale: float, **attributes: Any) -> tuple[Any, str, str]:
    """(builder, input, output) of the last axis resized in opset 11."""
    builder = popart.Builder()
    id = builder.addInitializedInputTensor(x)
    opset = builder.aiOnnxOpset11
    scales = opset.constant(np.array([1, scale], np.float32))
    return builder, id, opset.resize([id, "", scales], **attributes)


def with_gradient(builder: Any, id: str, y: str, g: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The value of ``y``, and the gradient of ``id`` if that of ``y`` is ``g``."""
    gradient = popart.reservedGradientPrefix() + id
    product = builder.aiOnnxOpset11.mul([y, builder.aiOnnxOpset11.constant(g)])
    loss = builder.aiGraphcore.identityloss([product], popart.ReductionType.Sum)
    session = train(builder, popart.DataFlow(1, [y, gradient]), loss, popart.ConstSGD(0.1))
    anchors = session.initAnchorArrays()
    session.run(popart.PyStepIO({}, anchors))
    return anchors[y], anchors[gradient]


def taken(places: list[float], rounding: Callable[[float], int], size: int) -> list[int]:
    return [min(max(rounding(place), 0), size - 1) for place in places]


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("rounding", [*ROUND, "pytorch"])
@pytest.mark.parametrize("where", PLACES)
def test_nearest_takes_these_elements(where: str, rounding: str, scale: float) -> None:
    builder, id, y = resize(X, scale, coordinate_transformation_mode=where, nearest_mode=rounding)
    length, s = math.floor(X.shape[1] * scale), float(np.float32(scale))
    g = np.arange(1, 1 + 2 * length, dtype=np.float32).reshape(2, length)
    value, gradient = with_gradient(builder, id, y, g)
    place = PLACES["asymmetric" if rounding == "pytorch" else where]
    indices = taken([place(i, s, X.shape[1]) for i in range(length)], ROUND.get(rounding, math.floor), X.shape[1])
    np.testing.assert_array_equal(value, X[:, indices])
    back = taken([i / s for i in range(length)], math.floor, X.shape[1])
    expected = np.zeros_like(X)
    np.add.at(expected, (slice(None), back), g)
    np.testing.assert_allclose(gradient, expected, rtol=1e-6)


def test_opset_10_takes_the_element_at_or_before_i_over_s() -> None:
    builder = popart.Builder()
    id = builder.addInitializedInputTensor(X)
    scales = builder.aiOnnx.constant(np.array([1, 1.5], np.float32))
    y = builder.aiOnnx.resize([id, scales])
    np.testing.assert_array_equal(infer(builder, popart.DataFlow(1, [y]), {})[y], X[:, [0, 0, 1, 2, 2, 3, 4]])


@pytest.mark.parametrize(("mode", "theirs"), [("linear", "bilinear"), ("cubic", "bicubic")])
def test_opset_10_interpolates_between_centres_as_torch_does(mode: str, theirs: str) -> None:
    torch = pytest.importorskip("torch")
    x = np.random.default_rng(5).normal(size=(1, 2, 4, 5)).astype(np.float32)
    builder = popart.Builder()
    id = builder.addInitializedInputTensor(x)
    scales = builder.aiOnnx.constant(np.array([1, 1, 2, 2], np.float32))
    y = builder.aiOnnx.resize([id, scales], mode)
    expected = torch.nn.functional.interpolate(torch.tensor(x), scale_factor=2, mode=theirs).numpy()
    np.testing.assert_allclose(infer(builder, popart.DataFlow(1, [y]), {})[y], expected, atol=2e-6)


def test_sizes_make_the_scale() -> None:
    builder = popart.Builder()
    id = builder.addInitializedInputTensor(X)
    opset = builder.aiOnnxOpset11
    y = opset.resize([id, "", "", opset.constant(np.array([2, 7], np.int64))], nearest_mode="pytorch")
    expected = X[:, [math.floor(i / (7 / 5)) for i in range(7)]]
    np.testing.assert_array_equal(infer(builder, popart.DataFlow(1, [y]), {})[y], expected)


@pytest.mark.parametrize(
    ("attributes", "text"),
    [
        ({"mode": "lanczos"}, "Unrecognised resize mode lanczos"),
        ({"nearest_mode": "up"}, "Unrecognised resize nearest mode up"),
        (
            {"coordinate_transformation_mode": "tf_crop_and_resize"},
            "Unsupported coordinate transformation mode tf_crop_and_resize",
        ),
    ],
)
def test_unknown_modes_are_refused(attributes: dict[str, str], text: str) -> None:
    builder, _, y = resize(X, 2.0, **attributes)
    with pytest.raises(popart.popart_exception, match=f"^{text}"):
        infer(builder, popart.DataFlow(1, [y]), {})


def test_scales_and_sizes_together_are_refused() -> None:
    builder = popart.Builder()
    id = builder.addInitializedInputTensor(X)
    opset = builder.aiOnnxOpset11
    inputs = [opset.constant(np.array(v, t)) for v, t in (([1, 2], np.float32), ([2, 10], np.int64))]
    y = opset.resize([id, "", *inputs])
    with pytest.raises(popart.popart_exception, match=r"^Resize op has inputs for `sizes` and `scales`\. Only"):
        infer(builder, popart.DataFlow(1, [y]), {})


def test_linear_interpolation_runs_but_does_not_train() -> None:
    builder, id, y = resize(X, 2.0, mode="linear")
    assert infer(builder, popart.DataFlow(1, [y]), {})[y].shape == (2, 10)
    with pytest.raises(popart.popart_exception, match=r"^Resize mode 'linear' is not supported when training\."):
        with_gradient(builder, id, y, np.ones((2, 10), np.float32))


@pytest.mark.parametrize(
    ("sizes", "where"),
    [([8, 10], "half_pixel"), ([2, 10], "half_pixel"), ([8, 10], "align_corners")],
    ids=["larger", "smaller", "corners"],
)
def test_linear_interpolation_of_newer_opsets_trains_as_in_torch(sizes: list[int], where: str) -> None:
    torch = pytest.importorskip("torch")
    x = np.random.default_rng(5).normal(size=(1, 2, 4, 5)).astype(np.float32)
    g = np.random.default_rng(6).normal(size=(1, 2, *sizes)).astype(np.float32)
    nodes = [
        helper.make_node("Resize", ["x", "", "scales"], ["y"], mode="linear", coordinate_transformation_mode=where),
        helper.make_node("Mul", ["y", "g"], ["product"]),
        helper.make_node("ReduceSum", ["product"], ["loss"], keepdims=0),
    ]
    scales = np.array([1, 1, sizes[0] / 4, sizes[1] / 5], np.float32)
    initial = [numpy_helper.from_array(value, name) for name, value in (("x", x), ("scales", scales), ("g", g))]
    outputs = [helper.make_tensor_value_info("loss", TensorProto.FLOAT, [])]
    model = helper.make_model(
        helper.make_graph(nodes, "resize", [], outputs, initial), opset_imports=[helper.make_opsetid("", 13)]
    )
    flow = popart.DataFlow(1, ["y", popart.reservedGradientPrefix() + "x"])
    device = popart.DeviceManager().createIpuModelDevice({"numIPUs": 1})
    session = popart.TrainingSession(model.SerializeToString(), flow, "loss", popart.ConstSGD(0.1), device)
    session.prepareDevice()
    session.weightsFromHost()
    anchors = session.initAnchorArrays()
    session.run(popart.PyStepIO({}, anchors))
    there = torch.tensor(x, requires_grad=True)
    value = torch.nn.functional.interpolate(there, sizes, mode="bilinear", align_corners=where == "align_corners")
    value.backward(torch.tensor(g))
    np.testing.assert_allclose(anchors["y"], value.detach().numpy(), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(anchors["Gradient___x"], there.grad.numpy(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("size", "output"), [(6, 5), (10, 9), (14, 5), (5, 6), (7, 1), (6, 1)])
@pytest.mark.parametrize("where", ["half_pixel", "pytorch_half_pixel"])
def test_resize_by_sizes_agrees_with_onnx_at_ties_and_for_one_element(where: str, size: int, output: int) -> None:
    x = np.arange(size, dtype=np.float32).reshape(1, 1, size)
    node = onnx.helper.make_node(
        "Resize", ["x", "", "", "sizes"], ["y"], mode="nearest", coordinate_transformation_mode=where
    )
    graph = onnx.helper.make_graph(
        [node],
        "resize",
        [onnx.helper.make_tensor_value_info("x", 1, x.shape)],
        [onnx.helper.make_tensor_value_info("y", 1, [1, 1, output])],
        [onnx.numpy_helper.from_array(np.array([1, 1, output]), "sizes")],
    )
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 19)], ir_version=9)
    (expected,) = ReferenceEvaluator(model).run(None, {"x": x})
    flow = popart.DataFlow(1, ["y"])
    session = popart.InferenceSession(model.SerializeToString(), flow, popart.DeviceManager().createCpuDevice())
    session.prepareDevice()
    anchors = session.initAnchorArrays()
    session.run(popart.PyStepIO({"x": x}, anchors))
    np.testing.assert_array_equal(anchors["y"], expected)
