"""Softmax regression with a training and a testing session that share weights through a file."""

import os
import tempfile

import numpy as np
import popart

BATCH, STEPS = 16, 4


def model():
    builder = popart.Builder(opsets={"ai.onnx": 9, "ai.onnx.ml": 1, "ai.graphcore": 1})
    image_shape = popart.TensorInfo("FLOAT", [BATCH, 8])
    image = builder.addInputTensor(image_shape)
    label = builder.addInputTensor(popart.TensorInfo("INT32", [BATCH]))
    with builder.nameScope("fc"):
        weight = builder.addInitializedInputTensor(np.random.normal(0, 0.1, [8, 3]).astype(np.float32), "W")
        bias = builder.addInitializedInputTensor(np.zeros([3]).astype(np.float32), "b")
        out = builder.aiOnnx.gemm([image, weight, bias], 1, 1, False, False)
    out = builder.aiOnnx.softmax([out])
    loss = builder.aiGraphcore.nllloss([out, label], popart.ReductionType.Sum, debugContext="loss")
    builder.addOutputTensor(out)
    return builder.getModelProto(), image, label, out, loss


np.random.seed(0)
proto, image, label, out, loss = model()
device = popart.DeviceManager().createIpuModelDevice({"numIPUs": 1, "compileIPUCode": True})

options = popart.SessionOptions()
options.syntheticDataMode = popart.SyntheticDataMode.Off
options.instrumentWithHardwareCycleCounter = False
options.reportOptions = {"showVarStorage": "true"}
options.engineOptions = {"debug.instrument": "true"}

session = popart.TrainingSession(
    fnModel=proto,
    loss=loss,
    deviceInfo=device,
    optimizer=popart.SGD({"defaultLearningRate": (0.01, False), "defaultWeightDecay": (0, True)}),
    dataFlow=popart.DataFlow(STEPS, {loss: popart.AnchorReturnType("Sum"), out: popart.AnchorReturnType("All")}),
    userOptions=options,
    patterns=popart.Patterns(popart.PatternsLevel.Default).enableRuntimeAsserts(False),
)
session.prepareDevice()
session.weightsFromHost()
anchors = session.initAnchorArrays()
assert anchors[out].shape == (STEPS, BATCH, 3), anchors[out].shape

centres = np.random.normal(0, 1, [3, 8])
labels = np.random.randint(0, 3, [STEPS, BATCH]).astype(np.int32)
data = (centres[labels] + np.random.normal(0, 0.1, [STEPS, BATCH, 8])).astype(np.float32)
losses = []
for epoch in range(20):
    stepio = popart.PyStepIO({image: data, label: labels}, anchors)
    session.run(stepio, "epoch " + str(epoch))
    losses.append(float(np.sum(anchors[loss])))
right = np.sum(np.argmax(anchors[out], axis=2) == labels)
assert losses[-1] < losses[0] / 4, losses
assert right == STEPS * BATCH, right

with tempfile.TemporaryDirectory() as folder:
    path = os.path.join(folder, "trained.onnx")
    session.modelToHost(path)
    testing = popart.InferenceSession(
        path, popart.DataFlow(STEPS, {out: popart.AnchorReturnType("ALL")}), device, userOptions=options
    )
    testing.prepareDevice()
    answers = testing.initAnchorArrays()
    testing.run(popart.PyStepIO({image: data}, answers))
assert np.sum(np.argmax(answers[out], axis=2) == labels) == STEPS * BATCH
print("done")
