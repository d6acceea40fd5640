"""Compile ahead of time, save, and load in another wrapper; an executable cache; an offline target."""

import tempfile
from pathlib import Path

import poptorch
import torch


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.bias = torch.nn.Parameter(torch.zeros(()))

    def forward(self, x, target=None):
        x = x + 1 + self.bias
        if target is None:
            return x
        return x, poptorch.identity_loss(((x - target) ** 2 * 5).mean(), reduction="mean")


def main():
    x = torch.tensor([1.0])
    with tempfile.TemporaryDirectory() as folder:
        opts = poptorch.Options().enableExecutableCaching(str(Path(folder) / "cache"))
        training = poptorch.trainingModel(Model(), opts)
        training.compileAndExport(str(Path(folder) / "training.poptorch"), x, x + 2)
        loaded = poptorch.load(str(Path(folder) / "training.poptorch"))
        for _ in range(100):
            loaded(x, x + 2)
        assert abs(loaded.bias.item() - 1) < 1e-4
        inference = poptorch.inferenceModel(loaded.model)
        assert abs(inference(x).item() - 3) < 1e-4

        offline = poptorch.Options().useOfflineIpuTarget()
        ahead = poptorch.inferenceModel(Model(), offline)
        ahead.compileAndExport(str(Path(folder) / "inference.poptorch"), x)
        try:
            ahead(x)
        except AssertionError as error:
            print(error)
        else:
            raise SystemExit("an offline device ran")
        fresh = poptorch.inferenceModel(Model())
        fresh.loadExecutable(str(Path(folder) / "inference.poptorch"))
        assert fresh(x).item() == 2


main()
