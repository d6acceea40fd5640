"""Every op: its value compared with ONNX's reference evaluator and PyTorch, its gradient with numeric differences."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

from ipu_emu.graph.op import GRAPHCORE
from ipu_emu.ops import TABLE
from ipu_emu.ops.products import convolution, gathered_convolution
from tests.ipu_emu.ops.cases.all_cases import CASES, Case
from tests.ipu_emu.ops.cases.case_session import CaseSession
from tests.ipu_emu.ops.cases.without_case import NO_GRADIENT, PARTS_OF_OTHERS, TESTED_ELSEWHERE


def name_of(case: Case) -> str:
    return case.name.replace(" ", "-")


class CompiledCase:
    """A case in float32, compiled once for all its tests, and its results for its own inputs."""

    def __init__(self, case: Case) -> None:
        self.case, self.session = case, CaseSession(case)
        self.y, _, self.gradients = self.session.run()


@pytest.fixture(scope="module")
def compiled(request: pytest.FixtureRequest) -> CompiledCase:
    return CompiledCase(request.param)


def of_cases(cases: list[Case]) -> pytest.MarkDecorator:
    """Run a test for these cases; tests of one case follow each other, so that it is compiled once."""
    return pytest.mark.parametrize("compiled", cases, indirect=True, scope="module", ids=name_of)


def test_every_op_has_a_case_or_says_why_not() -> None:
    """An op of two domains counts once."""
    cases = {op for case in CASES for op in case.ops}
    tables = (NO_GRADIENT, TESTED_ELSEWHERE, {"": PARTS_OF_OTHERS})
    excused = [op for table in tables for ops in table.values() for op in ops.split()]
    assert len(excused) == len(set(excused))
    assert [file for file in TESTED_ELSEWHERE if not (Path(__file__).parents[1] / file).exists()] == []
    assert {type for _, type in TABLE.table} - cases - set(excused) == set()
    assert set(excused) - {type for _, type in TABLE.table} == set(), "these are no ops"
    assert cases & set(excused) == set(), "these have cases"
    without = {op for ops in NO_GRADIENT.values() for op in ops.split()}
    assert {type for (_, type), entry in TABLE.table.items() if entry.grad is not None} & without == set()


@of_cases(CASES)
def test_gradient_is_the_slope_of_the_loss(compiled: CompiledCase) -> None:
    """In a random direction d: (loss(x + h d) - loss(x - h d)) / 2h = sum(gradient * d)."""
    case, session, gradients = compiled.case, compiled.session, compiled.gradients
    random = np.random.default_rng(1)
    directions = [random.choice([-1.0, 1.0], value.shape).astype(np.float32) for value in session.values]
    h = np.float32(2e-3 if case.distinct else 1e-2)
    up = session.run([value + h * d for value, d in zip(session.values, directions, strict=True)])[1]
    down = session.run([value - h * d for value, d in zip(session.values, directions, strict=True)])[1]
    numeric = (up - down) / (2 * float(h))
    exact = sum(float((g * d).sum()) for g, d in zip(gradients, directions, strict=True))
    scale = sum(float(np.abs(g).sum()) for g in gradients) + 1
    assert abs(numeric - exact) <= 2e-3 * scale, f"{case.name} {case.shapes}: numeric {numeric}, exact {exact}"


def uses_only_onnx(case: Case) -> bool:
    return case.onnx and not any((GRAPHCORE, op) in TABLE.table and ("", op) not in TABLE.table for op in case.ops)


@of_cases([case for case in CASES if uses_only_onnx(case)])
def test_value_is_that_of_the_onnx_reference(compiled: CompiledCase) -> None:
    case, session, y = compiled.case, compiled.session, compiled.y
    builder = session.builder.__class__()
    ids = [builder.addInitializedInputTensor(value) for value in session.values]
    builder.addOutputTensor(case.build(builder, ids))
    onnx.checker.check_model(onnx.load_model_from_string(builder.getModelProto()))
    (expected,) = ReferenceEvaluator(builder.getModelProto()).run(None, dict(zip(ids, session.values, strict=True)))
    assert y.shape == expected.shape
    scale = max(1.0, float(np.abs(expected).max(initial=0)))  # terms that cancel leave rounding errors of their sum
    np.testing.assert_allclose(y, expected, rtol=2e-5, atol=1e-6 * scale)


@pytest.mark.torch
@of_cases(CASES)
def test_value_and_gradients_are_those_of_pytorch(compiled: CompiledCase) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed; scripts/test --with-torch adds it")
    torch.set_num_threads(1)
    case, session, y, gradients = compiled.case, compiled.session, compiled.y, compiled.gradients
    tensors = [torch.tensor(value, requires_grad=True) for value in session.values]
    labels = [] if case.labels is None else [torch.tensor(case.labels)]
    expected = case.torch(torch, *tensors, *labels)
    (expected * torch.tensor(session.r)).sum().backward()
    assert y.shape == tuple(expected.shape)
    np.testing.assert_allclose(y, expected.detach().numpy(), rtol=2e-5, atol=2e-6)
    for gradient, tensor in zip(gradients, tensors, strict=True):
        np.testing.assert_allclose(gradient, tensor.grad.numpy(), rtol=5e-5, atol=1e-5)


@pytest.mark.parametrize("case", [c for c in CASES if c.ops == ("Conv",)], ids=name_of)
def test_convolution_in_many_blocks_is_the_same(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    blocked = CaseSession(case).run()
    for name in ("_BLOCK", "_WEIGHT_BLOCK"):
        monkeypatch.setattr(gathered_convolution, name, 1)  # one output row per block
    assert_near(CaseSession(case).run(), blocked)


@pytest.mark.parametrize("case", [c for c in CASES if c.ops == ("Conv",)], ids=name_of)
@pytest.mark.parametrize("most", [0, 1 << 20], ids=["read in place", "gathered"])
def test_gradients_of_few_and_of_many_pixels_are_the_same(
    case: Case, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    reference = CaseSession(case).run()
    for name in ("_FEW_FOR_DATA", "_FEW_FOR_WEIGHTS"):
        monkeypatch.setattr(convolution, name, most)
    assert_near(CaseSession(case).run(), reference)


def assert_near(actual: Any, expected: Any) -> None:
    np.testing.assert_allclose(actual[0], expected[0], rtol=1e-6, atol=1e-6)
    for gradient, exact in zip(actual[2], expected[2], strict=True):
        np.testing.assert_allclose(gradient, exact, rtol=2e-5, atol=1e-5)


@of_cases([case for case in CASES if case.name != "Cast"])
def test_half_precision_rounds_the_float32_result_once(compiled: CompiledCase) -> None:
    """The same kernel on the same half values, in float32; only the stored result is rounded."""
    case = compiled.case
    half = CaseSession(case, dtype=np.float16)
    y, _, _ = half.run()
    expected, _, _ = compiled.session.run([value.astype(np.float32) for value in half.values])
    assert y.dtype == np.float16
    expected_half = expected.astype(np.float16)
    if len(case.ops) == 1 and not case.compound:
        np.testing.assert_array_equal(y, expected_half)
    else:
        np.testing.assert_allclose(y, expected_half, rtol=2e-3, atol=1e-3)


def anchors_of(build: Any, value: np.ndarray) -> dict[str, Any]:
    case = Case("detach", (), (value.shape,), build, lambda torch, x: x)
    session = CaseSession(case)
    y, loss, gradients = session.run([value])
    return {"y": y, "loss": loss, "gradient": gradients[0], "r": session.r}


def test_detach_passes_the_value_and_stops_the_gradient() -> None:
    value = np.arange(6, dtype=np.float32).reshape(2, 3)
    anchors = anchors_of(lambda b, ids: b.aiOnnx.add([ids[0], b.aiGraphcore.detach(ids)]), value)
    np.testing.assert_array_equal(anchors["y"], 2 * value)
    np.testing.assert_array_equal(anchors["gradient"], anchors["r"])


def test_relu_keeps_nan() -> None:
    value = np.array([np.nan, -1.0, 2.0], np.float32)
    anchors = anchors_of(lambda b, ids: b.aiOnnx.relu(ids), value)
    np.testing.assert_array_equal(anchors["y"], [np.nan, 0, 2])
