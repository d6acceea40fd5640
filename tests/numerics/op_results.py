"""Op results: run the cases of all ops, and print a line for each: the digest of its result and gradients, its name.

Cases of one opset and element type are one model, so that they are compiled in seconds.
"""

from __future__ import annotations

import warnings
from hashlib import sha256
from typing import Any

import numpy as np

from ipu_emu import popart
from tests.ipu_emu.helpers.sessions import train
from tests.ipu_emu.ops.cases.all_cases import CASES
from tests.ipu_emu.ops.cases.case import Case
from tests.numerics.wide_cases import WIDE


class CaseModel:
    """A model of which each case is a part; its loss is the sum of all their results."""

    def __init__(self, dtype: Any) -> None:
        self.dtype, self.builder = dtype, popart.Builder()
        self.data: dict[str, np.ndarray] = {}
        self.losses: list[str] = []
        self.anchors: dict[str, list[str]] = {}

    def add(self, case: Case) -> bool:
        """Whether the case can be part of this model: a model has one opset."""
        builder = self.builder
        ids = [builder.addInitializedInputTensor(value) for value in case.inputs(self.dtype)]
        labels = [] if case.labels is None else [builder.addInputTensor(popart.TensorInfo(case.labels))]
        try:
            y = case.build(builder, [*ids, *labels])
        except RuntimeError as error:
            if "already defined" not in str(error):
                raise
            return False
        self.data |= dict.fromkeys(labels, case.labels)
        factors = np.random.default_rng(7).uniform(0.5, 1.5, builder.getTensorShape(y)).astype(self.dtype)
        weighted = builder.aiOnnx.mul([y, builder.aiOnnx.constant(factors)])
        self.losses.append(builder.aiGraphcore.identityloss([weighted], popart.ReductionType.Sum))
        self.anchors[case.name] = [y, *(popart.reservedGradientPrefix() + id for id in ids)]
        return True

    def results(self) -> dict[str, str]:
        """The digest of each case."""
        loss = self.builder.aiOnnx.sum(self.losses)
        flow = popart.DataFlow(1, [id for ids in self.anchors.values() for id in ids])
        session = train(self.builder, flow, loss, popart.ConstSGD(1e-30), limits=False)
        arrays = session.initAnchorArrays()
        session.run(popart.PyStepIO(self.data, arrays))
        return {name: _digest([arrays[id] for id in ids]) for name, ids in self.anchors.items()}


def _digest(arrays: list[np.ndarray]) -> str:
    """A digest in which all NaNs are equal."""
    parts = [np.where(np.isnan(array), np.array(np.nan, array.dtype), array).tobytes() for array in arrays]
    return sha256(b"".join(parts)).hexdigest()[:16]


def _models(cases: list[Case], dtype: Any) -> list[CaseModel]:
    models: list[CaseModel] = []
    for case in cases:
        if not any(model.add(case) for model in models):
            models.append(CaseModel(dtype))
            assert models[-1].add(case), case.name
    return models


def _first_cases() -> list[Case]:
    """The first case of each op."""
    return list({case.ops: case for case in reversed(CASES)}.values())


def main() -> None:
    warnings.simplefilter("ignore")
    in_half = [case for case in WIDE if "DOUBLE" not in case.name]
    for dtype, cases in ((np.float32, [*_first_cases(), *WIDE]), (np.float16, in_half)):
        for model in _models(cases, dtype):
            for name, digest in model.results().items():
                print(digest, np.dtype(dtype), name)


if __name__ == "__main__":
    main()
