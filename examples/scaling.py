"""Time the steps of a small network, for ``ipu-emu scale --run``.

    ipu-emu scale --run "examples/scaling.py" --instances 1,2 --accumulations 1,2,4 --batch 32 --weak --strong

Prints the least time of a step in seconds, of all steps after the first ones.
"""

from __future__ import annotations

import argparse
import time

import numpy as np

import ipu_emu.popart as popart
import popdist_py as popdist
import popdist_py.popart
from ipu_emu import models

BATCH, WIDTH = 32, 784


def main() -> None:
    parser = argparse.ArgumentParser(description="Time the steps of a small network.")
    parser.add_argument("--accumulation", type=int, default=1)
    parser.add_argument("--steps", type=int, default=60)
    args = parser.parse_args()
    popdist.init()
    options = popart.SessionOptions()
    popdist_py.popart.configureSessionOptions(options)
    options.enableGradientAccumulation = True  # for one micro-batch too: the same program for every accumulation
    options.accumulationFactor = args.accumulation
    model = models.named("mlp", batch=BATCH, dtype=np.float32, seed=0)
    session = popart.TrainingSession(
        model.proto,
        popart.DataFlow(1, {}),
        model.loss,
        popart.ConstSGD(0.01),
        popdist_py.popart.getDevice(),
        userOptions=options,
    )
    session.prepareDevice()
    session.weightsFromHost()
    random = np.random.default_rng(popdist.getInstanceIndex())
    shape = (args.accumulation, BATCH)
    data = random.standard_normal((*shape, WIDTH), np.float32)
    labels = random.integers(0, 10, shape, np.int32)
    anchors = session.initAnchorArrays()
    times = []
    for _ in range(args.steps):
        start = time.perf_counter()
        session.run(popart.PyStepIO({model.data: data, model.labels: labels}, anchors))
        times.append(time.perf_counter() - start)
    if popdist.getInstanceIndex() == 0:
        print(f"step_seconds {min(times[len(times) // 4 :]):.9f}")


if __name__ == "__main__":
    main()
