"""Programs for PopART, written as its users write them, run unchanged; each checks its own results."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from ipu_emu.ops.codegen.llvm_compiler import KERNEL_CACHE, kernel_folder
from tests.helpers.mpi_jobs import PROGRAMS, ROOT
from tests.helpers.warm_processes import EMULATOR, warm_python


def compat() -> list[str]:
    """The command that runs a program for PopART, in a process that has imported the emulator."""
    return [*warm_python(*EMULATOR), "-m", "ipu_emu.compat"]


def test_a_plain_mpirun_is_said_once(tmp_path: Path) -> None:
    """The program creates two sessions in each of two processes."""
    ended = run(tmp_path, "mpirun", "-n", "2", *compat(), str(PROGRAMS / "popart" / "inference.py"))
    assert ended.stdout.split() == ["done", "done"]
    assert ended.stderr.count("start it with poprun-py --num-instances 2 --num-replicas 2") == 1


def said(folder: Path, *command: str) -> list[str]:
    return run(folder, *command).stdout.split()


def run(folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    environ = {"PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin", "PYTHONPATH": str(ROOT), "HOME": str(folder)}
    environ[KERNEL_CACHE] = str(kernel_folder() or "")
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, timeout=290, check=False, env=environ)
    assert done.returncode == 0, done.stdout + done.stderr
    return done


@pytest.mark.parametrize("name", ["mnist", "inference", "callbacks", "adam", "two_ipus", "replicated"])
def test_a_program(name: str, tmp_path: Path) -> None:
    assert said(tmp_path, *compat(), str(PROGRAMS / "popart" / f"{name}.py")) == ["done"]


@pytest.mark.parametrize("name", ["replicated", "groups"])
def test_replicas_over_instances(name: str, tmp_path: Path) -> None:
    launcher = ("poprun-py", "--print-topology", "no", "--num-instances", "2", "--num-replicas", "4")
    words = said(tmp_path, *launcher, *compat(), str(PROGRAMS / "popart" / f"{name}.py"))
    assert sorted(words) == ["[1,0]<stdout>:done", "[1,1]<stdout>:done"]
