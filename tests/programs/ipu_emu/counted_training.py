"""Trains with targets that are ignored, unequally many on each replica; prints the digest and the bias."""

import torch

import ipu_emu.torch
from ipu_emu.hostio import digest

x = torch.randn(8, 5, generator=torch.Generator().manual_seed(1))
targets = torch.tensor([0, -100, -100, -100, 1, 2, 3, 0])
torch.manual_seed(0)
module = torch.nn.Linear(5, 4)
sgd = torch.optim.SGD(module.parameters(), 0.1)
ipu_emu.torch.train(
    module, torch.nn.CrossEntropyLoss(), sgd, (x, targets), batch_size=8, shuffle=False, progress=False
)
print("trained", digest(module), *(format(value, ".9g") for value in module.bias.tolist()))
