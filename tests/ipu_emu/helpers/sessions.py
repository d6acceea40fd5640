"""Sessions: the shortest way from a function that builds a model to its values."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ipu_emu import popart
from tests.ipu_emu.ops.cases.all_cases import Case

__all__ = ["CaseSession", "infer", "options", "train"]


def options(**values: Any) -> popart.SessionOptions:
    """SessionOptions with these values; R and A switch replication and accumulation on."""
    opts = popart.SessionOptions()
    replicas, factor = values.pop("R", 1), values.pop("A", 1)
    if replicas > 1:
        opts.enableReplicatedGraphs, opts.replicatedGraphCount = True, replicas
    if factor > 1:
        opts.enableGradientAccumulation, opts.accumulationFactor = True, factor
    for name, value in values.items():
        setattr(opts, name, value)
    return opts


def device(opts: popart.SessionOptions) -> popart.DeviceInfo:
    return popart.DeviceManager().createIpuModelDevice({"numIPUs": opts.localReplicas()})


def infer(
    builder: popart.Builder,
    flow: popart.DataFlow,
    inputs: Mapping[str, Any],
    opts: popart.SessionOptions | None = None,
) -> dict[str, Any]:
    """One step of inference."""
    opts = opts or options()
    session = popart.InferenceSession(builder.getModelProto(), flow, device(opts), userOptions=opts)
    session.prepareDevice()
    anchors = session.initAnchorArrays()
    session.run(popart.PyStepIO(dict(inputs), anchors))
    return anchors


def train(
    builder: popart.Builder,
    flow: popart.DataFlow,
    loss: str,
    optimizer: popart.SGD,
    opts: popart.SessionOptions | None = None,
) -> popart.TrainingSession:
    """A training session that is ready to run."""
    opts = opts or options()
    session = popart.TrainingSession(builder.getModelProto(), flow, loss, optimizer, device(opts), userOptions=opts)
    session.prepareDevice()
    session.weightsFromHost()
    return session


class CaseSession:
    """A case as a training session: loss = sum(y * r), gradients of all inputs anchored."""

    def __init__(
        self, case: Case, *, dtype: Any = np.float32, before: Callable[[Any, str], str] | None = None
    ) -> None:
        self.case = case
        self.builder = popart.Builder()
        self.values = case.inputs(dtype)
        self.ids = [self.builder.addInitializedInputTensor(value) for value in self.values]
        operands = [before(self.builder, id) for id in self.ids] if before else self.ids
        self.labels: dict[str, Any] = {}
        if case.labels is not None:
            id = self.builder.addInputTensor(popart.TensorInfo(case.labels))
            self.labels = {id: case.labels}
        self.y = case.build(self.builder, [*operands, *self.labels])
        shape = self.builder.getTensorShape(self.y)
        self.r = np.random.default_rng(7).uniform(0.5, 1.5, shape).astype(dtype)
        weighted = self.builder.aiOnnx.mul([self.y, self.builder.aiOnnx.constant(self.r)])
        self.loss = self.builder.aiGraphcore.identityloss([weighted], popart.ReductionType.Sum)
        self.gradient_ids = [popart.reservedGradientPrefix() + id for id in self.ids]
        flow = popart.DataFlow(1, [self.y, self.loss, *self.gradient_ids])
        self.session = train(self.builder, flow, self.loss, popart.ConstSGD(1e-30))

    def run(self, values: Sequence[np.ndarray] | None = None) -> tuple[np.ndarray, float, list[np.ndarray]]:
        """(y, loss, gradients) at these inputs."""
        if values is not None:
            self.session.writeWeights(popart.PyWeightsIO(dict(zip(self.ids, values, strict=True))))
        anchors = self.session.initAnchorArrays()
        self.session.run(popart.PyStepIO(self.labels, anchors))
        return anchors[self.y], float(anchors[self.loss]), [anchors[id] for id in self.gradient_ids]
