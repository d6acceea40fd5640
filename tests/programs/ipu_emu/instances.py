"""Train on the replicas of the job; print a hash of the weights, and a weight that is broadcast."""

import hashlib

import numpy as np

import popdist_py as popdist
import popdist_py.popart
from ipu_emu import popart
from tests.ipu_emu.helpers.networks import cnn

popdist.init()
net = cnn(normalise=True)
builder = net.builder
settings = popart.VariableSettings(popart.CommGroup(popart.CommGroupType.Orthogonal, 2))
own = builder.addInitializedInputTensor(np.arange(8, dtype=np.float32).reshape(4, 2), settings, "own")
norm = builder.aiGraphcore.l1loss([own], 0.25)
attributes = {"__collectiveOperator": 4, "__collectiveCommGroup": [1, 4]}
largest = builder.customOp("ReplicatedAllReduce", 1, "ai.graphcore", [net.loss], attributes)[0]
loss = builder.aiOnnx.add([net.loss, norm])
opts = popart.SessionOptions()
popdist_py.popart.configureSessionOptions(opts)
opts.gclOptions = {"maximum_reduce_many_buffer_size": "600"}
optimizer = popart.Adam({"defaultLearningRate": (0.01, True)}, popart.AdamMode.Lamb)
session = popart.TrainingSession(
    builder.getModelProto(),
    popart.DataFlow(2, [largest]),
    loss,
    optimizer,
    popdist_py.popart.getDevice(),
    userOptions=opts,
)
session.prepareDevice()
session.weightsFromHost()
first, local = popdist.getReplicaIndexOffset(), popdist.getNumLocalReplicas()
seen = []
for step in range(3):
    data = {id: np.ascontiguousarray(x[:, first : first + local]) for id, x in net.step(step, 2, 8).items()}
    anchors = session.initAnchorArrays()
    session.run(popart.PyStepIO(data, anchors))
    seen.append(anchors[largest].reshape(2, local)[:, :1].tobytes())
session.weightsToHost()
values = session.weightsByName()
names = [id for id in values if id.split("___")[-1] not in ("mean", "var")]
digest = hashlib.sha256(b"".join(values[id].tobytes() for id in names))
groups = [values["own"].shape, bool((values["own"][0] != values["own"][1]).any())]

# Weights are broadcast between sessions that know nothing of each other, too.
alone = popart.Builder()
w = alone.addInitializedInputTensor(np.array([42 + popdist.getInstanceIndex()], np.float32), "w")
loss = alone.aiGraphcore.identityloss([alone.aiOnnx.sqrt([w])])
cpu = popart.DeviceManager().createCpuDevice()
single = popart.TrainingSession(alone.getModelProto(), popart.DataFlow(1, []), loss, popart.ConstSGD(1.0), cpu)
single.prepareDevice()
single.broadcastWeights()
weights = np.zeros(1, np.float32)
single.weightsFromHost()
single.weightsToHost()
single.readWeights(popart.PyWeightsIO({"w": weights}))
print(digest.hexdigest(), weights, groups)
