"""All optimisers with PopTorch's own arguments, schedulers, changed attributes, and saved states."""

import tempfile

import poptorch
import torch


def network():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))


class WithLoss(torch.nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model, self.loss = model, torch.nn.MSELoss()

    def forward(self, x, target):
        y = self.model(x)
        return y, self.loss(y, target)


X, Y = torch.linspace(-1, 1, 32).reshape(8, 4), torch.linspace(0, 1, 16).reshape(8, 2)
MAKERS = [
    lambda p: poptorch.optim.SGD(
        p, lr=0.05, momentum=0.9, weight_decay=0.01, use_combined_accum=True, velocity_scaling=128
    ),
    lambda p: poptorch.optim.SGD(p, lr=0.05, momentum=0.9, use_combined_accum=False, loss_scaling=2.0),
    lambda p: poptorch.optim.SGD(p, lr=0.05, max_grad_norm=0.5),
    lambda p: poptorch.optim.Adam(p, lr=0.01, max_grad_norm=1.0),
    lambda p: poptorch.optim.AdamW(p, lr=0.01, weight_decay=0.1, bias_correction=False),
    lambda p: poptorch.optim.RMSprop(p, lr=0.001, momentum=0.5, use_tf_variant=True),
    lambda p: poptorch.optim.RMSprop(p, lr=0.001, centered=True),
    lambda p: poptorch.optim.LAMB(p, lr=0.01),
    lambda p: torch.optim.AdamW(p, lr=0.01),
    lambda p: torch.optim.RMSprop(p, lr=0.001),
]
for make in MAKERS:
    model = WithLoss(network())
    optimizer = make(model.parameters())
    training = poptorch.trainingModel(model, optimizer=optimizer)
    losses = [training(X, Y)[1].item() for _ in range(10)]
    assert losses[-1] < losses[0], type(optimizer)
    optimizer.param_groups[0]["lr"] *= 0.5
    training.setOptimizer(optimizer)
    training(X, Y)
    training.destroy()

optimizer = poptorch.optim.SGD([{"params": model.parameters()}], lr=0.01, momentum=0.9)
optimizer.variable_attrs.markAsConstant("momentum")
assert optimizer.variable_attrs.isConstant("momentum")
assert not optimizer.variable_attrs.isConstant("lr")

model = WithLoss(network())
optimizer = poptorch.optim.Adam(model.parameters(), lr=0.01)
training = poptorch.trainingModel(model, optimizer=optimizer)
for _ in range(3):
    training(X, Y)
with tempfile.NamedTemporaryFile() as file:
    torch.save({"model": training.state_dict(), "optimizer": optimizer.state_dict()}, file.name)
    expected = [training(X, Y)[1].item() for _ in range(3)]
    content = torch.load(file.name, weights_only=False)
training.destroy()
other = WithLoss(network())
other.load_state_dict(content["model"])
optimizer = poptorch.optim.Adam(other.parameters(), lr=0.01)
optimizer.load_state_dict(content["optimizer"])
again = poptorch.trainingModel(other, optimizer=optimizer)
again_losses = [again(X, Y)[1].item() for _ in range(3)]
print(expected, again_losses)
assert expected == again_losses
