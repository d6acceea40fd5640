"""Replicas over instances with popdist: data by global offset, the weights of all instances compared."""

import argparse

import numpy as np
import popart
import popdist
import popdist.popart

parser = argparse.ArgumentParser()
parser.add_argument("--batches-per-step", type=int, default=3)
args = parser.parse_args()

popdist.init()
opts = popart.SessionOptions()
popdist.popart.configureSessionOptions(opts)
opts.accumulationAndReplicationReductionType = popart.ReductionType.Mean
replicas, local, offset = (
    popdist.getNumTotalReplicas(),
    popdist.getNumLocalReplicas(),
    popdist.getReplicaIndexOffset(),
)
assert opts.getGlobalReplicationFactor() == replicas

builder = popart.Builder()
x = builder.addInputTensor(popart.TensorInfo("FLOAT", [2]))
scale = builder.addInputTensor(
    popart.TensorInfo("FLOAT", []), popart.InputSettings(popart.ReplicatedStreamMode.Broadcast), "scale"
)
w = builder.addInitializedInputTensor(np.full(2, 1.0 + popdist.getInstanceIndex(), np.float32), "w")
scaled = builder.aiOnnx.mul([builder.aiOnnx.mul([x, w]), scale])
total = builder.aiGraphcore.replicatedallreduce([scaled])
loss = builder.aiGraphcore.identityloss([scaled], popart.ReductionType.Sum)
device = popdist.popart.getDevice(1)
flow = popart.DataFlow(args.batches_per_step, {total: popart.AnchorReturnType("Final")})
session = popart.TrainingSession(builder.getModelProto(), flow, loss, popart.ConstSGD(0.5), device, userOptions=opts)
session.prepareDevice()
session.broadcastWeights(0)
session.weightsFromHost()

data = np.arange(args.batches_per_step * replicas * 2, dtype=np.float32).reshape(-1, replicas, 2)
mine = np.ascontiguousarray(data[:, offset : offset + local])
anchors = session.initAnchorArrays()
assert anchors[total].shape == ((local, 2) if local > 1 else (2,))
session.run(popart.PyStepIO({x: mine, "scale": np.full(args.batches_per_step, 2.0, np.float32)}, anchors))

want = np.ones(2, np.float32)
for batch in data:
    last = (2 * batch * want).sum(0)
    want = want - 0.5 * (2 * batch).mean(0)
np.testing.assert_allclose(anchors[total].reshape(local, 2), np.tile(last, (local, 1)), rtol=1e-5)
session.weightsToHost()
weights = np.empty(2, np.float32)
session.readWeights(popart.PyWeightsIO({"w": weights}))
np.testing.assert_allclose(weights, want, rtol=1e-6)
print("done")
