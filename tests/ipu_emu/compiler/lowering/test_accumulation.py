"""Reduction of gradients over micro-batches and replicas, within and between processes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ipu_emu import popart
from tests.ipu_emu.helpers.sessions import device, options, train
from tests.ipu_emu.helpers.threaded_instances import Instance, on_instances, session_on

MEAN, SUM = popart.ReductionType.Mean, popart.ReductionType.Sum
POST, RUNNING = popart.MeanReductionStrategy.Post, popart.MeanReductionStrategy.Running


def reduction(kind: Any, strategy: Any = POST, **values: Any) -> popart.SessionOptions:
    return options(
        accumulationAndReplicationReductionType=kind,
        meanAccumulationAndReplicationReductionStrategy=strategy,
        **values,
    )


@pytest.mark.parametrize(
    ("kind", "strategy", "want"), [(SUM, POST, 2.0 - 0.9), (MEAN, POST, 2.0 - 0.15), (MEAN, RUNNING, 2.0 - 0.15)]
)
def test_the_example(kind: Any, strategy: Any, want: float) -> None:
    """loss = |x w|, R 2, A 3, the six x add up to 9, learning rate 0.1."""
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [1])
    w = builder.addInitializedInputTensor(np.array([2.0], np.float32))
    loss = builder.aiGraphcore.l1loss([builder.aiOnnx.mul([x, w])], 1.0, MEAN)
    flow = popart.DataFlow(1, {w: popart.AnchorReturnType("Final")})
    session = train(builder, flow, loss, popart.ConstSGD(0.1), reduction(kind, strategy, R=2, A=3))
    anchors = session.initAnchorArrays()
    session.run(popart.PyStepIO({x: np.array([0.5, 1.5, 2.5, 0.5, 1.0, 3.0], np.float32)}, anchors))
    np.testing.assert_allclose(anchors[w], [[want], [want]], rtol=1e-6)


def test_loss_reduction_acts_within_one_micro_batch_only() -> None:
    """With the default Sum, a Mean loss makes gradients grow with A * R."""
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [4])
    w = builder.addInitializedInputTensor(np.zeros(4, np.float32))
    loss = builder.aiGraphcore.identityloss([builder.aiOnnx.mul([x, w])], MEAN)
    session = train(builder, popart.DataFlow(1, [w]), loss, popart.ConstSGD(1.0), options(R=2, A=3))
    anchors = session.initAnchorArrays()
    session.run(popart.PyStepIO({x: np.ones((3, 2, 4), np.float32)}, anchors))
    weights = np.zeros(4, np.float32)
    session.weightsToHost()
    session.readWeights(popart.PyWeightsIO({w: weights}))
    np.testing.assert_allclose(weights, -6 / 4 * np.ones(4))


class Perceptron:
    """Two layers trained on step data [bps, A, R, 4, 5] with R over all instances."""

    bps, factor, replicas = 3, 2, 8
    data = np.random.default_rng(0).standard_normal((bps, factor, replicas, 4, 5)).astype(np.float32)

    def __init__(self, dtype: Any, opts: popart.SessionOptions, instance: Instance | None = None) -> None:
        random = np.random.default_rng(1)
        builder = popart.Builder()
        self.x = builder.addInputTensor(popart.TensorInfo(dtype, [4, 5]))
        self.w = [
            builder.addInitializedInputTensor((random.standard_normal(shape) / 2).astype(dtype))
            for shape in ((5, 7), (7,), (7, 3))
        ]
        hidden = builder.aiOnnx.tanh([builder.aiOnnx.gemm([self.x, self.w[0], self.w[1]])])
        loss = builder.aiGraphcore.l1loss([builder.aiOnnx.matmul([hidden, self.w[2]])], 1.0)
        optimizer = popart.SGD({"defaultLearningRate": (0.1, True), "defaultMomentum": (0.9, True)})
        model = (builder.getModelProto(), popart.DataFlow(self.bps, [loss]), loss, optimizer)
        if instance is None:
            self.session: Any = popart.TrainingSession(*model, device(opts), userOptions=opts)
        else:
            self.session = session_on(instance, popart.TrainingSession, *model, userOptions=opts)
        self.session.prepareDevice()
        self.session.weightsFromHost()
        self.dtype = dtype

    def weights(self, offset: int, local: int) -> list[np.ndarray]:
        """After one step on the data of these replicas."""
        data = np.ascontiguousarray(self.data[:, :, offset : offset + local]).astype(self.dtype)
        self.session.run(popart.PyStepIO({self.x: data}, self.session.initAnchorArrays()))
        return [self.session.engine.read(id) for id in self.w]


def spread(counts: tuple[int, ...], dtype: Any, kind: Any, strategy: Any) -> list[np.ndarray]:
    """The weights after a step, with an instance per thread; equal on all instances."""

    def work(instance: Instance) -> list[np.ndarray]:
        opts = instance.configure(reduction(kind, strategy, A=Perceptron.factor))
        return Perceptron(dtype, opts, instance).weights(instance.offset, instance.local)

    results = on_instances(counts, work)
    for result in results[1:]:
        for weight, other in zip(results[0], result, strict=True):
            np.testing.assert_array_equal(weight, other)
    return results[0]


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize(("kind", "strategy"), [(SUM, POST), (MEAN, POST), (MEAN, RUNNING)])
def test_weights_do_not_depend_on_the_spread_of_replicas(dtype: Any, kind: Any, strategy: Any) -> None:
    alone = Perceptron(dtype, reduction(kind, strategy, R=8, A=2)).weights(0, 8)
    for counts in ((8,), (4, 4), (2, 2, 2, 2), (1,) * 8, (5, 3)):
        for weight, other in zip(alone, spread(counts, dtype, kind, strategy), strict=True):
            np.testing.assert_array_equal(weight, other)


def test_mean_strategies_agree_up_to_rounding() -> None:
    results = [Perceptron(np.float32, reduction(MEAN, s, R=8, A=2)).weights(0, 8) for s in (POST, RUNNING)]
    for weight, other in zip(*results, strict=True):
        np.testing.assert_allclose(weight, other, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("strategy", [POST, RUNNING])
def test_a_gradient_is_summed_as_soon_as_it_is_made(strategy: Any) -> None:
    """A micro-batch then holds one gradient at a time, not those of all weights."""
    builder = popart.Builder()
    y = builder.addInputTensor("FLOAT", [2, 8])
    weights = [builder.addInitializedInputTensor(np.ones((8, 8), np.float32)) for _ in range(4)]
    for w in weights:
        y = builder.aiOnnx.tanh([builder.aiOnnx.matmul([y, w])])
    loss = builder.aiGraphcore.l1loss([y], 1.0)
    session = train(builder, popart.DataFlow(1, [loss]), loss, popart.ConstSGD(0.1), reduction(MEAN, strategy, A=2))
    lines = [line.strip() for line in str(session.executable).splitlines()]
    for w in weights:
        line_number = next(at for at, line in enumerate(lines) if line.startswith(f"Compute Gradient___{w} = "))
        assert lines[line_number + 1] == f"AccumulateGradient Accum___{w} += Gradient___{w}"
