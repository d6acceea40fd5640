"""PopTorch calls: models of functions with one parameter ``w``."""

import torch

import ipu_emu.poptorch as poptorch

__all__ = ["Calls", "inferred", "mean_loss", "training"]

nn = torch.nn


class Calls(nn.Module):
    """A module whose forward is a function of it and its inputs."""

    def __init__(self, function, size=1, dtype=torch.float32):
        super().__init__()
        self.w, self.function = nn.Parameter(torch.ones(size, dtype=dtype)), function

    def forward(self, *inputs):
        return self.function(self, *inputs)


def mean_loss(module, x):
    return poptorch.identity_loss(x * module.w, "mean")


def inferred(function, *inputs, options=None):
    return poptorch.inferenceModel(Calls(function), options)(*inputs)


def training(function=mean_loss, options=None, optimizer=None, **parts):
    module = Calls(function, **parts)
    make = optimizer or (lambda parameters: torch.optim.SGD(parameters, lr=0.5))
    return module, poptorch.trainingModel(module, options, make(module.parameters()))
