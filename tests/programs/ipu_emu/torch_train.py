"""Trains a module of which only the first instance's weights count; each instance prints their digest."""

import torch
from torch import nn

import ipu_emu.torch
import popdist_py
from ipu_emu.hostio import digest

source = torch.Generator().manual_seed(0)
x, y = torch.randn(64, 6, generator=source), torch.randint(0, 3, (64,), generator=source)
module = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Linear(8, 3))  # not seeded
if popdist_py.getInstanceIndex() == 0:
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(torch.linspace(-1, 1, parameter.numel()).reshape(parameter.shape))
adam = torch.optim.Adam(module.parameters(), 0.01)
ipu_emu.torch.train(module, nn.CrossEntropyLoss(), adam, (x, y), batch_size=32, epochs=2, accumulation=2)
print("trained", digest(module))
