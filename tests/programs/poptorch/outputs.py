"""Output modes, anchored tensors, tensor names, latencies and cycles."""

import poptorch
import torch


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(5, 5, kernel_size=1)
        self.fc = torch.nn.Linear(6, 20)

    def forward(self, x):
        return self.fc(torch.relu(self.conv(x)))


x = torch.randn(10, 5, 5, 6)
for mode, period, shape in (
    (poptorch.OutputMode.All, None, [10, 5, 5, 20]),
    (poptorch.OutputMode.EveryN, 5, [2, 5, 5, 20]),
    (poptorch.OutputMode.Final, None, [1, 5, 5, 20]),
    (poptorch.OutputMode.Sum, None, [1, 5, 5, 20]),
):
    opts = poptorch.Options().deviceIterations(10).outputMode(mode, output_return_period=period)
    assert list(poptorch.inferenceModel(Model(), opts)(x).shape) == shape, mode

finder = poptorch.inferenceModel(Model())
finder.compile(x[:1])
names = finder.getTensorNames()
name = next(tensor_name for tensor_name in names if "conv" in tensor_name and tensor_name.endswith(":0"))
opts = poptorch.Options().logCycleCount(True)
opts.anchorTensor("after_conv", name)
model = poptorch.inferenceModel(Model(), opts)
model(x[:1])
print(name, list(model.getAnchoredTensor("after_conv").shape), model.cycleCount(), "cycles")
assert model.getAnchoredTensor("after_conv").shape[1] == 5
assert model.cycleCount() > 0
assert len(model.getLatency()) == len(model.getComputeLatency()) == 3
assert set(model.getPerfCounters()) == {"input", "input_complete", "output", "output_complete"}
assert model.compilationTime().total_seconds() > 0
