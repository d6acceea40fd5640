"""Adam with loss scaling and weight decay in half precision, a weight with specific values, a decreasing rate."""

import numpy as np
import popart

np.random.seed(1)
builder = popart.Builder()
builder.setGraphName("mixed")
x = builder.addInputTensor(popart.TensorInfo("FLOAT16", [8, 4]))
target = builder.addInputTensor(popart.TensorInfo("FLOAT16", [8, 2]))
w0 = builder.addInitializedInputTensor((np.random.rand(4, 16) - 0.5).astype(np.float16), "w0")
w1 = builder.addInitializedInputTensor((np.random.rand(16, 2) - 0.5).astype(np.float16), "w1")
with builder.schedulePriority(1):
    hidden = builder.aiOnnx.matmul([x, w0])
builder.setPartialsType(hidden, "FLOAT")
builder.setAvailableMemoryProportion(hidden, 0.4)
builder.recomputeOutputInBackwardPass(hidden)
assert builder.getPartialsType(hidden) == "FLOAT"
builder.addNodeAttribute("note", "first layer", {hidden})
assert builder.getStringNodeAttribute("note", {hidden}) == "first layer"
hidden = builder.aiGraphcore.gelu([hidden])
y = builder.aiOnnx.matmul([hidden, w1])
assert builder.getTensorDtypeString(y) == "float16"
difference = builder.aiOnnx.sub([y, target])
loss = builder.aiGraphcore.identityloss([builder.aiOnnx.mul([difference, difference])], popart.ReductionType.Mean)
loss = builder.aiOnnx.cast([loss], "FLOAT")


def optimizer(rate):
    adam = popart.Adam(
        {
            "defaultLearningRate": (rate, False),
            "defaultBeta1": (0.9, True),
            "defaultBeta2": (0.999, True),
            "defaultEps": (1e-6, True),
            "defaultWeightDecay": (1e-3, True),
            "lossScaling": (128.0, True),
        },
        mode=popart.AdamMode.Adam,
        weight_decay_mode=popart.WeightDecayMode.Decay,
        accum_type=popart.DataType.FLOAT,
        accl1_type=popart.DataType.FLOAT16,
        accl2_type=popart.DataType.FLOAT,
        clip_norm_settings=[popart.ClipNormSettings.clipAllWeights(5.0)],
    )
    adam.insertSpecific(w1, {"weightDecay": (0.0, True)})
    return adam


options = popart.SessionOptions()
options.enableStochasticRounding = True
options.enableLoadAndOffloadRNGState = True
options.enableGradientAccumulation = True
options.accumulationFactor = 2
options.optimizerStateTensorLocationSettings.location.storage = popart.TensorStorage.OffChip
options.weightTensorLocationSettings = popart.TensorLocationSettings(popart.TensorStorage.OnChip)
session = popart.TrainingSession(
    builder.getModelProto(),
    popart.DataFlow(5, {loss: popart.AnchorReturnType("Final")}),
    loss,
    optimizer(0.03),
    popart.DeviceManager().createIpuModelDevice({}),
    popart.InputShapeInfo(),
    popart.Patterns(),
    options,
    "adam",
)
session.prepareDevice()
session.setRandomSeed(42)
session.weightsFromHost()
anchors = session.initAnchorArrays()
inputs = np.random.rand(5, 2, 8, 4).astype(np.float16)
targets = np.stack([inputs.sum(-1), inputs.max(-1)], -1).astype(np.float16)
losses = []
for step in range(20):
    session.run(popart.PyStepIO({x: inputs, target: targets}, anchors))
    losses.append(float(anchors[loss]))
    session.updateOptimizerFromHost(optimizer(0.03 * 0.9**step))
assert losses[-1] < 0.1 * losses[0], losses
state = session.getRNGState()
session.setRNGState(state)
info = session.getInfo("Accl1___w0")
assert (info.data_type(), info.shape()) == ("FLOAT16", [4, 16])
assert {"Step___w0", "Accl2___w0", "Accum___w0"} <= set(session.getAllTensorIds())
print("done")
