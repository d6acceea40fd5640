"""Inference from a file, with names that are looked up in the model, and a named session."""

import os
import tempfile

import numpy as np
import onnx
import popart

builder = popart.Builder()
x = builder.addInputTensor("FLOAT", [1, 2, 4, 4], "data")
w = builder.addInitializedInputTensor(np.ones([3, 2, 3, 3], dtype=np.float32), "weights")
b = builder.addInitializedInputTensor(np.arange(3, dtype=np.float32), debugContext="bias")
y = builder.aiOnnx.conv([x, w, b], dilations=[1, 1], pads=[1, 1, 1, 1], strides=[1, 1])
y = builder.aiOnnx.relu([y])
[y] = builder.aiOnnx.maxpool([y], 1, [2, 2], strides=[2, 2])
y = builder.aiOnnx.flatten([y])
builder.addOutputTensor(y)
assert builder.getTensorShape(y) == [1, 12]

folder = tempfile.mkdtemp()
path = os.path.join(folder, "model.onnx")
with open(path, "wb") as file:
    file.write(builder.getModelProto())

model = onnx.load(path)
initializers = [i.name for i in model.graph.initializer]
inputs = [i.name for i in model.graph.input if i.name not in initializers]
outputs = [o.name for o in model.graph.output]
assert (inputs, initializers, outputs) == (["data"], ["weights", "bias"], [y])

options = popart.SessionOptions()
options.enableEngineCaching = True
options.cachePath = os.path.join(folder, "cache")
options.constantWeights = False
anchor = {outputs[0]: popart.AnchorReturnType("Final")}
device = popart.DeviceManager().createCpuDevice()
for _ in range(2):
    session = popart.InferenceSession(path, popart.DataFlow(1, anchor), device, userOptions=options, name="ask")
    session.prepareDevice()
    session.weightsFromHost()
    results = session.initAnchorArrays()
    session.run(popart.PyStepIO({inputs[0]: np.ones([1, 2, 4, 4], dtype=np.float32)}, results))
    assert results[y].shape == (1, 12)
    assert results[y].tolist() == [[18.0] * 4 + [19.0] * 4 + [20.0] * 4], results

session.writeWeights(
    popart.PyWeightsIO({"weights": np.zeros([3, 2, 3, 3], np.float32), "bias": np.ones(3, np.float32)})
)
session.run(popart.PyStepIO({inputs[0]: np.ones([1, 2, 4, 4], dtype=np.float32)}, results))
assert results[y].tolist() == [[1.0] * 12]
print("done")
