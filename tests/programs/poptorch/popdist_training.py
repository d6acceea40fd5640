"""A program for poprun: options and data of this instance; without poprun it is one process."""

import popdist
import poptorch
import torch

if popdist.isPopdistEnvSet():
    import popdist.poptorch

    popdist.init()
    opts = popdist.poptorch.Options()
else:
    opts = poptorch.Options()
opts.randomSeed(1)
opts.deviceIterations(2)
opts.Training.gradientAccumulation(2)
opts.outputMode(poptorch.OutputMode.All)


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(3, 2)

    def forward(self, x, target):
        y = self.fc(x)
        return y, torch.nn.functional.cross_entropy(y, target)


torch.manual_seed(0)
data = torch.randn(128, 3)
dataset = torch.utils.data.TensorDataset(data, (data.sum(1) > 0).long())
loader = poptorch.DataLoader(opts, dataset, batch_size=4, shuffle=True)
model = Model()
training = poptorch.trainingModel(model, opts, torch.optim.SGD(model.parameters(), lr=0.5))
for _ in range(10):
    for x, target in loader:
        _, loss = training(x, target)
print("loss", loss.mean().item(), "of", opts.Distributed.numProcesses, "processes")
assert loss.mean() < 0.4
