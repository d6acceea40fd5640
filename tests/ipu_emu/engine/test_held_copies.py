"""Held copies: weights of inference are copied once, and again when the host sets them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ipu_emu import popart
from ipu_emu.ops.codegen.gemm import gemm, gemm_workspace
from ipu_emu.ops.codegen.held_copies import HeldCopies
from tests.ipu_emu.helpers.sessions import device, options, train

ROWS, DEPTH, COLUMNS = 21, 48, 72
_random = np.random.default_rng(0)
X = _random.standard_normal((ROWS, DEPTH)).astype(np.float32)
W = _random.standard_normal((DEPTH, COLUMNS)).astype(np.float32)


def network() -> tuple[popart.Builder, str, str, str]:
    """A product with a weight: the builder, input, weight and output."""
    builder = popart.Builder()
    x = builder.addInputTensor(popart.TensorInfo("FLOAT", X.shape))
    w = builder.addInitializedInputTensor(W, "w")
    return builder, x, w, builder.aiOnnx.matmul([x, w])


def inference(builder: popart.Builder, y: str, replicas: int = 1) -> popart.InferenceSession:
    opts = options(R=replicas)
    opts.constantWeights = False
    session = popart.InferenceSession(
        builder.getModelProto(), popart.DataFlow(1, [y]), device(opts), userOptions=opts
    )
    session.prepareDevice()
    return session


def answer(session: popart.InferenceSession, x: str, y: str, data: np.ndarray = X) -> np.ndarray:
    anchors = session.initAnchorArrays()
    session.run(popart.PyStepIO({x: data}, anchors))
    return anchors[y].copy()


def near(actual: np.ndarray, a: np.ndarray, b: np.ndarray) -> None:
    """Each result has at most the error of a float32 sum of as many products."""
    exact, sizes = a.astype(np.float64) @ b.astype(np.float64), np.abs(a).astype(np.float64) @ np.abs(b)
    assert (np.abs(actual - exact) <= a.shape[1] * 2.0**-24 * sizes).all()


def test_weights_that_the_host_sets_are_used_in_the_next_step() -> None:
    builder, x, w, y = network()
    session = inference(builder, y)
    assert session.engine.held.nbytes
    near(answer(session, x, y), X, W)
    session.writeWeights(popart.PyWeightsIO({w: 3 * W}))
    session.weightsFromHost()
    near(answer(session, x, y), X, 3 * W)
    session.engine.view(w)[:] = -W
    near(answer(session, x, y), X, -W)


def test_each_replica_has_its_own_copies() -> None:
    builder, x, w, y = network()
    session = inference(builder, y, replicas=2)
    session.engine.view(w, 1)[:] = 2 * W
    answers = answer(session, x, y, np.stack([X, X]))
    near(answers[0], X, W)
    near(answers[1], X, 2 * W)


def test_variables_that_a_step_changes_are_not_held() -> None:
    builder, x, w, y = network()
    builder.aiGraphcore.copyvarupdate([w, builder.aiOnnx.add([w, w])])
    session = inference(builder, y)
    near(answer(session, x, y), X, W)
    near(answer(session, x, y), X, 2 * W)
    assert not session.engine.held.nbytes


def test_views_of_weights_are_held() -> None:
    builder = popart.Builder()
    x = builder.addInputTensor(popart.TensorInfo("FLOAT", X.shape))
    w = builder.addInitializedInputTensor(W[None], "w")
    y = builder.aiOnnx.matmul([x, builder.reshape_const(builder.aiOnnx, [w], W.shape)])
    session = inference(builder, y)
    assert session.engine.held.nbytes
    near(answer(session, x, y), X, W)
    session.engine.view(w)[:] = 2 * W
    near(answer(session, x, y), X, 2 * W)


def test_training_holds_no_copies() -> None:
    builder, _x, _w, y = network()
    loss = builder.aiGraphcore.l1loss([y], 1.0)
    session = train(builder, popart.DataFlow(1, [loss]), loss, popart.ConstSGD(0.1))
    assert not session.engine.held.ids
    assert not session.engine.held.nbytes


@pytest.mark.parametrize("type_", ["FLOAT", "FLOAT16"])
@pytest.mark.parametrize("transposed", [False, True], ids=["by rows", "by columns"])
@pytest.mark.parametrize("rows", [1, 8, 21, 100])
def test_weights_in_streaming_memory_give_the_bits_of_weights_on_chip(
    tmp_path: Path, rows: int, transposed: bool, type_: str
) -> None:
    random, answers = np.random.default_rng(rows), []
    data = random.standard_normal((rows, DEPTH)).astype(popart.TensorInfo(type_, [1]).data_type_lcase())
    weights = W.astype(data.dtype)
    for storage in (popart.TensorStorage.OnChip, popart.TensorStorage.OffChip):
        builder = popart.Builder()
        x = builder.addInputTensor(popart.TensorInfo(type_, data.shape))
        w = builder.addInitializedInputTensor(np.ascontiguousarray(weights.T) if transposed else weights, "w")
        y = builder.aiOnnx.matmul([x, builder.aiOnnx.transpose([w]) if transposed else w])
        opts = options()
        opts.constantWeights = False
        opts.engineOptions = {"streamingMemory.folder": str(tmp_path)}
        opts.weightTensorLocationSettings = popart.TensorLocationSettings(popart.TensorLocation(storage), 0, 0)
        session = popart.InferenceSession(
            builder.getModelProto(), popart.DataFlow(1, [y]), device(opts), userOptions=opts
        )
        session.prepareDevice()
        session.weightsFromHost()
        answers += [answer(session, x, y, data)]
        session.engine.view(w)[:] *= 2
        answers += [answer(session, x, y, data)]
    np.testing.assert_array_equal(answers[:2], answers[2:], strict=True)
    np.testing.assert_array_equal(answers[1], 2 * answers[0], strict=True)


@pytest.mark.parametrize("dtype", [np.float32, np.float16], ids=["float32", "float16"])
@pytest.mark.parametrize("turned", [False, True], ids=["by rows", "by columns"])
@pytest.mark.parametrize("size", [(1, 40, 32), (8, 64, 64), (19, 33, 100), (67, 1030, 96), (40, 5, 45)], ids=str)
def test_products_with_held_matrices_have_the_bits_of_the_others(
    size: tuple[int, int, int], turned: bool, dtype: Any
) -> None:
    m, k, n = size
    random = np.random.default_rng(m)
    a = random.standard_normal((m, k)).astype(np.float32)
    b = random.standard_normal((k, n)).astype(dtype)
    b = np.asfortranarray(b) if turned else b
    bias = random.standard_normal(n).astype(np.float32)
    held, y = HeldCopies(), np.full((m, n), np.nan, dtype)
    assert gemm(a, b, y, [], bias, held=held)
    held.refresh()
    nbytes = held.nbytes
    for call in gemm(a, b, y, [], bias, held=held):
        call()
    assert held.nbytes == nbytes  # both products read one copy
    rows = np.concatenate([a] * 20)[: max(m, 16)]
    other, wide = np.empty((len(rows), n), np.float32), np.ascontiguousarray(b, np.float32)
    scratch = [np.empty(size, np.float32) for size in gemm_workspace(len(rows), k, n, 1, half=False)]
    for call in gemm(rows, wide, other, scratch, bias):
        call()
    np.testing.assert_array_equal(y, other[:m].astype(dtype))
