"""Profiles of traced sessions: next to cached, saved or loaded executables, and of checkpoints."""

from __future__ import annotations

import io
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from ipu_emu import models, popart, trace
from ipu_emu.cli.output.run_report.report_text import report_text
from ipu_emu.hostio.checkpoint import Checkpoints
from ipu_emu.trace import read_run
from ipu_emu.trace.findings import analyse
from ipu_emu.trace.report_data import report_data
from popdist_py.environment import EXECUTABLE_CACHE_PATH
from popdist_py.trace import PROFILE_SUFFIX
from tests.ipu_emu.helpers.sessions import device, options


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    trace.start(tmp_path / "run")
    yield tmp_path / "run"
    trace.stop()


def session(*, prepared: bool = True, **values: Any) -> Any:
    model = models.mlp((6, 5, 3), batch=4)
    opts = options(**values)
    flow = popart.DataFlow(1, [model.loss])
    optimizer = popart.SGD({"defaultLearningRate": (0.1, False), "defaultMomentum": (0.9, False)})
    training = popart.TrainingSession(model.proto, flow, model.loss, optimizer, device(opts), userOptions=opts)
    if prepared:
        training.prepareDevice()
        training.weightsFromHost()
    return training, model


def run(training: Any, model: models.Model) -> None:
    data = {model.data: np.ones((4, 6), np.float32), model.labels: np.array([0, 1, 2, 1], np.int32)}
    training.run(popart.PyStepIO(data, training.initAnchorArrays()))


def profiles(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob(f"*{PROFILE_SUFFIX}"))


def text(folder: Path) -> str:
    console = Console(width=200, record=True, markup=False, file=io.StringIO())
    console.print(report_text(report(folder)))
    return console.export_text()


def report(folder: Path) -> dict[str, Any]:
    return report_data(analyse(read_run(folder)))


def test_a_cached_executable_has_its_profile_next_to_it(folder: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    for _ in range(2):
        session(enableEngineCaching=True, cachePath=str(cache))[0].close()
        (executable,) = cache.glob("*.ipuexe")
        assert profiles(cache) == [executable.name + PROFILE_SUFFIX]
        assert not profiles(folder)
    (program,) = report(folder)["programs"]
    assert (program["name"], program["phase"]) == ("training", "training")
    assert program["file"] == str(cache / profiles(cache)[0])


def test_the_profile_outlives_the_folder_of_executables_of_a_job(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = tmp_path / "job"
    monkeypatch.setenv(EXECUTABLE_CACHE_PATH, str(cache))
    session(enableEngineCaching=True, cachePath=str(cache))[0].close()
    assert len(profiles(cache)) == len(profiles(folder)) == 1
    assert len(report(folder)["programs"]) == 1
    shutil.rmtree(cache)
    shown = report(folder)
    assert [program["phase"] for program in shown["programs"]] == ["training"]
    assert not [note for note in shown["notes"] if "profile" in note]


def test_a_saved_executable_includes_the_profile(folder: Path, tmp_path: Path) -> None:
    training, _ = session()
    assert len(profiles(folder)) == 1
    (tmp_path / "saved").mkdir()
    training.saveExecutable(str(tmp_path / "saved"))
    assert profiles(folder) == []
    assert profiles(tmp_path / "saved") == ["executable.popef" + PROFILE_SUFFIX]
    training.close()
    (tmp_path / "saved" / profiles(tmp_path / "saved")[0]).unlink()
    loaded, _ = session(prepared=False)
    loaded.loadExecutable(str(tmp_path / "saved"))
    loaded.prepareDevice()
    assert profiles(tmp_path / "saved") == ["executable.popef" + PROFILE_SUFFIX]
    loaded.close()
    assert len(report(folder)["programs"]) == 1


def test_an_executable_without_a_trace_has_no_profile(tmp_path: Path) -> None:
    training, _ = session(enableEngineCaching=True, cachePath=str(tmp_path))
    training.saveExecutable(str(tmp_path / "saved"))
    training.close()
    assert not profiles(tmp_path)


def test_a_checkpoint_has_a_profile_and_a_section_of_the_report(folder: Path, tmp_path: Path) -> None:
    training, model = session()
    engine, saved = training.engine, 3
    with Checkpoints(tmp_path / "checkpoints", keep=1) as checkpoints:
        for step in range(saved):
            run(training, model)
            checkpoints.save(training, step + 1)
    training.close()
    section = report(folder)["checkpointing"]
    rows = {row["tensor"]: row for row in section["copies"]}
    tensors = {t.id: t for t in engine.executable.graph.tensors.values() if t.id in rows}
    assert {tensor.role.value for tensor in tensors.values()} >= {"weight", "state"}
    for id, row in rows.items():
        assert (row["phase"], row["calls"], row["ipu"]) == ("save a checkpoint", saved, 0)
        assert row["bytes"] == engine.view(id).nbytes
        assert 0 < row["seconds"] < 1
        assert row["modelled_seconds"] > 0
    assert section["bytes_copied"] == saved * sum(engine.view(id).nbytes for id in rows)
    sections = {row["section"]: row for row in section["sections"]}
    assert sections.keys() == rows.keys() | {"(header)"}
    assert all(row["calls"] == saved for row in sections.values())
    (file,) = (tmp_path / "checkpoints").rglob("*.safetensors")
    assert sum(row["bytes"] for row in sections.values()) == file.stat().st_size
    assert section["bytes_written"] == saved * file.stat().st_size
    (program,) = section["programs"]
    assert (program["phase"], program["bytes"]) == ("checkpointing", section["bytes_copied"] / saved)
    assert [program["phase"] for program in report(folder)["programs"]] == ["training"]
    said = text(folder)
    for part in ("weights to the host: ", ", all instances", "a copy [us]", "sections of checkpoints: ", "(header)"):
        assert part in said


def test_weights_that_are_read_back_are_what_the_engine_copied(folder: Path) -> None:
    training, model = session()
    run(training, model)
    for _ in range(2):
        training.weightsToHost()
    variables = [id for id, tensor in training.executable.graph.tensors.items() if tensor.role.is_variable]
    copied = {id: training.engine.view(id).nbytes for id in variables}
    training.close()
    section = report(folder)["checkpointing"]
    assert {row["tensor"]: row["bytes"] for row in section["copies"]} == copied
    assert {(row["phase"], row["calls"]) for row in section["copies"]} == {("weights to the host", 2)}
    assert not section["sections"]
    assert [program["name"] for program in section["programs"]] == ["training: weights to the host"]
