"""A loss that is no function of torch, several losses together, and printed tensors."""

import poptorch
import torch


class Model(torch.nn.Module):
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
model = Model()
training = poptorch.trainingModel(model, optimizer=torch.optim.Adam(model.parameters(), lr=0.05))
x, target = torch.randn(8, 4), torch.eye(2).repeat(4, 1)
losses = [training(x, target)[1].item() for _ in range(20)]
print("loss", losses[0], losses[-1])
assert losses[-1] < losses[0]
