"""Batch normalisation whose statistics several replicas share, against PyTorch on the batches of all of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ipu_emu import popart
from ipu_emu.cli.arguments.compile_model import CompileRequest
from ipu_emu.hardware import System
from ipu_emu.ops.communication.collective_ops import GROUP
from ipu_emu.ops.normalisation.shared_batch_norm import GROUP_SIZE, SHARED
from ipu_emu.program.instructions import ReplicaCollective, leaves
from tests.ipu_emu.helpers.sessions import options, train
from tests.ipu_emu.helpers.threaded_instances import Instance, on_instances, session_on

REPLICAS, SHAPE = 4, (3, 5, 2, 4)
RANDOM = np.random.default_rng(11)
DATA = RANDOM.normal(1.0, 2.0, (REPLICAS, *SHAPE)).astype(np.float32)
TARGET = RANDOM.normal(0.0, 1.0, (REPLICAS, *SHAPE)).astype(np.float32)
SCALE, BIAS = (RANDOM.uniform(0.5, 1.5, 5).astype(np.float32) for _ in range(2))


class Model:
    """loss = sum(target * batchnormalization(exp(x / 4)))"""

    def __init__(self, size: int, *, domain: str = "aiOnnx", dtype: Any = np.float32) -> None:
        self.builder = popart.Builder()
        kind = "FLOAT" if dtype == np.float32 else "FLOAT16"
        self.x, self.target = (self.builder.addInputTensor(kind, list(SHAPE)) for _ in range(2))
        self.scale, self.bias, self.mean, self.variance = (
            self.builder.addInitializedInputTensor(value.astype(dtype))
            for value in (SCALE, BIAS, np.zeros(5), np.ones(5))
        )
        quarter = self.builder.aiOnnx.mul([self.x, self.builder.aiOnnx.constant(np.array(0.25, dtype))])
        self.data = self.builder.aiOnnx.exp([quarter])
        operands = [self.data, self.scale, self.bias, self.mean, self.variance]
        outputs = getattr(self.builder, domain).batchnormalization(operands, 5, 1e-3, 0.8)
        if size > 1:
            self.builder.addNodeAttribute(GROUP_SIZE, size, set(outputs))
        self.y = outputs[0]
        weighted = self.builder.aiOnnx.mul([self.y, self.target])
        self.loss = self.builder.aiGraphcore.identityloss([weighted], popart.ReductionType.Sum)
        prefix = popart.reservedGradientPrefix()
        self.gradients = [prefix + self.data, prefix + self.scale, prefix + self.bias]
        self.flow = popart.DataFlow(1, [self.y, self.loss, *self.gradients, self.mean, self.variance])

    def feed(self, rows: slice = slice(None), dtype: Any = np.float32) -> dict[str, Any]:
        return {self.x: DATA[rows].astype(dtype), self.target: TARGET[rows].astype(dtype)}


def trained(model: Model, dtype: Any = np.float32) -> dict[str, Any]:
    session = train(model.builder, model.flow, model.loss, popart.ConstSGD(1e-30), options(R=REPLICAS))
    anchors = session.initAnchorArrays()
    session.run(popart.PyStepIO(model.feed(dtype=dtype), anchors))
    return {name: np.array(value) for name, value in anchors.items()}


def expected(torch: Any, members: list[int], momentum: float) -> list[np.ndarray]:
    """One large batch of all members: y, gradients of data, scale and bias, running mean and variance."""
    joined = np.exp(DATA[members].reshape(-1, *SHAPE[1:]) / 4)
    x, scale, bias = (torch.tensor(value, requires_grad=True) for value in (joined, SCALE, BIAS))
    mean, variance = torch.zeros(5), torch.ones(5)
    y = torch.nn.functional.batch_norm(x, mean, variance, scale, bias, True, 1 - momentum, 1e-3)
    (y * torch.tensor(TARGET[members].reshape(joined.shape))).sum().backward()
    split = (len(members), *SHAPE)
    return [
        y.detach().numpy().reshape(split),
        x.grad.numpy().reshape(split),
        scale.grad.numpy(),
        bias.grad.numpy(),
        mean.numpy(),
        variance.numpy(),
    ]


@pytest.mark.torch
@pytest.mark.parametrize("size", [1, 2, 4])
def test_a_group_normalises_as_one_large_batch(size: int) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed; scripts/test --with-torch adds it")
    model = Model(size, domain="aiGraphcore")  # whose running variance is that of a sample, as PyTorch's
    outputs = trained(model)
    for first in range(0, REPLICAS, size):
        members = list(range(first, first + size))
        y, dx, dscale, dbias, mean, variance = expected(torch, members, 0.8)
        np.testing.assert_allclose(outputs[model.y][members], y, rtol=2e-5, atol=2e-5)
        np.testing.assert_allclose(outputs[model.gradients[0]][members], dx, rtol=2e-4, atol=2e-4)
        np.testing.assert_allclose(outputs[model.mean][first], mean, rtol=1e-5)
        np.testing.assert_allclose(outputs[model.variance][first], variance, rtol=1e-5)
        for name, gradient in zip(model.gradients[1:], (dscale, dbias), strict=True):
            np.testing.assert_allclose(outputs[name][members].sum(0), gradient, rtol=2e-5, atol=5e-5)


def test_there_is_one_collective_in_each_pass() -> None:
    request = CompileRequest("resnet8", batch=2, replicas=4, accumulation=2, bn_span=2)
    compiled = request.compiled(System.named("pod16")).executable
    norms = sum(op.type == SHARED for op in compiled.graph.ops)
    means = [leaf for leaf in leaves(compiled.program) if isinstance(leaf, ReplicaCollective)]
    assert norms > 0
    assert len(means) == 2 * norms
    assert {leaf.op.attributes[GROUP] == [1, 2] for leaf in means} == {True}


def test_halves_are_normalised_in_float() -> None:
    half, full = Model(2, dtype=np.float16), Model(2)
    outputs, exact = trained(half, np.float16), trained(full)
    np.testing.assert_allclose(outputs[half.y], exact[full.y], rtol=5e-3, atol=5e-3)
    assert outputs[half.y].dtype == np.float16


@pytest.mark.parametrize("counts", [(2, 2), (1, 1, 1, 1), (3, 1)])
def test_bits_do_not_depend_on_where_replicas_run(counts: tuple[int, ...]) -> None:
    def work(instance: Instance) -> dict[str, Any]:
        model, opts = Model(2), instance.configure(popart.SessionOptions())
        parts = (
            popart.TrainingSession,
            model.builder.getModelProto(),
            model.flow,
            model.loss,
            popart.ConstSGD(1e-30),
        )
        session = session_on(instance, *parts, userOptions=opts)
        session.prepareDevice()
        session.weightsFromHost()
        anchors = session.initAnchorArrays()
        rows = slice(instance.offset, instance.offset + instance.local)
        session.run(popart.PyStepIO(model.feed(rows), anchors))
        local = {name: np.array(value) for name, value in anchors.items()}
        return {n: v if instance.local > 1 else v[None] for n, v in local.items()}

    alone, parts = trained(Model(2)), on_instances(counts, work)
    for name, value in alone.items():
        np.testing.assert_array_equal(np.concatenate([part[name] for part in parts]), value)


def test_groups_must_divide_the_replicas() -> None:
    with pytest.raises(popart.popart_exception) as error:
        trained(Model(3))
    assert error.value.args[0].startswith(
        "The number of replicas (4) must be divisible by distributed_batch_norm_replica_group_size (3)"
    )


def test_without_spatial_each_feature_has_its_own_statistics() -> None:
    builder = popart.Builder(opsets={"ai.onnx": 7})
    data = np.random.default_rng(1).standard_normal((4, 2, 3)).astype(np.float32)
    x = builder.addInputTensor("FLOAT", [4, 2, 3])
    parameters = [builder.addInitializedInputTensor(np.full((2, 3), n, np.float32)) for n in (1, 0, 0, 1)]
    y, mean, *_ = builder.aiOnnx.batchnormalization([x, *parameters], 5, momentum=0.5, spatial=0)
    loss = builder.aiGraphcore.identityloss([y])
    session = train(builder, popart.DataFlow(1, [y, mean]), loss, popart.ConstSGD(1e-30))
    anchors = session.initAnchorArrays()
    session.run(popart.PyStepIO({x: data}, anchors))
    expected = (data - data.mean(0)) / np.sqrt(data.var(0) + 1e-5)
    np.testing.assert_allclose(anchors[y], expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(anchors[mean], 0.5 * data.mean(0), rtol=1e-5, atol=1e-6)
