"""Bare stages: pipelines with minimal stages: only a loss, no weights, or no anchors."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

from ipu_emu import popart
from tests.ipu_emu.helpers.sessions import options

X = np.arange(20, dtype=np.float32).reshape(5, 4)


def run(
    *anchors: str, weights: bool, bare_loss: bool, accumulates: bool = True, recompute: bool = False, factor: int = 5
) -> Any:
    """loss = sum(sin(x * w)), in two stages, for five micro-batches."""
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [4], "x")
    with builder.virtualGraph(0), builder.pipelineStage(0):
        y = builder.aiOnnx.mul([x, builder.addInitializedInputTensor(np.ones(4, np.float32), "w")]) if weights else x
        y = builder.aiOnnx.sin([y]) if bare_loss or not weights else y
    with builder.virtualGraph(1), builder.pipelineStage(1):
        y = y if bare_loss else builder.aiOnnx.sin([y]) if weights else builder.aiOnnx.neg([y])
        loss = builder.aiGraphcore.identityloss([y], popart.ReductionType.Sum)
    opts = options(enablePipelining=True, virtualGraphMode=popart.VirtualGraphMode.Manual)
    opts.enableGradientAccumulation, opts.accumulationFactor = accumulates, factor if accumulates else 1
    if recompute:
        opts.autoRecomputation = popart.RecomputationType.Pipeline
    device = popart.DeviceManager().createIpuModelDevice({"numIPUs": 2})
    flow = popart.DataFlow(1 if accumulates else 5, list(anchors))
    session = popart.TrainingSession(
        builder.getModelProto(), flow, loss, popart.ConstSGD(0.1), device, userOptions=opts
    )
    session.prepareDevice()
    session.weightsFromHost()
    arrays = session.initAnchorArrays()
    session.run(popart.PyStepIO({"x": X}, arrays))
    if weights:
        arrays["w"] = np.zeros(4, np.float32)
        session.weightsToHost()
        session.readWeights(popart.PyWeightsIO({"w": arrays["w"]}))
    return arrays


@pytest.mark.parametrize(("bare_loss", "recompute"), list(product([True, False], repeat=2)))
def test_without_anchors(bare_loss: bool, recompute: bool) -> None:
    arrays = run(weights=True, bare_loss=bare_loss, recompute=recompute)
    np.testing.assert_allclose(arrays["w"], 1 - 0.1 * (X * np.cos(X)).sum(0), rtol=1e-5)
    assert run(weights=True, bare_loss=bare_loss, recompute=recompute, accumulates=False)["w"].any()


@pytest.mark.parametrize(("bare_loss", "accumulates"), list(product([True, False], repeat=2)))
def test_without_weights(bare_loss: bool, accumulates: bool) -> None:
    assert run(weights=False, bare_loss=bare_loss, accumulates=accumulates) == {}
    gradient = run("Gradient___x", weights=False, bare_loss=bare_loss, accumulates=accumulates)["Gradient___x"]
    np.testing.assert_allclose(gradient, np.cos(X) * (1 if bare_loss else -1), rtol=1e-5)


@pytest.mark.parametrize("accumulates", [True, False])
def test_restored_activations_are_anchors(accumulates: bool) -> None:
    activations = run("Restored___x", weights=True, bare_loss=True, accumulates=accumulates)["Restored___x"]
    np.testing.assert_array_equal(activations, X)
    with pytest.raises(popart.popart_exception, match="Restored___Sin:0"):  # of the last stage
        run("Restored___Sin:0", weights=True, bare_loss=False)


@pytest.mark.parametrize("accumulates", [True, False])
def test_stashes_are_anchors(accumulates: bool) -> None:
    """Three micro-batches are between the two stages: each uses the buffer of the third one before it."""
    stashes = run("Stashed___x", weights=True, bare_loss=True, accumulates=accumulates)["Stashed___x"]
    places = np.zeros((3, 4), np.float32)
    for batch, shown in enumerate(stashes):
        places[batch % 3] = X[batch]
        np.testing.assert_array_equal(shown, places)


def test_accumulation_over_one_micro_batch_is_too_shallow() -> None:
    text = r"^For pipelining, depth \(gradient accumulation factor\) must equal at least .* stages \(3\)$"
    with pytest.raises(popart.popart_exception, match=text):
        run(weights=True, bare_loss=True, accumulates=True, factor=1)


@pytest.mark.parametrize("training", [True, False])
def test_an_input_may_be_read_by_stages_on_several_ipus(training: bool) -> None:
    """The pipeline changes no bit: the first stage that reads the stream copies it to the others."""
    random = np.random.default_rng(7)
    weights, data = random.standard_normal((2, 4, 4)).astype(np.float32), random.standard_normal((4, 2, 4))

    def losses(pipelined: bool) -> Any:
        builder = popart.Builder()
        x = h = builder.addInputTensor("FLOAT", [2, 4])
        for stage in range(2):
            with builder.virtualGraph(stage), builder.pipelineStage(stage):
                product = builder.aiOnnx.matmul([h, builder.addInitializedInputTensor(weights[stage])])
                h = builder.aiOnnx.add([product, x])
        with builder.virtualGraph(1), builder.pipelineStage(1):
            loss = builder.aiGraphcore.l1loss([h], 0.1)
        opts = options(enablePipelining=pipelined, virtualGraphMode=popart.VirtualGraphMode.Manual)
        opts.enableGradientAccumulation, opts.accumulationFactor = training, 4 if training else 1
        device = popart.DeviceManager().createIpuModelDevice({"numIPUs": 2})
        flow = popart.DataFlow(1 if training else 4, [loss])
        proto = builder.getModelProto()
        session: Any = (
            popart.TrainingSession(proto, flow, loss, popart.ConstSGD(0.1), device, userOptions=opts)
            if training
            else popart.InferenceSession(proto, flow, device, userOptions=opts)
        )
        session.prepareDevice()
        session.weightsFromHost()
        anchors = session.initAnchorArrays()
        for _ in range(2):
            session.run(popart.PyStepIO({x: data.astype(np.float32)}, anchors))
        return anchors[loss]

    np.testing.assert_array_equal(losses(True), losses(False))
