"""A job with running statistics, which each replica computes from its own data: ``running_statistics_job.py FOLDER``.

Every instance writes FOLDER/INSTANCE.onnx, then the first alone writes FOLDER/alone.onnx after one more step, and a
checkpoint is in FOLDER/run.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

import popdist_py as popdist
import popdist_py.popart
from ipu_emu import popart
from ipu_emu.hostio.checkpoint import Checkpoints

SHAPE = (4, 3, 2, 2)


def session() -> tuple[popart.TrainingSession, str]:
    builder = popart.Builder()
    x = builder.addInputTensor(popart.TensorInfo("FLOAT", SHAPE))
    of = {"scale": 1, "bias": 0, "mean": 0, "var": 1}
    ids = [builder.addInitializedInputTensor(np.full(3, value, np.float32), id) for id, value in of.items()]
    y = builder.aiOnnx.batchnormalization([x, *ids], 5)[0]
    loss = builder.aiGraphcore.l1loss([y], 0.1)
    options = popart.SessionOptions()
    popdist_py.popart.configureSessionOptions(options)
    training = popart.TrainingSession(
        builder.getModelProto(),
        popart.DataFlow(1, [loss]),
        loss,
        popart.ConstSGD(0.1),
        popdist_py.popart.getDevice(1),
        userOptions=options,
    )
    training.prepareDevice()
    training.weightsFromHost()
    return training, x


def main() -> None:
    popdist.init()
    folder, (job, x) = Path(sys.argv[1]), session()
    instance, first = popdist.getInstanceIndex(), popdist.getReplicaIndexOffset()
    own = slice(first, first + popdist.getNumLocalReplicas())
    anchors = job.initAnchorArrays()
    with Checkpoints(folder / "run") as checkpoints:
        for step in range(3):
            data = np.random.default_rng(step).standard_normal((popdist.getNumTotalReplicas(), *SHAPE))
            job.run(popart.PyStepIO({x: data.astype(np.float32)[own]}, anchors))
            if step == 1:
                job.modelToHost(str(folder / f"{instance}.onnx"))
                checkpoints.save(job, step + 1)
        if instance == 0:
            job.modelToHost(str(folder / "alone.onnx"))
        popdist.synchronize()
        checkpoints.restore(job)
        job.modelToHost(str(folder / f"{instance}.restored.onnx"))
    job.close()


if __name__ == "__main__":
    main()
