"""A job that saves its state in every step and resumes: ``resuming_job.py FOLDER STEPS PAUSE [sharded] [staged]``.

Prints the step from which it starts and, at the end, the SHA-256 of its weights. Dropout, Adam, two micro-batches and
data from a feed that shuffles and prepares at random: the state to resume from is more than weights. Several jobs,
separated by ``,``, run one after the other.
"""

from __future__ import annotations

import sys
import time
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

import popdist_py as popdist
import popdist_py.popart
from ipu_emu import popart
from ipu_emu.hostio import Feed
from ipu_emu.hostio.checkpoint import CheckpointError, Checkpoints

SHAPES = {"w": (16, 64), "v": (64, 10)}
MICRO_BATCH, ACCUMULATION = 4, 2


def model() -> tuple[bytes, str, str, str]:
    """(model, images, labels, loss) of a small network with dropout."""
    random = np.random.default_rng(0)
    builder = popart.Builder()
    images = builder.addInputTensor(popart.TensorInfo("FLOAT", [MICRO_BATCH, 16]))
    labels = builder.addInputTensor(popart.TensorInfo("INT32", [MICRO_BATCH]))
    w, v = (
        builder.addInitializedInputTensor(random.standard_normal(shape).astype(np.float32), debugContext=name)
        for name, shape in SHAPES.items()
    )
    hidden = builder.aiOnnx.relu([builder.aiOnnx.matmul([images, w])])
    hidden = builder.aiOnnx.dropout([hidden], 1, 0.3)[0]
    probabilities = builder.aiOnnx.softmax([builder.aiOnnx.matmul([hidden, v])])
    loss = builder.aiGraphcore.nllloss([probabilities, labels])
    return builder.getModelProto(), images, labels, loss


def noisy(sample: tuple[Any, Any], random: np.random.Generator) -> tuple[Any, Any]:
    image, label = sample
    return image + 0.1 * random.standard_normal(16, np.float32), label


def feed_from(position: int) -> Feed:
    """Three and a half steps of two replicas are an epoch."""
    random = np.random.default_rng(1)
    data = random.standard_normal((56, 16)).astype(np.float32), random.integers(0, 10, 56).astype(np.int32)
    return Feed(
        data,
        micro_batch=MICRO_BATCH,
        accumulation=ACCUMULATION,
        prepare=noisy,
        shuffle=True,
        seed=5,
        epochs=None,
        workers=1,
        start=position,
    )


class Job:
    """The session of one instance; if ``sharded``, replicas share weights and states of the optimiser.

    If ``staged``, Streaming Memory already holds data of the next step when this one is saved.
    """

    def __init__(self, *, sharded: bool = False, staged: bool = False) -> None:
        proto, self.images, self.labels, self.loss = model()
        options = popart.SessionOptions()
        popdist_py.popart.configureSessionOptions(options)
        options.enableGradientAccumulation, options.accumulationFactor = True, ACCUMULATION
        options.defaultBufferingDepth = 3 if staged else 1
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
        self.feed: Feed | None = None

    def step(self, step: int) -> int:
        """Train on the data of ``step``; return the position of the feed after it."""
        if self.feed is None:
            self.feed = feed_from(step)
            anchors = self.session.initAnchorArrays()
            self.stepio = popart.FeedStepIO(self.feed, anchors, names=[self.images, self.labels])
        self.session.run(self.stepio)
        return self.feed.position

    def close(self) -> None:
        self.session.close()
        if self.feed is not None:
            self.feed.close()

    def digest(self) -> str:
        weights = {name: np.empty(shape, np.float32) for name, shape in SHAPES.items()}
        self.session.weightsToHost()
        self.session.readWeights(popart.PyWeightsIO(weights))
        return sha256(b"".join(weights[name].tobytes() for name in SHAPES)).hexdigest()


def say(text: str) -> None:
    if popdist.getInstanceIndex() == 0:
        print(text, flush=True)


def run(folder: str | Path, steps: int, pause: float = 0.0, *form: str) -> tuple[int, str]:
    """Run one job; return its first step, and the digest of its weights."""
    job = Job(sharded="sharded" in form, staged="staged" in form)
    with Checkpoints(folder, keep=2) as checkpoints:
        resumed = checkpoints.restore(job.session)
        first = resumed.state.get("position", 0)
        say(f"from step {first}")
        for step in range(first, steps):
            position = job.step(step)
            checkpoints.save(job.session, step + 1, {"position": position})
            time.sleep(600 if "held" in form and (first, step) == (0, 2) else pause)
    digest = job.digest()
    say(digest)
    job.close()
    return first, digest


def main() -> None:
    popdist.init()
    for folder, steps, pause, *form in (job.split() for job in " ".join(sys.argv[1:]).split(",")):
        run(folder, int(steps), float(pause), *form)


if __name__ == "__main__":
    try:
        main()
    except CheckpointError as error:
        raise SystemExit(f"resuming_job.py: {error}") from None
