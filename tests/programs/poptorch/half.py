"""Half precision: models, inputs, mixed ones, and automatic loss scaling."""

import poptorch
import torch


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm = torch.nn.Conv2d(3, 8, 3), torch.nn.GroupNorm(2, 8)
        self.fc = torch.nn.Linear(8, 4)

    def forward(self, x, target=None):
        y = self.fc(torch.relu(self.norm(self.conv(x))).mean((2, 3)))
        return y if target is None else (y, torch.nn.functional.cross_entropy(y.float(), target))


torch.manual_seed(0)
x, target = torch.randn(4, 3, 6, 6), torch.tensor([0, 1, 2, 3])
model = Model()
expected = model(x)
half = poptorch.inferenceModel(Model().half())
assert half(x.half()).dtype is torch.half
mixed = poptorch.inferenceModel(model)(x.half())
assert (mixed.float() - expected).abs().max() < 0.01
opts = poptorch.Options()
opts.Training.setAutomaticLossScaling(True)
opts.Training.gradientAccumulation(2)
opts.Precision.enableStochasticRounding(True)
model = Model().half()
training = poptorch.trainingModel(model, opts, poptorch.optim.Adam(model.parameters(), lr=1e-2, loss_scaling=64.0))
losses = [training(x.half(), target)[1].item() for _ in range(10)]
print(losses[0], losses[-1])
assert losses[-1] < losses[0]
