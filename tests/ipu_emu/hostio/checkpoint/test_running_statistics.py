"""Running statistics in models and checkpoints are those of the first replica, on every instance."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import onnx
import pytest
from onnx import numpy_helper

from tests.helpers.mpi_jobs import ROOT
from tests.helpers.warm_processes import EMULATOR, warm_python

PROGRAM = ROOT / "tests" / "ipu_emu" / "helpers" / "running_statistics_job.py"


def run(folder: Path, instances: int) -> dict[str, bytes]:
    """The files of a job of four replicas."""
    folder.mkdir()
    shape = ["--print-topology", "no", "--num-instances", str(instances), "--num-replicas", "4"]
    command = [str(Path(sys.executable).with_name("poprun-py")), *shape, *warm_python(*EMULATOR)]
    command += [str(PROGRAM), str(folder)]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, env=environment, timeout=120, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return {path.name: path.read_bytes() for path in folder.glob("*.onnx")}


@pytest.fixture(scope="module")
def single(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    return run(tmp_path_factory.mktemp("one") / "job", 1)


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    return run(tmp_path_factory.mktemp("two") / "job", 2)


def test_every_instance_saves_the_same_bytes(single: dict[str, bytes], two: dict[str, bytes]) -> None:
    assert two["0.onnx"] == two["1.onnx"] == single["0.onnx"]
    saved = onnx.load_model_from_string(two["0.onnx"]).graph.initializer
    assert any(numpy_helper.to_array(p).any() for p in saved if p.name == "mean")


def test_one_instance_may_save_alone(single: dict[str, bytes], two: dict[str, bytes]) -> None:
    assert two["alone.onnx"] == single["alone.onnx"] != two["0.onnx"]


def test_a_checkpoint_restores_them_on_every_instance(single: dict[str, bytes], two: dict[str, bytes]) -> None:
    assert two["0.restored.onnx"] == two["1.restored.onnx"] == single["0.restored.onnx"] == single["0.onnx"]
