"""Errors that programs catch."""

import poptorch
import torch


class Model(torch.nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.kind, self.fc = kind, torch.nn.Linear(2, 2)

    def forward(self, x):
        y = self.fc(x)
        if self.kind == "item" and y.sum() > 0:
            y = y + 1
        if self.kind == "nonzero":
            y = torch.nonzero(y).float()
        if self.kind == "unknown":
            y = torch.lgamma(y)
        return y, poptorch.identity_loss(y, "sum")


for kind, text in (
    ("item", "only supported in eager mode"),
    ("nonzero", "aten::nonzero are unsupported"),
    ("unknown", "Unsupported ops found in compiled model"),
):
    try:
        poptorch.trainingModel(Model(kind))(torch.ones(1, 2))
    except poptorch.Error as error:
        print(error.type, error.message[:60])
        matches = text in error.message
    else:
        raise SystemExit(f"{kind} was accepted")
    assert matches, kind
model = poptorch.trainingModel(Model("fine"))
_, loss = model(torch.ones(1, 2))
try:
    loss.backward()
except poptorch.Error as error:
    print(error)
else:
    raise SystemExit("backward was accepted")
opts = poptorch.Options()
opts.Precision.enableFloatingPointExceptions(True)
try:
    poptorch.inferenceModel(torch.nn.Softplus(), opts)(torch.tensor([float("inf")]) * 0)
except poptorch.Error as error:
    print(error.type)
