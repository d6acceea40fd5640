"""Train a small network with a deliberate fault: ``straggler``, ``data``, ``small`` or ``pipeline``.

``fine`` has none; ``workers`` neither, and its data are prepared by two forked processes.
"""

from __future__ import annotations

import sys
import time

import numpy as np

import gcl
import ipu_emu.popart as popart
import popdist_py
import popdist_py.popart
from ipu_emu.hostio import Feed

FAULT = sys.argv[1]
STEPS, BATCH, ACCUMULATION, WIDTH = 20, 16, 8, 256

popdist_py.init()
late = FAULT == "straggler" and popdist_py.getInstanceIndex() == popdist_py.getNumInstances() - 1
builder = popart.Builder()
random = np.random.default_rng(0)
x = builder.addInputTensor("FLOAT", [BATCH, WIDTH], "x")
y = x
pipelined = FAULT == "pipeline"
layers = (6, 1) if pipelined else (3,)
for stage, count in enumerate(layers):
    with builder.virtualGraph(stage), builder.pipelineStage(stage):
        for _ in range(count):
            w = builder.addInitializedInputTensor(random.standard_normal((WIDTH, WIDTH)).astype(np.float32) / 16)
            y = builder.aiOnnx.tanh([builder.aiOnnx.matmul([y, w])])
        if stage == len(layers) - 1:
            loss = builder.aiGraphcore.identityloss([y], popart.ReductionType.Mean)

options = popart.SessionOptions()
popdist_py.popart.configureSessionOptions(options)
options.virtualGraphMode = popart.VirtualGraphMode.Manual if pipelined else popart.VirtualGraphMode.Off
options.enablePipelining = pipelined
options.enableGradientAccumulation = True
options.accumulationFactor = ACCUMULATION
device = popdist_py.popart.getDevice(ipus_per_replica=len(layers))
session = popart.TrainingSession(
    builder.getModelProto(), popart.DataFlow(1, [loss]), loss, popart.ConstSGD(0.1), device, userOptions=options
)
session.prepareDevice()
session.weightsFromHost()
anchors = session.initAnchorArrays()


def prepare(sample: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    time.sleep(0.0003)
    return sample


small = gcl.connect() if FAULT == "small" else None
little = np.ones((1, 16), np.float32)
source = {"x": np.random.default_rng(1).standard_normal((1024, WIDTH)).astype(np.float32)}
forked = FAULT == "workers"
how = {"prepare": prepare} if FAULT == "data" else {"workers": 2 * forked, "processes": forked}
with Feed(source, micro_batch=BATCH, accumulation=ACCUMULATION, epochs=None, steps=STEPS, **how) as feed:
    for values in feed:
        session.run(popart.PyStepIO(values, anchors))
        if late:
            time.sleep(0.05)
        if small:
            for _ in range(300):
                small.all_reduce(little)
