"""Tensors that are printed or returned by name, a loss of several parts, and queries of a compiled model."""

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


class Printed(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(4, 2)

    def forward(self, x, target):
        y = poptorch.ipu_print_tensor(self.fc(x), "output")
        huber = torch.nn.functional.huber_loss(y, target)
        entropy = torch.nn.functional.cross_entropy(y, target.argmax(1))
        penalty = poptorch.identity_loss((self.fc.weight**2), reduction="sum")
        return y, poptorch.identity_loss(huber + entropy + 0.01 * penalty, reduction="mean")


torch.manual_seed(0)
model = Printed()
training = poptorch.trainingModel(model, optimizer=torch.optim.Adam(model.parameters(), lr=0.05))
x, target = torch.randn(8, 4), torch.eye(2).repeat(4, 1)
losses = [training(x, target)[1].item() for _ in range(20)]
print("loss", losses[0], losses[-1])
assert losses[-1] < losses[0]
