"""Examples: each runs as a user runs it, with the described result; variants run within the test process."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from ipu_emu.trace import read_run
from ipu_emu.trace.findings import Cause, analyse
from popdist_py import trace
from tests.helpers.mpi_jobs import ROOT
from tests.helpers.warm_processes import EMULATOR, warm_python
from tests.ipu_emu.helpers.example_runs import ExampleMain, example_main

__all__ = ["example_main"]

EXAMPLES = ROOT / "examples"
LAUNCHER = ("poprun-py", "--print-topology", "no", "--only-output-from-instance", "0")


def run(*command: str) -> str:
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("POPDIST_", "IPU_EMU_"))}
    environ |= {"PYTHONPATH": str(ROOT), "PATH": f"{Path(sys.executable).parent}:{environ.get('PATH', '')}"}
    done = subprocess.run(command, capture_output=True, text=True, env=environ, timeout=290, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def recognised(said: str) -> float:
    match = re.search(r"recognised ([\d.]+)%", said)
    assert match is not None
    return float(match.group(1))


def test_mnist_recognises_digits() -> None:
    assert recognised(run(sys.executable, str(EXAMPLES / "mnist.py"))) > 95


def test_mnist_recognises_digits_on_two_replicas(example_main: ExampleMain) -> None:
    assert recognised(example_main("mnist.py", "--replicas", 2, "--accumulation", 2)) > 95


def test_hello_adds_over_all_replicas() -> None:
    job = ("poprun-py", "--print-topology", "no", "--num-instances", "2", "--num-replicas", "4")
    said = run(*job, *warm_python(*EMULATOR), str(EXAMPLES / "hello.py"))
    for first in (0, 2):
        assert f"replicas {[first, first + 1]} have {[[6.0] * 3] * 2}" in said


def test_line_finds_the_numbers_whatever_the_layout() -> None:
    texts = set()
    for instances in ("1", "4"):
        job = (*LAUNCHER, "--num-instances", instances, "--num-replicas", "4")
        said = run(*job, *warm_python(*EMULATOR), str(EXAMPLES / "line.py"))
        texts.add(said.split("weights ")[1])
    assert len(texts) == 1
    assert [round(float(word), 3) for word in texts.pop().split()] == list(range(8))


def test_local_replication(example_main: ExampleMain) -> None:
    said = example_main("replication.py")
    assert said == "replicas 0 to 1 of 2 saw [1.0, 2.0]; w is -3\n"


def test_global_replication() -> None:
    """4 instances of 2 replicas: the second of them has offset 2."""
    job = ("poprun-py", "--print-topology", "no", "--num-instances", "4", "--num-replicas", "8")
    said = run(*job, *warm_python(*EMULATOR), str(EXAMPLES / "replication.py"))
    for first in (0, 2, 4, 6):
        saw = [float(first + 1), float(first + 2)]
        assert f"replicas {first} to {first + 1} of 8 saw {saw}; w is -36" in said


def test_characters_learns_and_does_not_depend_on_the_layout(example_main: ExampleMain) -> None:
    script = str(EXAMPLES / "characters.py")
    alone = example_main("characters.py", "--replicas", 2, "--steps", 10)
    losses = [float(value) for value in re.findall(r"loss ([\d.]+)", alone)]
    assert losses[-1] < 3.2  # log of 96 characters is 4.56
    job = (*LAUNCHER, "--num-instances", "2", "--num-replicas", "2")
    spread = run(*job, *warm_python(*EMULATOR), script, "--steps", "10")
    assert alone.split("def ")[-1].strip() in spread


@pytest.mark.parametrize("replicas", [pytest.param(1, marks=pytest.mark.full), 2])
def test_a_resnet_of_pytorch_learns(replicas: int, example_main: ExampleMain) -> None:
    pytest.importorskip("torch")
    said = example_main("resnet.py", "--replicas", replicas)
    right = [float(value) for value in re.findall(r"([\d.]+)% right", said)]
    assert right[0] < 90 < 95 < right[-1]


def test_a_resnet_without_pytorch_is_one_message(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("raise ImportError")
    environ = {"PATH": os.environ["PATH"], "PYTHONPATH": f"{tmp_path}:{ROOT}"}
    command = (sys.executable, str(EXAMPLES / "resnet.py"))
    done = subprocess.run(command, capture_output=True, text=True, env=environ, timeout=290, check=False)
    assert done.returncode == 1
    assert done.stderr == (
        "examples/resnet.py exports its model with PyTorch, which is not installed; install torch, or name an "
        "ONNX file with --model\n"
    )


def test_a_pipeline_computes_what_one_ipu_does(example_main: ExampleMain) -> None:
    said = {run(*warm_python(*EMULATOR), str(EXAMPLES / "pipeline.py"))}
    said |= {example_main("pipeline.py", *flags) for flags in (("--plain",), ("--schedule", "interleaved"))}
    assert len(said) == 1
    first, last = (float(value) for value in re.findall(r"loss ([\d.]+)", said.pop()))
    assert last < first / 10


def test_bytes_become_the_same_floats_on_the_device(example_main: ExampleMain) -> None:
    losses, script, size = [], str(EXAMPLES / "images.py"), ("--steps", "10", "--batch", "8")
    for said in (
        run(*warm_python(*EMULATOR), script, *size),
        example_main("images.py", *size, "--bytes", "--io-tiles", "32"),
    ):
        match = re.search(r"step +10 +loss +([\d.]+)", said)
        assert match is not None
        losses.append(float(match.group(1)))
    assert losses[0] == pytest.approx(losses[1], abs=2e-3)
    assert losses[0] < 1.4


def test_turned_digits_wait_for_data_unless_they_are_turned_ahead(example_main: ExampleMain, tmp_path: Path) -> None:
    steps, waited = 20, []
    for turn in ("feed", "ahead"):
        trace.start(tmp_path / turn)
        try:
            example_main("turned_digits.py", "--turn", turn, "--steps", steps)
        finally:
            trace.stop()
        analysis = analyse(read_run(tmp_path / turn))
        (process,) = analysis.run.instances  # without the workers of the feed
        names = [process.trace.names[int(number)].name for number in process.spans["name"]]
        assert names.count("hand over data") == names.count("step") == steps
        assert names.count("wait for data") >= steps
        waited.append(analysis.uses[0].stepping.get("data preparation", 0.0))
        if turn == "feed":
            assert analysis.findings[0].cause is Cause.DATA
    assert waited[1] < waited[0] / 2
