"""Measured job: the prediction from an executable is that of the network that was compiled."""

from __future__ import annotations

from pathlib import Path

import pytest

from ipu_emu.cli.arguments.compile_model import CompileRequest
from ipu_emu.cli.arguments.measured_job import on_pods
from ipu_emu.compiler.cache.executable_cache import save_executable
from ipu_emu.errors import EmulatorError
from ipu_emu.hardware import System
from ipu_emu.predict import Job, predict, shipped


@pytest.mark.parametrize("strong", [False, True])
def test_an_executable_is_predicted_like_its_network(tmp_path: Path, strong: bool) -> None:
    tmp_path.chmod(0o700)
    for batch, training in ((64, True), (128, False)):
        compiled = CompileRequest("mlp", batch=batch, accumulation=2, training=training).compiled(System.pod(16))
        save_executable(compiled.executable, tmp_path / f"{batch}.ipuexe")
    points = on_pods(tmp_path, "train.py", strong=strong)
    assert [point.ipus for point in points] == [1, 2, 4, 8, 16, 32, 64]
    job = points[0].prediction.job
    assert (job.batch, job.accumulation, job.training, job.optimiser) == (64, 2, True, "sgd")
    assert [point.prediction.job.batch for point in points][-1] == (1 if strong else 64)
    named = predict(Job("mlp", System.pod(16), batch=64, accumulation=2, dtype=job.dtype), shipped())
    assert points[0].prediction.throughput == pytest.approx(named.throughput, rel=0.15)


def test_without_executables_there_is_no_prediction(tmp_path: Path) -> None:
    with pytest.raises(EmulatorError, match="compiled nothing for IPUs"):
        on_pods(tmp_path, "train.py", strong=False)
