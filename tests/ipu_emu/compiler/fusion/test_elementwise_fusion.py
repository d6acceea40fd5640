"""Fusion: which ops are fused, and that no bit changes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ipu_emu import popart
from ipu_emu.compiler import pipeline
from ipu_emu.compiler.fusion.elementwise_fusion import Fusion
from ipu_emu.ops.elementwise.activations import ACTIVATIONS
from ipu_emu.program.instructions import Compute, leaves
from tests.ipu_emu.helpers.sessions import device, options


def chain(builder: popart.Builder, x: str, bias: str) -> tuple[str, str]:
    """tanh(relu(2 x + bias)) + x, and the result of the relu."""
    y = builder.aiOnnx.relu([builder.aiOnnx.add([builder.aiGraphcore.scale([x], 2.0), bias])])
    return builder.aiOnnx.add([builder.aiOnnx.tanh([y]), x]), y


def inference(anchors: list[int], dtype: Any = np.float32, users: bool = False) -> tuple[Any, Any, list[Any]]:
    builder = popart.Builder()
    random = np.random.default_rng(0)
    x = builder.addInputTensor(popart.TensorInfo(dtype, [3, 5, 40]))
    bias = builder.addInitializedInputTensor(random.standard_normal(40).astype(dtype))
    ids = list(chain(builder, x, bias))
    if users:  # an op that cannot be fused needs the relu before the end of the chain
        ids.append(builder.aiOnnx.transpose([ids[1]], [2, 0, 1]))
        ids.append(builder.aiOnnx.add([builder.aiOnnx.reducesum([ids[2]]), ids[0]]))
    wanted = [ids[i] for i in anchors]
    session = popart.InferenceSession(builder.getModelProto(), popart.DataFlow(1, wanted), device(options()))
    session.prepareDevice()
    arrays = session.initAnchorArrays()
    data = np.random.default_rng(1).standard_normal((3, 5, 40)).astype(dtype)
    session.run(popart.PyStepIO({x: data}, arrays))
    ops = [leaf.op for leaf in leaves(session.executable.program) if isinstance(leaf, Compute)]
    return session, [arrays[id] for id in wanted], ops


def test_a_chain_becomes_one_op_and_its_inside_is_never_stored() -> None:
    session, _, ops = inference([0])
    assert [op.type for op in ops] == ["Fused"]
    assert len(ops[0].inputs) == 2
    assert len(ops[0].outputs) == 1
    assert not {"Relu:0", "Tanh:0"} & set(session.executable.plan.placements)


def test_anchors_within_a_fused_op_are_stored_as_well() -> None:
    _, (full, part), ops = inference([0, 1])
    assert [len(op.outputs) for op in ops] == [2]
    assert full.shape == part.shape
    assert (part >= 0).all()


def test_a_group_does_not_move_behind_its_users() -> None:
    _, arrays, ops = inference([0, 3], users=True)
    assert [op.type for op in ops].count("Fused") >= 2
    alone = inference([0])[1]
    np.testing.assert_array_equal(arrays[0], alone[0])


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_fusion_changes_no_bit(monkeypatch: pytest.MonkeyPatch, dtype: Any) -> None:
    fused = inference([0, 1], dtype)[1]
    monkeypatch.setattr(pipeline, "fuse", lambda graph, wanted: _each_alone(graph))
    _, alone, ops = inference([0, 1], dtype)
    assert [op.type for op in ops] == ["Fused"] * 5
    for array, other in zip(fused, alone, strict=True):
        np.testing.assert_array_equal(array, other)


def _each_alone(graph: Any) -> None:
    """Prevent fusion: every tensor is wanted, and another op between reads it."""
    fusion = Fusion(graph, set(graph.tensors))
    vars(fusion)["joinable"] = lambda place, op: []
    fusion.run()


def test_a_training_step_with_fused_gradients_is_that_of_numpy() -> None:
    builder = popart.Builder()
    w = builder.addInitializedInputTensor(np.linspace(-2, 2, 40).astype(np.float32))
    y, _ = chain(builder, w, builder.aiOnnx.constant(np.float32(0.5)))
    loss = builder.aiGraphcore.identityloss([y], popart.ReductionType.Sum)
    session = popart.TrainingSession(
        builder.getModelProto(), popart.DataFlow(1, [w]), loss, popart.ConstSGD(0.1), device(options())
    )
    session.prepareDevice()
    session.weightsFromHost()
    arrays = session.initAnchorArrays()
    session.run(popart.PyStepIO({}, arrays))
    x = np.linspace(-2, 2, 40).astype(np.float32)
    inner = 2 * x + 0.5
    slope = 1 + np.where(inner > 0, 2 * (1 - np.tanh(np.maximum(inner, 0)) ** 2), 0)
    np.testing.assert_allclose(arrays[w], x - 0.1 * slope, rtol=1e-5, atol=1e-6)


SPECIAL = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 3e-8, -3e-8, 1e-3, -1e-3, 0.5, -0.5, 3, -3, 20, -20, 90, -90])


#: Activations whose numpy form computes in doubles; that of erf does not.
EXACT = sorted(type for domain, type in ACTIVATIONS if not domain and type != "Gelu")


@pytest.mark.parametrize("op", EXACT)
def test_a_fused_activation_is_that_of_doubles_also_at_the_ends(op: str) -> None:
    """Ops on DOUBLE are not fused but computed by numpy. Denormal float32 results, such as exp(-90), may be 0."""
    results = {}
    for dtype in (np.float32, np.float64):
        builder = popart.Builder()
        x = builder.addInputTensor(popart.TensorInfo(dtype, list(SPECIAL.shape)))
        (y,) = builder.customOp(op, 24, "ai.onnx", [x], {})
        session = popart.InferenceSession(builder.getModelProto(), popart.DataFlow(1, [y]), device(options()))
        session.prepareDevice()
        kinds = [leaf.op.type for leaf in leaves(session.executable.program) if isinstance(leaf, Compute)]
        assert kinds == (["Fused"] if dtype is np.float32 else [op])
        arrays = session.initAnchorArrays()
        session.run(popart.PyStepIO({x: SPECIAL.astype(dtype)}, arrays))
        results[dtype] = arrays[y]
    np.testing.assert_allclose(results[np.float32], results[np.float64], rtol=2e-6, atol=1e-37)


@pytest.mark.torch
@pytest.mark.parametrize("fused", [True, False], ids=["fused", "numpy"])
def test_the_gradient_of_hard_swish_is_that_of_pytorch_also_at_the_ends(
    monkeypatch: pytest.MonkeyPatch, fused: bool
) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed; scripts/test --with-torch adds it")
    if not fused:
        monkeypatch.setattr(pipeline, "fuse", lambda graph, wanted: None)
    # PyTorch computes elements that do not fill a vector in another way, which loses NaN.
    values = np.repeat(SPECIAL.astype(np.float32), 16)
    builder = popart.Builder()
    x = builder.addInitializedInputTensor(values)
    (y,) = builder.customOp("HardSwish", 14, "ai.onnx", [x], {})
    loss = builder.aiGraphcore.identityloss([y], popart.ReductionType.Sum)
    gradient = popart.reservedGradientPrefix() + x
    session = popart.TrainingSession(
        builder.getModelProto(), popart.DataFlow(1, [gradient]), loss, popart.ConstSGD(0.1), device(options())
    )
    session.prepareDevice()
    session.weightsFromHost()
    kinds = [leaf.op.type for leaf in leaves(session.executable.program) if isinstance(leaf, Compute)]
    assert ("HardSwishGrad" in kinds) != fused
    arrays = session.initAnchorArrays()
    session.run(popart.PyStepIO({}, arrays))
    expected = torch.tensor(values, requires_grad=True)
    torch.nn.functional.hardswish(expected).sum().backward()
    np.testing.assert_allclose(arrays[gradient], expected.grad.numpy(), rtol=1e-6)
    assert np.isnan(arrays[gradient][:16]).all()


def normalised(rows: tuple[int, ...]) -> tuple[Any, list[str]]:
    """(x - mean) inverse scale, with one mean and inverse for each row and one scale for each column."""
    builder = popart.Builder()
    random = np.random.default_rng(0)
    x = builder.addInputTensor(popart.TensorInfo("FLOAT", [*rows, 12]))
    mean, inverse = (
        builder.addInitializedInputTensor(random.standard_normal((*rows, 1)).astype(np.float32)) for _ in range(2)
    )
    scale = builder.addInitializedInputTensor(random.standard_normal(12).astype(np.float32))
    y = builder.aiOnnx.mul([builder.aiOnnx.mul([builder.aiOnnx.sub([x, mean]), inverse]), scale])
    session = popart.InferenceSession(builder.getModelProto(), popart.DataFlow(1, [y]), device(options()))
    session.prepareDevice()
    arrays = session.initAnchorArrays()
    data = random.standard_normal((*rows, 12)).astype(np.float32)
    session.run(popart.PyStepIO({x: data}, arrays))
    values = {id: session.executable.graph.data[id] for id in (mean, inverse, scale)}
    np.testing.assert_array_equal(arrays[y], (data - values[mean]) * values[inverse] * values[scale])
    return session, [leaf.op.type for leaf in leaves(session.executable.program) if isinstance(leaf, Compute)]


@pytest.mark.parametrize("rows", [(5,), (2, 3), (1,), (1, 1)])
def test_operands_with_one_element_per_row_are_fused(rows: tuple[int, ...]) -> None:
    assert normalised(rows)[1] == ["Fused"]


@pytest.mark.parametrize(
    ("shape", "flattened"), [((2, 3, 1, 4), False), ((4, 2, 3), True)], ids=["one per row", "one per column"]
)
def test_results_of_convolutions_repeat_over_tensors_stored_in_another_order(
    shape: tuple[int, ...], flattened: bool
) -> None:
    """A convolution stores the batch innermost, so that its elements are not in the order of their indices."""
    builder, random = popart.Builder(), np.random.default_rng(0)
    gate, x = (builder.addInputTensor(popart.TensorInfo("FLOAT", of)) for of in ([2, 3, 1, 1], shape))
    w = random.standard_normal((3, 3, 1, 1)).astype(np.float32)
    y = builder.aiOnnx.conv([gate, builder.addInitializedInputTensor(w)])
    if flattened:
        y = builder.aiOnnx.flatten([y])
    y = builder.aiOnnx.mul([x, y])
    session = popart.InferenceSession(builder.getModelProto(), popart.DataFlow(1, [y]), device(options()))
    session.prepareDevice()
    arrays = session.initAnchorArrays()
    gates, data = (random.standard_normal(of).astype(np.float32) for of in ((2, 3, 1, 1), shape))
    session.run(popart.PyStepIO({gate: gates, x: data}, arrays))
    spread = gates.reshape(2, 3) @ w.reshape(3, 3).T
    expected = data * (spread if flattened else spread.reshape(2, 3, 1, 1))
    np.testing.assert_allclose(arrays[y], expected, rtol=1e-5)
