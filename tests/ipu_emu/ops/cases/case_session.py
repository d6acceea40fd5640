"""CaseSession: a case of an op as a training session."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ipu_emu import popart
from tests.ipu_emu.helpers.sessions import train
from tests.ipu_emu.ops.cases.case import Case

__all__ = ["CaseSession"]


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
        self.session = train(self.builder, flow, self.loss, popart.ConstSGD(1e-30), limits=False)

    def run(self, values: Sequence[np.ndarray] | None = None) -> tuple[np.ndarray, float, list[np.ndarray]]:
        """(y, loss, gradients) at these inputs."""
        if values is not None:
            self.session.writeWeights(popart.PyWeightsIO(dict(zip(self.ids, values, strict=True))))
        anchors = self.session.initAnchorArrays()
        self.session.run(popart.PyStepIO(self.labels, anchors))
        return anchors[self.y], float(anchors[self.loss]), [anchors[id] for id in self.gradient_ids]
