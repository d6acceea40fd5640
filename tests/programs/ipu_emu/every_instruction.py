"""Compile sessions that need every kind of instruction; print hashes of their executables."""

import hashlib

import numpy as np

from ipu_emu import popart
from ipu_emu.program.instructions import leaves
from ipu_emu.session import compiled_program
from tests.ipu_emu.helpers.sessions import device, options

compiled = []
lowered = compiled_program.lowered
compiled_program.lowered = lambda step: (compiled.append(1), lowered(step))[1]
builder = popart.Builder()
x = builder.addInputTensor(popart.TensorInfo("FLOAT", [8]), "x")
same = builder.addInputTensor(
    popart.TensorInfo("FLOAT", [8]), popart.InputSettings(popart.ReplicatedStreamMode.Broadcast), "same"
)
first = np.arange(16, dtype=np.float32).reshape(2, 8)
pairs = popart.VariableSettings(popart.CommGroup(popart.CommGroupType.Consecutive, 2))
w = builder.addInitializedInputTensor(first, pairs, "w")
v = builder.addInitializedInputTensor(np.ones(8, np.float32), "v")
(y,) = builder.aiOnnx.dropout([builder.aiOnnx.mul([x, w])], 1, 0.25)
noise = builder.aiOnnx.randomnormal([8])
y = builder.aiOnnx.add([builder.aiOnnx.tanh([y]), builder.aiOnnx.mul([v, noise])])
shared = builder.aiGraphcore.replicatedallreduce([same])
loss = builder.aiGraphcore.l1loss([builder.aiOnnx.sub([y, builder.aiGraphcore.detach([shared])])], 1.0)
returns = {y: "All", loss: "Sum", "w": "Final"}
anchors = {id: popart.AnchorReturnType(kind) for id, kind in returns.items()}
anchors["Gradient___v"] = popart.AnchorReturnType("EveryN", 2)
digest = hashlib.sha256()
kinds = set()
for optimizer in (
    popart.SGD({"defaultLearningRate": (0.1, False), "defaultMomentum": (0.9, True)}),
    popart.Adam({"defaultLearningRate": (0.1, False)}, popart.AdamMode.Lamb),
    popart.Adaptive({"defaultMomentum": (0.5, True)}, popart.AdaptiveMode.CenteredRMSProp),
):
    opts = options(R=4, A=2)
    opts.enableStochasticRounding = True
    opts.optimizerStateTensorLocationSettings.location.storage = popart.TensorStorage.OffChip
    opts.accumulationAndReplicationReductionType = popart.ReductionType.Mean
    opts.meanAccumulationAndReplicationReductionStrategy = popart.MeanReductionStrategy.Running
    session = popart.TrainingSession(
        builder.getModelProto(), popart.DataFlow(2, anchors), loss, optimizer, device(opts), userOptions=opts
    )
    session.prepareDevice()
    session.setRandomSeed(7)
    session.weightsFromHost()
    out = session.initAnchorArrays()
    for step in range(2):
        random = np.random.default_rng(step)
        data = {x: random.standard_normal((2, 2, 4, 8)), same: random.standard_normal((2, 2, 8))}
        session.run(popart.PyStepIO({id: value.astype(np.float32) for id, value in data.items()}, out))
        for id in sorted(out):
            digest.update(out[id].tobytes())
    for id, tensor in sorted(session.executable.graph.tensors.items()):
        for replica in range(4) if tensor.role.is_variable else ():
            digest.update(session.engine.read(id, replica).tobytes())
    kinds |= {type(leaf).__name__ for leaf in leaves(session.executable.program)}
print(len(compiled), digest.hexdigest(), *sorted(kinds))
