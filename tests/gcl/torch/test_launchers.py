"""Programs of PyTorch over gcl under mpirun and poprun-py, whose ranks meet over MPI."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed; scripts/test --with-torch adds it")

from tests.helpers.mpi_jobs import PROGRAMS, ROOT
from tests.helpers.warm_processes import WITH_PYTORCH, warm_python

pytestmark = pytest.mark.torch

BIN = Path(sys.executable).parent
LAUNCHERS = {
    "mpirun": [BIN / "mpirun", "-n", "2"],
    "poprun-py": [BIN / "poprun-py", "--num-instances", "2", "--num-replicas", "2"],
}


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_ranks_meet_under(launcher):
    command = [
        *map(str, LAUNCHERS[launcher]),
        *warm_python(*WITH_PYTORCH),
        str(PROGRAMS / "gcl" / "torch_launched.py"),
    ]
    environ = os.environ | {"WARM_WHOLE_END": "1"}  # also PyTorch's libraries are cleared when the ranks end
    ended = subprocess.run(command, capture_output=True, text=True, timeout=100, cwd=ROOT, env=environ, check=False)
    assert ended.returncode == 0, ended.stderr
    assert sorted(re.findall(r"rank \d of \d: \S+", ended.stdout)) == ["rank 0 of 2: 3", "rank 1 of 2: 3"]
