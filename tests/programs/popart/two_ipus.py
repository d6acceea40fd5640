"""Two IPUs by virtual graphs and pipeline stages, a dump of the IR as JSON, loggers, and queries of the model."""

import json

import numpy as np
import popart

popart.getLogger().setLevel("OFF")
popart.getLogger("session").setLevel("ERR")

builder = popart.Builder()
x = builder.addInputTensor(popart.TensorInfo(np.float32, [4, 6]), "x")
weights = [builder.addInitializedInputTensor(np.eye(6, dtype=np.float32) * (i + 1), f"w{i}") for i in range(2)]
h = x
for ipu, w in enumerate(weights):
    with builder.virtualGraph(ipu), builder.pipelineStage(ipu), builder.nameScope(f"layer{ipu}"):
        h = builder.aiOnnx.matmul([h, w], "product")
        h = builder.aiOnnx.relu([h])
        assert builder.getNameScope() == f"layer{ipu}/"
assert builder.getVirtualGraph(h) == 1
assert builder.hasPipelineStage(h)
with builder.virtualGraph(1), builder.pipelineStage(1):
    loss = builder.aiGraphcore.l1loss([h], 0.5, popart.ReductionType.Mean)
assert builder.getInputTensorIds() == ["x", "w0", "w1"]
assert builder.getTrainableTensorIds() == ["w0", "w1"]

opts = popart.SessionOptions()
opts.virtualGraphMode = popart.VirtualGraphMode.Manual
opts.enablePipelining = True
opts.enableGradientAccumulation = True
opts.accumulationFactor = 6
opts.autoRecomputation = popart.RecomputationType.Pipeline
opts.logDir = "."
opts.dotChecks = set()
opts.enableOutlining = False

device = popart.DeviceManager().createIpuModelDevice({"numIPUs": 2, "tilesPerIPU": 20})
session = popart.TrainingSession(
    builder.getModelProto(),
    dataFlow=popart.DataFlow(
        1, {loss: popart.AnchorReturnType("All"), "Gradient___w0": popart.AnchorReturnType("Sum")}
    ),
    loss=loss,
    optimizer=popart.SGD({"defaultLearningRate": (0.1, True), "defaultMomentum": (0.9, True)}),
    deviceInfo=device,
    userOptions=opts,
)
session.prepareDevice()
session.weightsFromHost()
anchors = session.initAnchorArrays()
assert anchors[loss].shape == (6,)
data = np.ones([6, 4, 6], np.float32)
session.run(popart.PyStepIO({x: data}, anchors))
assert anchors[loss].tolist() == [1.0] * 6, anchors[loss]
np.testing.assert_allclose(anchors["Gradient___w0"], np.full((6, 6), 6 * 0.5 * 2 / 6), rtol=1e-6)

ir = json.loads(session._serializeIr(popart.IrSerializationFormat.JSON))
types = {op["type"] for ops in ir.values() for op in ops}
assert "MatMul" in types, types
assert session.getInfo(h).shape() == [4, 6]
assert "MatMul" in session.getSummaryReport()
print("done")
