"""Gradient accumulation, whose data comes by callbacks."""

import numpy as np
import popart

MICRO, FACTOR, BATCHES = 2, 4, 3

builder = popart.Builder()
x = builder.addInputTensor(popart.TensorInfo("FLOAT", [MICRO]), "x")
w = builder.addInitializedInputTensor(np.zeros(MICRO, np.float32), "w")
product = builder.aiOnnx.mul([x, w])
loss = builder.aiGraphcore.identityloss([product], reduction=popart.ReductionType.Sum)

opts = popart.SessionOptions()
opts.enableGradientAccumulation = True
opts.accumulationFactor = FACTOR
opts.accumulationAndReplicationReductionType = popart.ReductionType.Mean
opts.meanAccumulationAndReplicationReductionStrategy = popart.MeanReductionStrategy.Running
opts.enablePrefetchDatastreams = True
opts.defaultPrefetchBufferingDepth = 2

gradient = popart.reservedAccumPrefix() + "w"
flow = popart.DataFlow(BATCHES, [loss, gradient], popart.AnchorReturnType("All"))
session = popart.TrainingSession(
    builder.getModelProto(),
    flow,
    loss,
    popart.ConstSGD(1.0),
    popart.DeviceManager().createCpuDevice(),
    userOptions=opts,
)
session.prepareDevice()
session.weightsFromHost()
anchors = session.initAnchorArrays()
shapes = {id: value.shape for id, value in anchors.items()}
assert shapes == {loss: (BATCHES, FACTOR), gradient: (BATCHES, FACTOR, MICRO)}, shapes

data = np.arange(BATCHES * FACTOR * MICRO).reshape(-1, MICRO).astype(np.float32)
counter = {"in": 0, "in done": 0, loss: 0, gradient: 0}


def input_callback(id, prefetch):
    if prefetch:
        return None
    counter["in"] += 1
    return data[counter["in"] - 1]


def input_complete_callback(id):
    counter["in done"] += 1


def output_callback(id):
    at = np.unravel_index(counter[id], (BATCHES, FACTOR))
    return anchors[id][at[0], at[1] : at[1] + 1] if id == loss else anchors[id][at]


def output_complete_callback(id):
    counter[id] += 1


session.run(
    popart.PyStepIOCallback(input_callback, input_complete_callback, output_callback, output_complete_callback)
)
assert set(counter.values()) == {BATCHES * FACTOR}, counter
want = data.reshape(BATCHES, FACTOR, MICRO).mean(1)
np.testing.assert_allclose(anchors[gradient][:, -1], want, rtol=1e-6)

session.weightsToHost()
weights = {"w": np.empty(MICRO, np.float32)}
session.readWeights(popart.PyWeightsIO(weights))
np.testing.assert_allclose(weights["w"], -want.sum(0), rtol=1e-6)
print("done")
