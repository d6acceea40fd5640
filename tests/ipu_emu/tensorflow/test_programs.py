"""Whole programs: the published listings unchanged, and training by several instances, as users start them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from ipu_emu.cli import main
from ipu_emu.cli.arguments.traced_program import TracedProgram
from ipu_emu.ops.codegen.llvm_compiler import KERNEL_CACHE, kernel_folder
from tests.helpers.mpi_jobs import ROOT
from tests.helpers.network_namespaces import hosts, needs_hosts
from tests.helpers.warm_processes import EMULATOR, warm_python
from tests.poprun_py.helpers.several_hosts import Job

EXAMPLES = ROOT / "examples" / "tensorflow"
TRAINING = ROOT / "tests" / "programs" / "tensorflow" / "training.py"


def compat() -> list[str]:
    """The command that runs a program for IPUs, in a process that has already imported TensorFlow."""
    return [*warm_python("tensorflow", "tf_keras", "ipu_emu.tensorflow", *EMULATOR), "-m", "ipu_emu.compat"]


def start(*command: Any, folder: Path) -> subprocess.Popen[str]:
    environ = os.environ | {"PYTHONPATH": str(ROOT), "TF_CPP_MIN_LOG_LEVEL": "3"}
    environ |= {"PATH": f"{Path(sys.executable).parent}:{environ['PATH']}", KERNEL_CACHE: str(kernel_folder() or "")}
    pipe = subprocess.PIPE
    return subprocess.Popen([*map(str, command)], text=True, stdout=pipe, stderr=pipe, cwd=folder, env=environ)


def output(process: subprocess.Popen[str]) -> str:
    out, err = process.communicate(timeout=280)
    assert process.returncode == 0, err[-3000:]
    return out


def poprun(instances: int, replicas: int, *command: Any, ipus: int = 1) -> list[Any]:
    launcher = (Path(sys.executable).parent / "poprun-py", "--num-instances", instances, "--num-replicas", replicas)
    return [*launcher, "--ipus-per-replica", ipus, *compat(), *command]


def test_the_listings_run_as_they_were_published(tensorflow: Any, tmp_path: Path) -> None:
    listings = ("sharding_tf1.py", "inference_tf1.py", "training_tf1.py")
    running = {name: start(*compat(), EXAMPLES / name, folder=tmp_path) for name in listings}
    printed = {name: output(process) for name, process in running.items()}
    assert printed["sharding_tf1.py"] == "[array([ 4., 14.], dtype=float32)]\n"


def test_a_listing_runs_in_several_instances(tensorflow: Any, tmp_path: Path) -> None:
    printed = output(start(*poprun(2, 2, EXAMPLES / "sharding_tf1.py"), folder=tmp_path))
    assert printed.count("[array([ 4., 14.], dtype=float32)]") == 2


def results(folder: Path, instances: int) -> dict[str, Any]:
    """The losses of all replicas, and the weights of each instance, of a training job."""
    files = [np.load(folder / f"{number}.npz") for number in range(instances)]
    losses = np.concatenate([file["losses"] for file in files], axis=1)
    return {"losses": losses, **{f"{key}{n}": file[key] for n, file in enumerate(files) for key in ("w", "weights")}}


def assert_equal_jobs(layouts: list[int], folder: Path) -> None:
    """The same bits, whatever number of instances share four replicas of two IPUs; dropout is part of the model.

    All but the first divide the states of the optimizer between replicas.
    """
    running = {}
    for instances in layouts:
        (folder / str(instances)).mkdir()
        sharded = ["sharded"] if running else []
        command = poprun(instances, 4, TRAINING, folder / str(instances), 2, *sharded, ipus=2)
        running[instances] = start(*command, folder=folder)
    for process in running.values():
        output(process)
    expected = results(folder / str(layouts[0]), layouts[0])
    for instances in layouts[1:]:
        assert_equal_results(results(folder / str(instances), instances), expected)


def assert_equal_results(actual: dict[str, Any], expected: dict[str, Any]) -> None:
    """The losses of all replicas, and the weights of each instance, are those of the only instance of another job."""
    assert len(np.unique(expected["losses"])) > 40
    np.testing.assert_array_equal(actual["losses"], expected["losses"])
    for key, value in actual.items():
        if key != "losses":
            np.testing.assert_array_equal(value, expected[f"{key.rstrip('0123456789')}0"])


def test_training_has_the_same_bits_in_one_and_in_two_instances(tensorflow: Any, tmp_path: Path) -> None:
    assert_equal_jobs([1, 2], tmp_path)


@pytest.mark.full
@needs_hosts
def test_training_has_the_same_bits_on_two_hosts(tensorflow: Any, tmp_path: Path) -> None:
    """An instance of two replicas on each of two hosts, and all four replicas in one instance."""
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    output(start(*poprun(1, 4, TRAINING, tmp_path / "one", 2, ipus=2), folder=tmp_path))
    program = (sys.executable, "-m", "ipu_emu.compat", TRAINING, tmp_path / "two", 2)
    with hosts(2, tmp_path) as where:
        layout = ("--num-instances", 2, "--num-replicas", 4, "--ipus-per-replica", 2)
        job = Job(
            where,
            ["--host", ",".join(where.names), *map(str, (*layout, *program))],
            {"TF_CPP_MIN_LOG_LEVEL": "3", KERNEL_CACHE: str(kernel_folder() or "")},
        )
        code, _, err = job.finish(280)
        job.end()
    assert code == 0, err[-3000:]
    assert_equal_results(results(tmp_path / "two", 2), results(tmp_path / "one", 1))


def test_commands_compile_a_program_without_running_it(tensorflow: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The program runs, until its first compiled function would, once for all commands."""
    monkeypatch.setenv(KERNEL_CACHE, str(kernel_folder() or ""))
    monkeypatch.setattr(TracedProgram, "of", cache(TracedProgram.of))

    def said(command: str, *options: str) -> str:
        done = CliRunner().invoke(main, [command, str(EXAMPLES / "training_tf1.py"), *options])
        assert done.exit_code == 0, done.output
        return done.stdout

    assert [ipu["fits"] for ipu in json.loads(said("memory", "--format", "json"))["ipus"]] == [True] * 4
    listing = said("compile", "--stop-after", "form-stages")
    assert "training, 8 accumulated, 4 IPUs per replica, grouped pipeline" in listing
    assert "IPU 3  stage 3" in listing
    assert "copies between IPUs" in said("clock")
    slots = json.loads(said("schedule", "--format", "json"))
    tasks = {(task["what"], task["stage"]) for slot in slots for task in slot}
    assert (len(slots), max(stage for _, stage in tasks)) == (8 + 2 * 4 - 1, 2 * 4 - 1)
    done = CliRunner().invoke(main, ["schedule", str(EXAMPLES / "training_tf1.py"), "--stages", "2"])
    assert "--stages: the program" in done.stderr


def test_a_program_that_compiles_nothing_is_named(tensorflow: Any, tmp_path: Path) -> None:
    (tmp_path / "idle.py").write_text("raise SystemExit('no data')")
    process = start("ipu-emu", "memory", "idle.py", folder=tmp_path)
    _, err = process.communicate(timeout=200)
    assert process.returncode != 0
    assert "idle.py ended with code 1 before it ran a compiled function:\nno data" in err


def test_a_strategy_trains_the_weights_of_the_first_instance(tensorflow: Any, tmp_path: Path) -> None:
    program = TRAINING.with_name("strategy.py")
    output(start(*poprun(2, 4, program, tmp_path), folder=tmp_path))
    first, second = (np.load(tmp_path / f"{number}.npz") for number in range(2))
    for name in ("before", "w", "more"):
        np.testing.assert_array_equal(first[name], second[name])
    np.testing.assert_array_equal(first["more"], np.random.default_rng(0).normal(size=(6, 3)).astype(np.float32))
    for file in (first, second):
        assert [file[f"named{number}"] for number in range(6)] == [0, 1, 2, 3, 4, 5]
        assert str(file["mistake"]).startswith(
            "Instances wait in different host collectives: instance 0 in loss of 0; instance 1 in loss of 1; give"
        )
        assert file["ranks"] == file["after"] == 1  # a failed collective does not affect later ones
    data, w = np.random.default_rng(0).normal(size=(6, 4, 4, 3)).astype(np.float32), first["before"]
    for number, batch in enumerate(data):
        errors = batch @ w - 1
        np.testing.assert_allclose(first["losses"][number], (errors**2).mean(), rtol=1e-5)
        w = w - 0.02 * np.einsum("rbi,rbo->io", batch, errors * 2 / 8)
    np.testing.assert_allclose(first["w"], w, rtol=1e-5)


@pytest.mark.full
def test_training_has_the_same_bits_in_four_instances(tensorflow: Any, tmp_path: Path) -> None:
    assert_equal_jobs([1, 4], tmp_path)


@pytest.mark.full
def test_all_listings_run_in_two_instances_of_two_replicas(tensorflow: Any, tmp_path: Path) -> None:
    for name in ("inference_tf1.py", "training_tf1.py"):
        output(start(*poprun(2, 4, EXAMPLES / name), folder=tmp_path))
