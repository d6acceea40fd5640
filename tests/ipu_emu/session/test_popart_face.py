"""PopART in the table of front ends: each cell works; and the table is in the documentation."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ipu_emu import models, popart
from ipu_emu.hostio.checkpoint import Checkpoints
from tests.ipu_emu.helpers.front_ends import Settings, Weights, cells, check, table
from tests.ipu_emu.helpers.sessions import options

ROOT = Path(__file__).parents[3]
X, Y = np.random.default_rng(0).normal(size=(32, 8)).astype(np.float32), (np.arange(32) % 3).astype(np.int32)


def chosen(settings: Settings) -> popart.SessionOptions:
    opts = options(R=settings.replicas, A=8 // settings.replicas, numIOTiles=settings.io_tiles)
    states = opts.optimizerStateTensorLocationSettings
    if settings.off_chip:
        states.location.storage = popart.TensorStorage.OffChip
    if settings.sharded:
        states.location.replicatedTensorSharding = popart.ReplicatedTensorSharding.On
        states.minElementsForReplicatedTensorSharding = 2
    if settings.schedule:
        opts.virtualGraphMode, opts.enablePipelining = popart.VirtualGraphMode.Auto, True
        opts.pipelineSchedule = settings.schedule
    return opts


class PopART:
    """popart.TrainingSession."""

    schedules = ("popart", "grouped", "interleaved", "sequential")

    def session(self, settings: Settings, *, offline: bool = False) -> tuple[Any, models.Model]:
        width, tiles = (256, 1) if settings.wide else (8, 0)
        model, opts = models.mlp((8, width, width, 3), batch=4), chosen(settings)
        manager, ipus = popart.DeviceManager(), settings.replicas * (2 if settings.schedule else 1)
        device = (
            manager.createOfflineIPUDevice({"numIPUs": ipus})
            if offline
            else manager.acquireAvailableDevice(ipus, tiles)
        )
        flow, adam = popart.DataFlow(1, [model.loss]), popart.Adam({"defaultLearningRate": (0.01, False)})
        training = popart.TrainingSession(model.proto, flow, model.loss, adam, device, userOptions=opts)
        return training, model

    def step(self, session: Any, model: models.Model) -> None:
        session.run(popart.PyStepIO({model.data: X, model.labels: Y}, session.initAnchorArrays()))

    def prepared(self, settings: Settings) -> tuple[Any, models.Model]:
        session, model = self.session(settings)
        try:
            session.prepareDevice()
            session.weightsFromHost()
        except popart.popart_exception:
            session.deviceInfo.detach()
            raise
        return session, model

    def values(self, session: Any, model: models.Model) -> Weights:
        weights = {id: np.zeros_like(value) for id, value in model.graph.data.items() if value.dtype == np.float32}
        session.weightsToHost()
        session.readWeights(popart.PyWeightsIO(weights))
        session.close()
        return list(weights.values())

    def train(self, settings: Settings) -> Weights:
        session, model = self.prepared(settings)
        self.step(session, model)
        return self.values(session, model)

    def resumed(self, folder: Path) -> tuple[Weights, Weights]:
        """The weights of two steps, and of one step, a checkpoint, and one step of another layout."""
        session, model = self.prepared(Settings())
        with Checkpoints(folder) as checkpoints:
            self.step(session, model)
            checkpoints.save(session, 1)
            self.step(session, model)
        expected = self.values(session, model)
        session, model = self.prepared(Settings(schedule="grouped"))
        with Checkpoints(folder) as checkpoints:
            checkpoints.restore(session)
        self.step(session, model)
        return expected, self.values(session, model)

    def offline(self, file: Path, _: pytest.MonkeyPatch) -> tuple[Weights, Weights, Weights]:
        """The weights before and after a step, and after a step of an executable compiled without a device."""
        expected = self.train(Settings())
        before = self.values(*self.prepared(Settings()))
        self.session(Settings(), offline=True)[0].compileAndExport(str(file))
        session, model = self.session(Settings())
        session.loadExecutable(str(file))
        session.prepareDevice()
        session.weightsFromHost()
        self.step(session, model)
        return before, expected, self.values(session, model)


@pytest.mark.parametrize("name", [name for name, _ in cells("PopART")])
def test_a_cell_of_the_table_works(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check(name, PopART(), tmp_path, monkeypatch)


def test_the_table_is_in_the_documentation() -> None:
    assert table() in (ROOT / "docs/architecture.md").read_text()


def test_only_the_spine_makes_engines() -> None:
    def makes_one(path: Path) -> bool:
        text = path.read_text()
        tree = ast.parse(text if "Engine(" in text else "")
        calls = (node.func for node in ast.walk(tree) if isinstance(node, ast.Call))
        return any(getattr(call, "id", getattr(call, "attr", "")) == "Engine" for call in calls)

    files = {path.relative_to(ROOT).as_posix() for path in (ROOT / "ipu_emu").rglob("*.py") if makes_one(path)}
    assert files == {"ipu_emu/session/loaded_program.py"}
