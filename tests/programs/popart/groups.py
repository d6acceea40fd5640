"""A separate weight for every group of replicas, read back in every mode."""

import numpy as np
import popart
import popdist
import popdist.popart

popdist.init()
replicas, local, offset = (
    popdist.getNumTotalReplicas(),
    popdist.getNumLocalReplicas(),
    popdist.getReplicaIndexOffset(),
)
Type, Mode = popart.CommGroupType, popart.VariableRetrievalMode
first = [r - r % 2 for r in range(replicas)]  # of the group of two that a replica belongs to
#: Settings, and for each replica the members of its group.
CASES = {
    "all": (popart.VariableSettings(Mode.AllReplicas), [range(replicas)] * replicas),
    "none": (popart.VariableSettings(popart.CommGroup(Type.Ungrouped, 0)), [[r] for r in range(replicas)]),
    "pairs": (popart.VariableSettings(popart.CommGroup(Type.Consecutive, 2)), [[r, r + 1] for r in first]),
    "every pair": (
        popart.VariableSettings(popart.CommGroup(Type.Consecutive, 2), Mode.AllReplicas),
        [[r, r + 1] for r in first],
    ),
    "far": (
        popart.VariableSettings(popart.CommGroup(Type.Orthogonal, 2)),
        [sorted({r, (r + replicas // 2) % replicas}) for r in range(replicas)],
    ),
    "stride": (
        popart.VariableSettings(replicas // 2, 2, Mode.AllReplicas),
        [sorted({r, (r + replicas // 2) % replicas}) for r in range(replicas)],
    ),
}

opts = popart.SessionOptions()
popdist.popart.configureSessionOptions(opts)
builder = popart.Builder()
x = builder.addInputTensor(popart.TensorInfo("FLOAT", [3]))
losses = []
for name, (settings, groups) in CASES.items():
    count = len({tuple(group) for group in groups})
    start = np.zeros((count, 3) if count > 1 else (3,), np.float32)
    w = builder.addInitializedInputTensor(start, settings, name)
    losses.append(builder.aiGraphcore.identityloss([builder.aiOnnx.mul([x, w])], popart.ReductionType.Sum))
loss = builder.aiOnnx.sum(losses)
session = popart.TrainingSession(
    builder.getModelProto(),
    popart.DataFlow(1, {loss: popart.AnchorReturnType("All")}),
    loss,
    popart.ConstSGD(1.0),
    popdist.popart.getDevice(1),
    userOptions=opts,
)
session.prepareDevice()
session.weightsFromHost()
data = np.outer(2.0 ** np.arange(replicas), [1, 2, 3]).astype(np.float32)
session.run(popart.PyStepIO({x: np.ascontiguousarray(data[offset : offset + local])}, session.initAnchorArrays()))
session.weightsToHost()

for name, (settings, groups) in CASES.items():
    after = [-data[list(group)].sum(axis=0) for group in groups]
    if settings.getRetrievalMode() == Mode.OnePerGroup:
        after = [after[group[0]] for group in dict.fromkeys(tuple(group) for group in groups)]
    want = np.array(after) if len(after) > 1 else after[0]
    weights = np.empty_like(want)
    session.readWeights(popart.PyWeightsIO({name: weights}))
    np.testing.assert_array_equal(weights, want, name)
print("done")
