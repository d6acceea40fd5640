"""Train a minimal network: find the eight numbers with which the inputs were multiplied.

python examples/line.py
poprun-py --num-instances 4 --num-replicas 4 python examples/line.py
"""

import numpy as np

import ipu_emu.popart as popart
import popdist_py as popdist
import popdist_py.popart
from ipu_emu.hostio import Feed

popdist.init()  # connect to the other instances, if there are any
random = np.random.default_rng(0)
inputs = random.uniform(-1, 1, (4096, 8)).astype(np.float32)
wanted = inputs @ np.arange(8, dtype=np.float32).reshape(8, 1)

builder = popart.Builder()
x = builder.addInputTensor("FLOAT", [16, 8], "x")
y = builder.addInputTensor("FLOAT", [16, 1], "y")
weights = {"w": np.zeros((8, 1), np.float32)}
w = builder.addInitializedInputTensor(weights["w"], "w")
error = builder.aiOnnx.sub([builder.aiOnnx.matmul([x, w]), y])
loss = builder.aiGraphcore.identityloss([builder.aiOnnx.mul([error, error])], popart.ReductionType.Mean)

options = popart.SessionOptions()
popdist_py.popart.configureSessionOptions(options)  # replicas, as given to the launcher
options.accumulationAndReplicationReductionType = popart.ReductionType.Mean
session = popart.TrainingSession(
    builder.getModelProto(),
    popart.DataFlow(1, {loss: popart.AnchorReturnType("All")}),
    loss,
    popart.SGD({"defaultLearningRate": (0.1, False)}),
    popdist_py.popart.getDevice(),
    userOptions=options,
)
session.prepareDevice()
session.weightsFromHost()
anchors = session.initAnchorArrays()
with Feed({"x": inputs, "y": wanted}, micro_batch=16, shuffle=True, epochs=3) as feed:
    stepio = popart.FeedStepIO(feed, anchors)
    for _ in range(3 * feed.steps_per_epoch):
        session.run(stepio)
session.weightsToHost()
session.readWeights(popart.PyWeightsIO(weights))
if popdist.getInstanceIndex() == 0:
    print("weights", *weights["w"].ravel())
