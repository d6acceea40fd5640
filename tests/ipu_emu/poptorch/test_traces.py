"""Traces of PopTorch programs: steps, phases, and a profile of each model."""

from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed; scripts/test --with-torch adds it")

import ipu_emu.poptorch as poptorch  # noqa: E402
from ipu_emu import trace  # noqa: E402
from ipu_emu.trace import read_run  # noqa: E402
from ipu_emu.trace.findings import analyse  # noqa: E402
from ipu_emu.trace.program_profiles import read_profiles  # noqa: E402
from popdist_py.trace import PROFILE_SUFFIX  # noqa: E402

pytestmark = pytest.mark.torch


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 4)

    def forward(self, x, y=None):
        out = self.layer(x)
        return out if y is None else (out, torch.nn.functional.mse_loss(out, y))


def test_a_report_has_the_steps_and_both_programs(tmp_path):
    trace.start(tmp_path)
    try:
        module, x = Model(), torch.ones(2, 4)
        training = poptorch.trainingModel(module)
        for _ in range(3):
            training(x, x)
        poptorch.inferenceModel(module)(x)
    finally:
        trace.stop()
    (use,) = analyse(read_run(tmp_path)).uses
    assert use.steps == 4
    assert {"compute", "compilation", "initialisation", "weight loading"} <= use.categories.keys()
    profiles = read_profiles(tmp_path).programs
    assert sorted(profile["name"] for profile in profiles) == ["inference", "training"]
    assert all(profile["instructions"] and profile["memory"] for profile in profiles)


def test_profiles_are_next_to_cached_and_saved_programs(tmp_path):
    cache, saved, x = tmp_path / "cache", tmp_path / "model.poptorch", torch.ones(2, 4)
    trace.start(tmp_path / "run")
    try:
        inference = poptorch.inferenceModel(Model(), poptorch.Options().enableExecutableCaching(str(cache)))
        inference(x)
        exported = poptorch.inferenceModel(Model())
        exported.compileAndExport(str(saved), x)
    finally:
        trace.stop()
    (executable,) = cache.glob("*.ipuexe")
    files = [f"{path}{PROFILE_SUFFIX}" for path in (executable, saved)]
    assert all(Path(file).is_file() for file in files)
    assert not list((tmp_path / "run").glob(f"*{PROFILE_SUFFIX}"))
    run = read_run(tmp_path / "run")
    assert sorted(run.profiles) == sorted(files)
    assert [program["phase"] for program in read_profiles(run.folder, run.profiles).programs] == ["inference"]
