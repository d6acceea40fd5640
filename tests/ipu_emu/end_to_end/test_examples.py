"""Examples: each runs as a user would run it, and does what it says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers.mpi_jobs import ROOT

EXAMPLES = ROOT / "examples"
LAUNCHER = ("poprun-py", "--print-topology", "no", "--only-output-from-instance", "0")


def run(*command: str) -> str:
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("POPDIST_", "IPU_EMU_"))}
    environ |= {"PYTHONPATH": str(ROOT), "PATH": f"{Path(sys.executable).parent}:{environ.get('PATH', '')}"}
    done = subprocess.run(command, capture_output=True, text=True, env=environ, timeout=290, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("arguments", [(), ("--replicas", "2", "--accumulation", "2")])
def test_mnist_recognises_digits(arguments: tuple[str, ...]) -> None:
    found = re.search(r"recognised ([\d.]+)%", run(sys.executable, str(EXAMPLES / "mnist.py"), *arguments))
    assert found is not None
    assert float(found.group(1)) > 95


def test_hello_adds_over_all_replicas() -> None:
    job = ("poprun-py", "--print-topology", "no", "--num-instances", "2", "--num-replicas", "4")
    said = run(*job, sys.executable, str(EXAMPLES / "hello.py"))
    for first in (0, 2):
        assert f"replicas {[first, first + 1]} have {[[6.0] * 3] * 2}" in said


def test_line_finds_the_numbers_whatever_the_layout() -> None:
    found = set()
    for instances in ("1", "4"):
        job = (*LAUNCHER, "--num-instances", instances, "--num-replicas", "4")
        said = run(*job, sys.executable, str(EXAMPLES / "line.py"))
        found.add(said.split("weights ")[1])
    assert len(found) == 1
    assert [round(float(word), 3) for word in found.pop().split()] == list(range(8))


def test_local_replication() -> None:
    said = run(sys.executable, str(EXAMPLES / "replication.py"))
    assert said == "replicas 0 to 1 of 2 saw [1.0, 2.0]; w is -3\n"


def test_global_replication() -> None:
    """4 instances of 2 replicas: the second of them has offset 2."""
    job = ("poprun-py", "--print-topology", "no", "--num-instances", "4", "--num-replicas", "8")
    said = run(*job, sys.executable, str(EXAMPLES / "replication.py"))
    for first in (0, 2, 4, 6):
        saw = [float(first + 1), float(first + 2)]
        assert f"replicas {first} to {first + 1} of 8 saw {saw}; w is -36" in said


def test_characters_learns_and_does_not_depend_on_the_layout() -> None:
    script = str(EXAMPLES / "characters.py")
    alone = run(sys.executable, script, "--replicas", "2", "--steps", "10")
    losses = [float(value) for value in re.findall(r"loss ([\d.]+)", alone)]
    assert losses[-1] < 3.2  # log of 96 characters is 4.56
    job = (*LAUNCHER, "--num-instances", "2", "--num-replicas", "2")
    spread = run(*job, sys.executable, script, "--steps", "10")
    assert alone.split("def ")[-1].strip() in spread


@pytest.mark.parametrize("replicas", ["1", "2"])
def test_a_resnet_of_pytorch_learns(replicas: str) -> None:
    pytest.importorskip("torch")
    said = run(sys.executable, str(EXAMPLES / "resnet.py"), "--replicas", replicas)
    right = [float(value) for value in re.findall(r"([\d.]+)% right", said)]
    assert right[0] < 90 < 95 < right[-1]


def test_a_resnet_without_pytorch_is_one_message(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("raise ImportError")
    environ = {"PATH": os.environ["PATH"], "PYTHONPATH": f"{tmp_path}:{ROOT}"}
    command = (sys.executable, str(EXAMPLES / "resnet.py"))
    done = subprocess.run(command, capture_output=True, text=True, env=environ, timeout=290, check=False)
    assert done.returncode == 1
    assert done.stderr == (
        "examples/resnet.py writes its model with PyTorch, which is not installed; install torch, or name an "
        "ONNX file with --model\n"
    )


def test_a_pipeline_computes_what_one_ipu_does() -> None:
    script = str(EXAMPLES / "pipeline.py")
    said = {run(sys.executable, script, *flags) for flags in ((), ("--plain",), ("--schedule", "interleaved"))}
    assert len(said) == 1
    first, last = (float(value) for value in re.findall(r"loss ([\d.]+)", said.pop()))
    assert last < first / 10


def test_bytes_become_the_same_floats_on_the_device() -> None:
    losses = []
    for how in ((), ("--bytes", "--io-tiles", "32")):
        said = run(sys.executable, str(EXAMPLES / "images.py"), "--steps", "10", "--batch", "8", *how)
        found = re.search(r"step +10 +loss +([\d.]+)", said)
        assert found is not None
        losses.append(float(found.group(1)))
    assert losses[0] == pytest.approx(losses[1], abs=2e-3)
    assert losses[0] < 1.4
