"""Processes: groups, collectives, Lamb and batch normalisation over real instances, bitwise as in one process."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from tests.helpers.mpi_jobs import PROGRAMS, run_job
from tests.helpers.network_namespaces import hosts, needs_hosts
from tests.helpers.warm_processes import EMULATOR
from tests.poprun_py.helpers.several_hosts import Job

PROGRAM = PROGRAMS / "ipu_emu/instances.py"


def said_by(counts: tuple[int, ...], folder: Path) -> str:
    """The output of every instance of a job; ``counts`` are their numbers of local replicas."""
    folder.mkdir()
    job = run_job(PROGRAM, folder, counts=counts, modules=EMULATOR).succeeded()
    lines = {line for out in job.out for line in out.splitlines()}
    assert len(lines) == 1, lines
    return lines.pop()


def test_real_instances_give_the_bits_of_one(tmp_path: Path) -> None:
    layouts = ((8,), (4, 4), (2, 2, 2, 2))
    said = {counts: said_by(counts, tmp_path / "-".join(map(str, counts))) for counts in layouts}
    assert len(set(said.values())) == 1, said
    assert said[8,].endswith("[42.] [(4, 2), True]")


@needs_hosts
def test_two_hosts_which_reduce_during_the_backward_pass_give_the_bits_of_one(tmp_path: Path) -> None:
    expected = said_by((8,), tmp_path / "one")
    with hosts(2, tmp_path) as where:
        layout = ["--host", ",".join(where.names), "--num-instances", "4", "--num-replicas", "8"]
        job = Job(where, [*layout, sys.executable, str(PROGRAM)], {"UCX_TLS": "tcp,self,posix"})
        code, out, err = job.finish(250)
    assert code == 0, err
    said = [re.sub(r"^\[.*?\]<stdout>:", "", line) for line in out.splitlines()]
    assert said == [expected] * 4
