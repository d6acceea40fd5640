"""Gradients as anchors: of ops with a gradient of 0, of constants, and of tensors without a gradient."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ipu_emu import popart
from tests.ipu_emu.helpers.sessions import train

X = np.array([-1.5, 2.5], np.float32)
FLOW = popart.DataFlow


def anchored(builder: popart.Builder, y: str, ids: list[str]) -> Any:
    loss = builder.aiGraphcore.l1loss([y], 1.0, popart.ReductionType.Sum)
    optimizer = popart.SGD({"defaultLearningRate": (0.5, True), "defaultWeightDecay": (0.5, True)})
    session = train(builder, FLOW(1, ids), loss, optimizer)
    anchors = session.initAnchorArrays()
    session.run(popart.PyStepIO({"x": X}, anchors))
    return anchors


def product() -> tuple[popart.Builder, str]:
    builder = popart.Builder(opsets={"ai.onnx": 11})
    x = builder.addInputTensor("FLOAT", [2], "x")
    return builder, builder.aiOnnx.mul([x, builder.addInitializedInputTensor(np.ones(2, np.float32), "w")])


@pytest.mark.parametrize(
    ("face", "name"),
    [
        *(("aiOnnx", name) for name in ("sign", "ceil", "floor", "round")),
        *(("aiGraphcore", name) for name in ("round", "nearbyint")),
    ],
)
def test_steps_have_a_gradient_of_zero(face: str, name: str) -> None:
    builder, y = product()
    ids = ["Gradient___x", "Gradient___w", f"Gradient___{y}", "w"]
    anchors = anchored(builder, getattr(getattr(builder, face), name)([y]), ids)
    assert [anchors[id].tolist() for id in ids] == [[0, 0], [0, 0], [0, 0], [0.75, 0.75]]


def test_constants_have_a_gradient() -> None:
    builder, y = product()
    c = builder.aiOnnx.constant(np.array([2, 3], np.float32))
    anchors = anchored(builder, builder.aiOnnx.mul([y, c]), [f"Gradient___{c}", c])
    assert [anchors[id].tolist() for id in anchors] == [[1.5, 2.5], [2, 3]]


@pytest.mark.parametrize("reads_input", [True, False])
def test_an_anchored_result_of_constants_is_not_folded(reads_input: bool) -> None:
    builder, y = product()
    c = builder.aiOnnx.constant(np.array([2, 3], np.float32))
    square = builder.aiOnnx.mul([c, c])
    more = builder.aiOnnx.mul([y, square]) if reads_input else builder.aiOnnx.neg([square])
    with pytest.raises(popart.popart_exception, match=f"Gradient___{c}"):
        anchored(builder, more, [f"Gradient___{c}"])
    anchors = anchored(builder, more, [f"Gradient___{c}", square])
    assert anchors[square].tolist() == [4, 9]
    assert anchors[f"Gradient___{c}"].tolist() == ([6, 15] if reads_input else [4, 6])


@pytest.mark.parametrize("name", ["equal", "greater", "less", "bitwiseand"])
@pytest.mark.parametrize("summed", [False, True])
def test_a_loss_made_of_a_comparison_is_refused(name: str, summed: bool) -> None:
    """A cast of the comparison to numbers is constant in training, and allowed."""
    builder = popart.Builder()
    kind = "INT32" if name == "bitwiseand" else "FLOAT"
    x, y = (builder.addInputTensor(kind, [2] if summed else []) for _ in range(2))
    opset = builder.aiGraphcore if name == "bitwiseand" else builder.aiOnnx
    compared = getattr(opset, name)([x, y])
    loss = builder.aiGraphcore.identityloss([compared], popart.ReductionType.Sum) if summed else compared
    with pytest.raises(popart.popart_exception) as error:
        train(builder, FLOW(1, [loss]), loss, popart.ConstSGD(0.1))
    kinds = {"equal": "Equal", "greater": "Greater", "less": "Less", "bitwiseand": "BitwiseAnd"}
    assert error.value.args[0] == f"PopART does not have a valid grad op corresponding to {kinds[name]}Op"
    truths = builder.aiOnnx.cast([compared], "FLOAT")
    loss = builder.aiGraphcore.identityloss([truths], popart.ReductionType.Sum)
    train(builder, FLOW(1, [loss]), loss, popart.ConstSGD(0.1))
