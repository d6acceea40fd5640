"""Codec: an executable with every kind of instruction, saved by one process, computes the same bits in another."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from ipu_emu.program.instructions import INSTRUCTIONS
from tests.helpers.mpi_jobs import PROGRAMS, ROOT
from tests.helpers.warm_processes import EMULATOR, warm_python

PROGRAM = str(PROGRAMS / "ipu_emu/every_instruction.py")


def said(folder: Path) -> list[str]:
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("POPART", "POPDIST"))}
    environ |= {"PYTHONPATH": str(ROOT), "POPART_CACHE_DIR": str(folder)}
    command = [*warm_python(*EMULATOR), PROGRAM]
    done = subprocess.run(command, capture_output=True, text=True, env=environ, timeout=250, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_every_kind_of_instruction_survives_a_file(tmp_path: Path) -> None:
    compiled, digest, *kinds = said(tmp_path)
    loaded, again, *_ = said(tmp_path)
    assert (compiled, loaded) == ("3", "0")
    assert digest == again
    plain = {"HostLoad", "Compute", "CountMicroBatch", "DrawKey", "AccumulateGradient", "AccumulateAnchor"}
    assert plain | {"AllReduce", "ReplicaCollective", "WeightUpdate", "HostStore"} <= set(kinds)
    assert set(kinds) <= {cls.__name__ for cls in INSTRUCTIONS}
