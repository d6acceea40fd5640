"""Blocks, defined in all ways, and the strategies that place them."""

import poptorch
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(8, 8) for _ in range(4)])
        self.loss = nn.MSELoss()

    def forward(self, x, target):
        poptorch.Block.useAutoId()
        with poptorch.Block(ipu_id=0):
            x = torch.relu(self.layers[0](x))
        with poptorch.Block(ipu_id=1):
            x = torch.relu(self.layers[1](x))
        with poptorch.Block(ipu_id=2):
            x = torch.relu(self.layers[2](x))
        with poptorch.Block(ipu_id=3):
            x = self.layers[3](x)
            return x, self.loss(x, target)


class Annotated(Model):
    def __init__(self):
        super().__init__()
        self.layers[1] = poptorch.BeginBlock(self.layers[1], "B1", ipu_id=1)
        poptorch.BeginBlock(self.layers[3], user_id="B2", ipu_id=0)

    def forward(self, x, target):
        for layer in self.layers:
            x = torch.relu(layer(x))
        return x, self.loss(x, target)


@poptorch.BlockFunction("half", ipu_id=1)
def second(model, x):
    return model.layers[3](torch.relu(model.layers[2](x)))


class Functional(Model):
    def forward(self, x, target):
        poptorch.Block.start("first", ipu_id=0)
        x = torch.relu(self.layers[1](torch.relu(self.layers[0](x))))
        x = second(self, x)
        return x, self.loss(x, target)


def train(model, strategy, accumulation=8):
    opts = poptorch.Options().autoRoundNumIPUs(True).outputMode(poptorch.OutputMode.Sum)
    opts.Training.gradientAccumulation(accumulation)
    if strategy is not None:
        opts.setExecutionStrategy(strategy)
    trainer = poptorch.trainingModel(model, opts, torch.optim.SGD(model.parameters(), lr=0.1))
    x = torch.linspace(-1, 1, 8 * accumulation * 2).reshape(-1, 8)
    losses = [trainer(x, x.flip(1))[1].item() for _ in range(5)]
    trainer.destroy()
    assert losses[-1] < losses[0]
    return losses


def main():
    torch.manual_seed(0)
    for kind, strategies in (
        (
            Model,
            [
                None,
                poptorch.PipelinedExecution("0", "1", "2", "3"),
                poptorch.PipelinedExecution(poptorch.Stage("0").ipu(0), poptorch.Stage("1", "2").ipu(1), ["3"]),
                poptorch.PipelinedExecution(poptorch.AutoStage.AutoIncrement),
                poptorch.ShardedExecution(),
                poptorch.ShardedExecution(poptorch.AutoStage.SameAsIpu),
                poptorch.SerialPhasedExecution("0", "1", "2", "3"),
                poptorch.ParallelPhasedExecution(
                    poptorch.Phase("0"), poptorch.Phase("1"), poptorch.Phase("2"), poptorch.Phase("3")
                ),
            ],
        ),
        (Annotated, [poptorch.PipelinedExecution(poptorch.AutoStage.AutoIncrement)]),
        (Functional, [poptorch.PipelinedExecution("first", "half"), poptorch.ShardedExecution()]),
    ):
        results = set()
        for strategy in strategies:
            torch.manual_seed(1)
            results.add(tuple(train(kind(), strategy)))
        print(kind.__name__, len(strategies), "strategies", f"{len(results)} result")
        assert len(results) == 1


main()
