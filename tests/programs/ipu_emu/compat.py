"""Use popart and popdist under the names that they have in Graphcore's SDK."""

import sys

import numpy as np
import popart
import popdist
import popdist.popart
from popdist import popart as same
from popdist.popdist_core import getNumLocalReplicas

assert same is popdist.popart
opts = popart.SessionOptions()
popdist.popart.configureSessionOptions(opts)
builder = popart.Builder()
x = builder.addInputTensor(popart.TensorInfo("FLOAT", [1]))
w = builder.addInitializedInputTensor(np.zeros(1, np.float32))
loss = builder.aiGraphcore.identityloss([builder.aiOnnx.mul([x, w])], popart.ReductionType.Sum)
session = popart.TrainingSession(
    builder.getModelProto(),
    popart.DataFlow(1, [loss]),
    loss,
    popart.ConstSGD(1.0),
    popdist.popart.getDevice(1),
    userOptions=opts,
)
session.prepareDevice()
session.weightsFromHost()
offset, local = popdist.getReplicaIndexOffset(), getNumLocalReplicas()
data = 2.0 ** np.arange(offset, offset + local, dtype=np.float32)
session.run(popart.PyStepIO({x: data}, session.initAnchorArrays()))
weights = np.zeros(1, np.float32)
session.weightsToHost()
session.readWeights(popart.PyWeightsIO({w: weights}))
print("said", sys.argv[1:], __name__, float(weights[0]))
