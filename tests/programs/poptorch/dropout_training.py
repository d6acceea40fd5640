"""Train with dropout on this instance's part of each step's samples; instance 0 prints a hash of the weights."""

import hashlib

import popdist
import popdist.poptorch
import poptorch
import torch
from torch import nn

popdist.init()
opts = popdist.poptorch.Options()
opts.Training.gradientAccumulation(2)
opts.randomSeed(1)
torch.manual_seed(0)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc, self.drop = nn.Linear(5, 3), nn.Dropout(0.3)

    def forward(self, x, target):
        return nn.functional.mse_loss(self.drop(self.fc(x)), target)


data = torch.utils.data.TensorDataset(torch.randn(32, 5), torch.randn(32, 3))
module = Model()
total = opts.replication_factor * opts.Distributed.numProcesses
model = poptorch.trainingModel(module, opts, torch.optim.SGD(module.parameters(), 0.1))
index = opts.Distributed.processId
own = slice(index * opts.replication_factor, (index + 1) * opts.replication_factor)
for step in range(2):
    # [A, R, mb] of all replicas, of which this instance takes its own
    parts = (tensor[step * 16 : (step + 1) * 16].reshape(2, total, -1, tensor.shape[1]) for tensor in data.tensors)
    model(*(part[:, own].reshape(-1, part.shape[-1]) for part in parts))
text = b"".join(tensor.numpy().tobytes() for tensor in module.state_dict().values())
if index == 0:
    print("weights", hashlib.sha256(text).hexdigest())
