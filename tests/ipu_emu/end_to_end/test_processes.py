"""Processes: groups, collectives, Lamb and batch normalisation over real instances, bitwise as in one process."""

from __future__ import annotations

from pathlib import Path

from tests.helpers.mpi_jobs import PROGRAMS, run_job
from tests.helpers.warm_processes import EMULATOR

PROGRAM = PROGRAMS / "ipu_emu/instances.py"


def test_real_instances_give_the_bits_of_one(tmp_path: Path) -> None:
    said = {}
    for counts in ((8,), (4, 4), (2, 2, 2, 2)):
        folder = tmp_path / "-".join(map(str, counts))
        folder.mkdir()
        job = run_job(PROGRAM, folder, counts=counts, modules=EMULATOR).succeeded()
        lines = {line for out in job.out for line in out.splitlines()}
        assert len(lines) == 1, lines
        said[counts] = lines.pop()
    assert len(set(said.values())) == 1, said
    assert said[8,].endswith("[42.] [(4, 2), True]")
