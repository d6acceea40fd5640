"""Tensors that are printed or returned by name, and what a compiled model says of itself."""

import poptorch
import torch


class M(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = torch.nn.Linear(4, 8)
        self.fc2 = torch.nn.Linear(8, 2)
        self.loss = torch.nn.CrossEntropyLoss()

    def forward(self, x, labels=None):
        x = self.fc1(x)
        x = poptorch.ipu_print_tensor(x, "fc1_out", summarise_threshold=4)
        y = self.fc2(torch.relu(x))
        return (y, self.loss(y, labels)) if labels is not None else y


m = M()
opts = poptorch.Options().deviceIterations(2)
opts.outputMode(poptorch.OutputMode.Sum)
probe = poptorch.trainingModel(M(), opts)
probe.compile(torch.randn(4, 4), torch.randint(0, 2, (4,)))
names = probe.getTensorNames()
assert any(n.startswith("loss/") for n in names), names
grad = [n for n in names if n.startswith("Gradient___") and "fc1.weight" in n]
assert grad, names
opts = poptorch.Options().deviceIterations(2)
opts.anchorTensor("grad_fc1", "Gradient___fc1.weight")
opts.anchorTensor("w", "UpdatedVar___fc1.bias", poptorch.OutputMode.All)
opts.outputMode(poptorch.OutputMode.Final)
t = poptorch.trainingModel(m, opts, poptorch.optim.SGD(m.parameters(), lr=0.1))
t(torch.randn(4, 4), torch.randint(0, 2, (4,)))
assert t.getAnchoredTensor("w").shape == (16,)
assert t.getAnchoredTensor("grad_fc1").shape == (8, 4)
assert set(t.getPerfCounters()) == {"input", "input_complete", "output", "output_complete"}
assert len(t.getLatency()) == 3
assert t.getLatency()[0] > 0
o = poptorch.Options()
o.logCycleCount(True)
i = poptorch.inferenceModel(m, o)
i(torch.randn(1, 4))
assert i.cycleCount() > 0
assert i.compilationTime().total_seconds() > 0
assert i.isAttachedToDevice()
assert i.isCompiled()
