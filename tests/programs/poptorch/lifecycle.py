"""Wrapping, hooks, copies of weights, buffers, synthetic data, and devices that come and go."""

import poptorch
import torch

calls = []
handles = [
    poptorch.registerPreCompileHook(lambda: calls.append("before")),
    poptorch.registerPostCompileHook(lambda: calls.append("after")),
]


class Counter(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("count", torch.zeros(1))
        self.fc = torch.nn.Linear(2, 2)

    def forward(self, x):
        self.count += 1
        y = self.fc(x)
        return y, poptorch.identity_loss(y**2, "mean")


model = Counter()
training = poptorch.trainingModel(model, poptorch.Options().deviceIterations(2))
x = torch.ones(2, 2)
training(x)
assert calls == ["before", "after"]
for handle in handles:
    handle.remove()
assert model.count.item() == 2
assert training.isAttachedToDevice()
training.detachFromDevice()
before = model.fc.weight.detach().clone()
training.attachToDevice()
training(x)
assert not torch.equal(before, model.fc.weight)
training.copyWeightsToHost()
model.fc.weight.data.zero_()
training.copyWeightsToDevice()
training(x)
assert model.fc.weight.abs().max() < 0.1
state = training.state_dict()
training.load_state_dict(state)
training.rng_state = training.rng_state
try:
    poptorch.trainingModel(model)
except RuntimeError as error:
    print(error)
else:
    raise SystemExit("wrapped twice")
training.destroy()
assert type(model).__name__ == "Counter"
poptorch.trainingModel(model).destroy()

opts = poptorch.Options().enableSyntheticData(True)
opts.updatableNamedBuffers(["count"])
synthetic = poptorch.inferenceModel(model, opts)
assert synthetic(torch.ones(1, 2))[0].shape == (1, 2)
inference = poptorch.inferenceModel(model, poptorch.Options().updatableNamedBuffers(["count"]))
inference(torch.ones(1, 2))
model.count.fill_(7)
inference.copyNamedBuffersToDevice()
inference(torch.ones(1, 2))
inference.copyWeightsToHost()
print("count", model.count.item())
assert model.count.item() == 8
