"""Footprint: the memory of a training process, compared with its memory plan."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.helpers.mpi_jobs import PROGRAMS, ROOT

PROGRAM = PROGRAMS / "ipu_emu/process_memory.py"


@pytest.mark.parametrize("model", [pytest.param("resnet8", marks=pytest.mark.full), "transformer"])
def test_a_process_takes_little_more_than_its_plan(model: str) -> None:
    """At most 1.2 times the plan and 200 MB for the interpreter, the libraries and compiled kernels."""
    environ = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "HOME": os.environ.get("HOME", "/tmp")}
    command = [sys.executable, PROGRAM, model]
    done = subprocess.run(command, capture_output=True, text=True, env=environ, timeout=290, check=False)
    assert done.returncode == 0, done.stderr
    plan, resident = map(int, done.stdout.split())
    assert resident < 1.2 * plan + 200e6, f"plan {plan / 1e6:.0f} MB, resident {resident / 1e6:.0f} MB"
