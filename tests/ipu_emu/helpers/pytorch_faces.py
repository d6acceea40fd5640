"""PyTorch faces: the program of the table of front ends, through PopTorch and ipu_emu.torch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import ipu_emu.torch
from ipu_emu import poptorch
from ipu_emu.hostio.checkpoint import Checkpoints
from ipu_emu.poptorch.options.strategies import BalancedPipeline
from tests.ipu_emu.helpers.front_ends import WIDE, Settings, Weights, compiled_before

__all__ = ["PopTorch", "Train"]

X = torch.randn(32, 8, generator=torch.Generator().manual_seed(0))
Y = torch.arange(32) % 3


class Scored(nn.Module):
    """Layers, and the loss in training."""

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        torch.manual_seed(1)
        width = WIDE if settings.wide else 8
        self.layers = nn.Sequential(nn.Linear(8, width), nn.Tanh(), nn.Linear(width, width), nn.Linear(width, 3))

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return poptorch.identity_loss(nn.functional.cross_entropy(self.layers(x), y), "none")


def chosen(settings: Settings) -> poptorch.Options:
    options = poptorch.Options()
    location = poptorch.TensorLocationSettings().minElementsForReplicatedTensorSharding(2)
    if settings.off_chip:
        location.useOnChipStorage(False)
    if settings.sharded:
        location.useReplicatedTensorSharding()
    options.TensorLocations.setOptimizerLocation(location)
    if settings.io_tiles:
        options.TensorLocations.numIOTiles(settings.io_tiles)
    if settings.schedule:
        options._Popart.set("pipelineSchedule", settings.schedule)
    return options


def values(module: nn.Module) -> Weights:
    return [parameter.detach().numpy().copy() for parameter in module.parameters()]


class PopTorch:
    """poptorch.trainingModel."""

    schedules = ("grouped", "interleaved", "sequential")

    def model(self, settings: Settings, options: poptorch.Options | None = None) -> tuple[Scored, Any]:
        module, options = Scored(settings), options or chosen(settings)
        options.replicationFactor(settings.replicas)
        options.Training.gradientAccumulation(8 // settings.replicas)
        if settings.schedule:
            options.setExecutionStrategy(BalancedPipeline(2))
        return module, poptorch.trainingModel(module, options, torch.optim.Adam(module.parameters(), 0.01))

    def train(self, settings: Settings) -> Weights:
        module, model = self.model(settings)
        model(X, Y)
        model.destroy()
        return values(module)

    def resumed(self, folder: Path) -> tuple[Weights, Weights]:
        """The weights of two steps, and of one step, a checkpoint, and one step of another layout."""
        module, model = self.model(Settings())
        with Checkpoints(folder) as checkpoints:
            model(X, Y)
            checkpoints.save(model.trained_state(), 1)
            model(X, Y)
        expected = values(module)
        module, model = self.model(Settings(schedule="grouped"))
        model.compile(X, Y)
        with Checkpoints(folder) as checkpoints:
            checkpoints.restore(model.trained_state())
        model(X, Y)
        return expected, values(module)

    def offline(self, file: Path, _: pytest.MonkeyPatch) -> tuple[Weights, Weights, Weights]:
        """The weights before and after a step, and after a step of an executable compiled without a device."""
        expected = self.train(Settings())
        self.model(Settings(), chosen(Settings()).useOfflineIpuTarget())[1].compileAndExport(str(file), X, Y)
        module, model = self.model(Settings())
        model.loadExecutable(str(file))
        model(X, Y)
        return values(Scored(Settings())), expected, values(module)


class Train:
    """ipu_emu.torch.train."""

    schedules = ("grouped", "interleaved", "sequential")

    def train(self, settings: Settings, *, offline: bool = False, **more: Any) -> Weights:
        module, options = Scored(settings), chosen(settings)
        if offline:
            options.useOfflineIpuTarget()
        ipu_emu.torch.train(
            module,
            None,
            torch.optim.Adam(module.parameters(), 0.01),
            (X, Y),
            batch_size=32,
            replicas=settings.replicas,
            accumulation=8 // settings.replicas,
            ipus=2 if settings.schedule else 1,
            shuffle=False,
            progress=False,
            options=options,
            **more,
        )
        return values(module)

    def resumed(self, folder: Path) -> tuple[Weights, Weights]:
        """The weights of two epochs, and of one epoch, a checkpoint, and one epoch of another layout."""
        expected = self.train(Settings(), epochs=2)
        self.train(Settings(), checkpoints=folder)
        return expected, self.train(Settings(schedule="grouped"), checkpoints=folder, epochs=2)

    def offline(self, file: Path, patch: pytest.MonkeyPatch) -> tuple[Weights, Weights, Weights]:
        """The weights before and after a step, and after a step of an executable compiled without a device."""
        expected = self.train(Settings())
        return compiled_before(lambda **offline: self.train(Settings(), **offline), file, patch, expected)
