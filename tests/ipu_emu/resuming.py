"""A job that saves its state in every step and goes on from it: ``resuming.py FOLDER STEPS PAUSE [sharded]``.

Prints where it starts and, at the end, the SHA-256 of its weights and its last loss. Dropout, Adam and two
micro-batches: what a run goes on from is more than weights.
"""

from __future__ import annotations

import sys
import time
from hashlib import sha256

import numpy as np

import popdist_py as popdist
import popdist_py.popart
from ipu_emu import popart
from ipu_emu.checkpoint import CheckpointError, Checkpoints

SHAPES = {"w": (16, 64), "v": (64, 10)}


def model() -> tuple[bytes, str, str, str]:
    """(model, images, labels, loss) of a small network with dropout."""
    random = np.random.default_rng(0)
    builder = popart.Builder()
    images = builder.addInputTensor(popart.TensorInfo("FLOAT", [4, 16]))
    labels = builder.addInputTensor(popart.TensorInfo("INT32", [4]))
    w, v = (
        builder.addInitializedInputTensor(random.standard_normal(shape).astype(np.float32), debugContext=name)
        for name, shape in SHAPES.items()
    )
    hidden = builder.aiOnnx.relu([builder.aiOnnx.matmul([images, w])])
    hidden = builder.aiOnnx.dropout([hidden], 1, 0.3)[0]
    probabilities = builder.aiOnnx.softmax([builder.aiOnnx.matmul([hidden, v])])
    loss = builder.aiGraphcore.nllloss([probabilities, labels])
    return builder.getModelProto(), images, labels, loss


class Job:
    """The session of one instance; if ``sharded``, replicas share weights and states of the optimiser."""

    def __init__(self, *, sharded: bool = False) -> None:
        proto, self.images, self.labels, self.loss = model()
        options = popart.SessionOptions()
        popdist_py.popart.configureSessionOptions(options)
        options.enableGradientAccumulation, options.accumulationFactor = True, 2
        if sharded:
            location = popart.TensorLocation(popart.TensorStorage.OnChip, popart.ReplicatedTensorSharding.On)
            options.optimizerStateTensorLocationSettings = popart.TensorLocationSettings(location, 0, 0)
            options.weightTensorLocationSettings = popart.TensorLocationSettings(location, 0, 0)
        self.session = popart.TrainingSession(
            proto,
            popart.DataFlow(1, [self.loss]),
            self.loss,
            popart.Adam({"defaultLearningRate": (0.01, False)}),
            popdist_py.popart.getDevice(1),
            userOptions=options,
        )
        self.session.prepareDevice()
        self.session.weightsFromHost()
        self.session.setRandomSeed(7)
        self.anchors = self.session.initAnchorArrays()

    def step(self, step: int) -> float:
        """Train on the data of ``step``, which depends on nothing else."""
        total, local = popdist.getNumTotalReplicas(), popdist.getNumLocalReplicas()
        mine = slice(popdist.getReplicaIndexOffset(), popdist.getReplicaIndexOffset() + local)
        random = np.random.default_rng((1, step))
        images = random.standard_normal((2, total, 4, 16)).astype(np.float32)[:, mine]
        labels = random.integers(0, 10, (2, total, 4)).astype(np.int32)[:, mine]
        data = {self.images: np.ascontiguousarray(images), self.labels: np.ascontiguousarray(labels)}
        self.session.run(popart.PyStepIO(data, self.anchors))
        return float(self.anchors[self.loss].mean())

    def digest(self) -> str:
        weights = {name: np.empty(shape, np.float32) for name, shape in SHAPES.items()}
        self.session.weightsToHost()
        self.session.readWeights(popart.PyWeightsIO(weights))
        return sha256(b"".join(weights[name].tobytes() for name in SHAPES)).hexdigest()


def say(text: str) -> None:
    if popdist.getInstanceIndex() == 0:
        print(text, flush=True)


def main() -> None:
    folder, steps, pause = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
    popdist.init()
    job = Job(sharded="sharded" in sys.argv)
    with Checkpoints(folder, keep=2) as checkpoints:
        resumed = checkpoints.restore(job.session)
        say(f"from step {resumed.step}")
        for step in range(resumed.step, steps):
            loss = job.step(step)
            checkpoints.save(job.session, step + 1, {"loss": loss})
            time.sleep(pause)
    say(job.digest())


if __name__ == "__main__":
    try:
        main()
    except CheckpointError as error:
        raise SystemExit(f"resuming.py: {error}") from None
