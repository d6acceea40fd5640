"""Pipelines: models of several stages, and runs of them in every form, for comparison with the plain run."""

from __future__ import annotations

from typing import Any

import numpy as np

from ipu_emu import popart
from tests.ipu_emu.helpers.sessions import device_of, options

__all__ = ["EXPLICIT", "KEPT", "PIPELINE", "Tower", "threads"]

MANUAL = popart.VirtualGraphMode.Manual
PIPELINE: dict[str, Any] = {"enablePipelining": True, "virtualGraphMode": MANUAL}
EXPLICIT = {"useHostCopyOps": True, "enableExplicitMainLoops": True, "explicitRecomputation": True, **PIPELINE}
OFF, ON = popart.TensorStorage.OffChip, popart.TensorStorage.OnChip
WHOLE, SHARED = popart.ReplicatedTensorSharding.Off, popart.ReplicatedTensorSharding.On


def located(storage: Any, sharding: Any, *kinds: str) -> dict[str, Any]:
    """Options that give tensors of these kinds this location, whatever their size."""
    settings = popart.TensorLocationSettings(popart.TensorLocation(storage, sharding), 0, 0)
    return {f"{kind}TensorLocationSettings": settings for kind in kinds}


KEPT: dict[str, dict[str, Any]] = {
    "on chip": {},
    "off chip": located(OFF, WHOLE, "weight", "optimizerState", "activation"),
    "states shared": located(ON, SHARED, "optimizerState"),
    "all shared and off chip": located(OFF, SHARED, "weight", "optimizerState", "activation"),
}


class Tower:
    """``stages`` blocks and a loss; block s is in stage s, on IPU ``ipus[s]`` (by default s).

    Every block has a layer, and all but the smallest have dropout, normalisation and a connection past them.
    """

    def __init__(self, stages: int, ipus: Any = None, dtype: Any = np.float32, *, plain: bool = False) -> None:
        random = np.random.default_rng(stages)
        self.ipus = list(range(stages) if ipus is None else ipus)
        self.dtype = dtype
        self.builder = builder = popart.Builder()
        self.x = builder.addInputTensor(popart.TensorInfo(dtype, [6, 8]))
        self.labels = builder.addInputTensor("INT32", [6])
        self.weights: dict[str, np.ndarray] = {}
        y, past = self.x, ""
        for stage in range(stages):
            with builder.virtualGraph(self.ipus[stage]), builder.pipelineStage(stage):
                past, y = y, self.block(builder, y, past, stage, random, plain)
                if stage == stages - 1:
                    self.loss = builder.aiGraphcore.nllloss([builder.aiOnnx.softmax([y]), self.labels])
        self.y = y

    def weight(self, value: np.ndarray, name: str) -> str:
        self.weights[name] = value.astype(self.dtype)
        id: str = self.builder.addInitializedInputTensor(self.weights[name], name)
        return id

    def block(self, builder: Any, x: str, past: str, stage: int, random: Any, plain: bool) -> str:
        w = self.weight(random.standard_normal((8, 8)) / 3, f"w{stage}")
        y = builder.aiOnnx.tanh([builder.aiOnnx.gemm([x, w, self.weight(np.zeros(8), f"b{stage}")])])
        if plain:
            return str(y)
        parameters = [self.weight(np.full(8, v), f"{name}{stage}") for name, v in (("scale", 1.0), ("shift", 0.1))]
        statistics = [self.weight(np.full(8, v), f"{name}{stage}") for name, v in (("mean", 0.0), ("var", 1.0))]
        y = builder.aiOnnx.unsqueeze([y], [2])
        y = builder.aiOnnx.batchnormalization([y, *parameters, *statistics], 5)[0]
        y = builder.aiOnnx.squeeze([y], [2])
        y = builder.aiOnnx.dropout([y], 1, 0.25)[0]
        y = builder.aiOnnx.add([y, x])
        return str(builder.aiOnnx.add([y, past]) if stage > 1 else y)

    def session(
        self, *, bps: int = 1, anchors: Any = None, optimizer: Any = None, training: bool = True, **values: Any
    ) -> Any:
        opts = options(**values)
        ipus = (1 + max(self.ipus) if opts.usesVirtualGraphs() else 1) * values.get("R", 1)
        device = device_of(ipus, opts.localReplicas())
        flow = popart.DataFlow(bps, anchors or {self.loss: popart.AnchorReturnType("All")})
        if not training:
            session = popart.InferenceSession(self.builder.getModelProto(), flow, device, userOptions=opts)
            session.prepareDevice()
            return session
        optimizer = optimizer or popart.SGD({"defaultLearningRate": (0.1, False), "defaultMomentum": (0.9, True)})
        session = popart.TrainingSession(
            self.builder.getModelProto(), flow, self.loss, optimizer, device, userOptions=opts
        )
        session.prepareDevice()
        session.weightsFromHost()
        return session

    def data(self, seed: int, bps: int, factor: int, replicas: int) -> dict[str, np.ndarray]:
        random = np.random.default_rng(seed)
        return {
            self.x: random.standard_normal((bps, factor, replicas, 6, 8)).astype(self.dtype),
            self.labels: random.integers(0, 8, (bps, factor, replicas, 6)).astype(np.int32),
        }

    def run(self, session: Any, steps: int = 2, bps: int = 1, A: int = 1, R: int = 1) -> dict[str, np.ndarray]:
        """Anchors of every step, and the weights after the last."""
        anchors, arrays = session.initAnchorArrays(), {}
        for step in range(steps):
            session.run(popart.PyStepIO(self.data(step, bps, A, R), anchors))
            arrays |= {f"{id} in step {step}": array.copy() for id, array in anchors.items()}
        return arrays | self.read(session)

    def read(self, session: Any) -> dict[str, np.ndarray]:
        arrays = {id: np.zeros_like(value) for id, value in self.weights.items()}
        session.weightsToHost()
        session.readWeights(popart.PyWeightsIO(arrays))
        return arrays

    def trained(
        self, *, bps: int = 1, A: int = 1, R: int = 1, steps: int = 2, **values: Any
    ) -> dict[str, np.ndarray]:
        return self.run(self.session(bps=bps, A=A, R=R, **values), steps, bps, A, R)


def threads(monkeypatch: Any, count: int) -> None:
    """Let engines use ``count`` threads, however little work there is."""
    from ipu_emu.engine import engine

    monkeypatch.setattr(engine, "WORTH_A_THREAD", 0 if count > 1 else 10**18)
    monkeypatch.setattr(engine.os, "sched_getaffinity", lambda pid: set(range(count)))
