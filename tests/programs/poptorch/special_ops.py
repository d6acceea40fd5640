"""The functions that PopTorch adds to torch's."""

import poptorch
import torch


class Loops(torch.nn.Module):
    def forward(self, x):
        def body(y):
            return y * 2

        return poptorch.for_loop(10, body, [x])[0]


class Chooses(torch.nn.Module):
    def forward(self, condition, x, y):
        return poptorch.cond(condition, lambda x, y: x + y, [x, y], lambda x, y: x * y, [x, y])[0]


class Slices(torch.nn.Module):
    def forward(self, x, start):
        part = poptorch.dynamic_slice(x, 0, start, 2, 1)
        return part, poptorch.dynamic_update(x, part * 0, 0, start, 2)


class Hints(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.convs = torch.nn.ModuleList([torch.nn.Conv2d(1, 2, 3) for _ in range(2)])

    def forward(self, x, a, b):
        with poptorch.MultiConv().availableMemoryProportions([0.1, 0.2]):
            y = self.convs[0](x) + self.convs[1](x)
        y = poptorch.set_available_memory(poptorch.nop(y), 0.3)
        with poptorch.NameScope("product"), poptorch.Attribute(__outline={"layer": "one"}):
            z = poptorch.serializedMatMul(a, b, poptorch.MatMulSerializationMode.ReducingDim, factor=2)
        return y, z, poptorch.isRunningOnIpu()


x = torch.tensor([1.0])
assert poptorch.inferenceModel(Loops())(x).item() == 1024
choose = poptorch.inferenceModel(Chooses())
assert choose(torch.tensor([True]), x * 2, x * 3).item() == 5
assert choose(torch.tensor([False]), x * 2, x * 3).item() == 6
rows = torch.arange(5.0)
part, changed = poptorch.inferenceModel(Slices())(rows, torch.tensor([1]))
assert part.tolist() == [1, 2]
assert changed.tolist() == [0, 0, 0, 3, 4]
hints = Hints()
image, a, b = torch.randn(1, 1, 5, 5), torch.randn(2, 4), torch.randn(4, 3)
y, z, on_ipu = poptorch.inferenceModel(hints)(image, a, b)
assert on_ipu
assert (y - hints.convs[0](image) - hints.convs[1](image)).abs().max() < 1e-5
assert (z - a @ b).abs().max() < 1e-5
print("special ops")
