"""Forms of calls that programs use: arguments by name, stages by block, and devices that compile() attaches to."""

import contextlib

import poptorch
import torch

model = torch.nn.Sequential(torch.nn.Linear(2, 2))
model[0] = poptorch.BeginBlock(layer_to_call=model[0], ipu_id=0)

strategy = poptorch.PipelinedExecution("A", "B")
assert strategy.stage("B").ipu(0) is strategy.stage(1)
with contextlib.suppress(AssertionError):
    strategy.stage("C")
    raise ValueError("there is no stage with the block C")

attached = poptorch.inferenceModel(torch.nn.Linear(2, 2))
attached.compile(torch.ones(1, 2))
assert attached.isAttachedToDevice()
attached.detachFromDevice()
options = poptorch.Options().connectionType(poptorch.ConnectionType.OnDemand)
on_demand = poptorch.inferenceModel(torch.nn.Linear(2, 2), options)
on_demand.compile(torch.ones(1, 2))
assert not on_demand.isAttachedToDevice()


class Slice(torch.nn.Module):
    def forward(self, x, start):
        return poptorch.dynamic_slice(x, 0, start, 2, 1)


# The values of the arguments of compile() do not matter.
sliced = poptorch.inferenceModel(Slice())
sliced.compile(torch.arange(8.0), torch.tensor([21]))
assert sliced(torch.arange(8.0), torch.tensor([1])).tolist() == [1, 2]


class Trained(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)

    def forward(self, x):
        y = self.linear(x)
        return y, poptorch.identity_loss(y, "sum")


trained = Trained()
training = poptorch.trainingModel(trained, optimizer=torch.optim.SGD(trained.parameters(), lr=0.1))
training(torch.ones(1, 4))
assert training.options.output_mode is poptorch.OutputMode.Final
