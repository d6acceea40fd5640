"""Random kills: whichever process of a job dies, the job ends soon, reports why and leaves nothing behind."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from tests.helpers.isolation import unavailable
from tests.helpers.mpi_jobs import ROOT


@pytest.mark.skipif(bool(unavailable()), reason=unavailable())
def test_five_random_kills_end_as_promised(mpi):
    module = "tests.poprun_py.helpers.random_kills"
    # "gone soon" is not measured here, where other tests use the same cores and the machine may stand still
    command = [sys.executable, "-m", module, "--count", "5", "--mpi", mpi, "--promised", "60"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"^5 kills with seed \d+: 0 not as promised", done.stdout, re.MULTILINE)
