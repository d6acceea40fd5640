"""Ranks that are processes of one host (what is in their memory: test_processes)."""

import json
from pathlib import Path

from tests.helpers.mpi_jobs import PROGRAMS, run_job


def test_processes_see_each_others_memory_and_each_others_end(tmp_path: Path) -> None:
    program = PROGRAMS / "gcl/transport/shared_memory.py"
    ended = run_job(program, tmp_path, counts=(1, 1, 1))
    assert ended.out[0], ended.err
    assert ended.out[0] == ended.out[1]
    texts, values, alive, cores, fault, after = json.loads(ended.out[0])
    assert texts == ["rank 0", "rank 1", "rank 2"]
    assert values == [0.0, 1.0, 2.0]
    assert alive == [True, True, True]
    assert cores >= 1
    assert fault.startswith("rank 1 cannot map its peers' memory: 65536 MiB of address space")
    assert fault.endswith("use transport='mpi'")
    assert after is False


def test_communicators_that_were_closed_hold_no_descriptors(tmp_path: Path) -> None:
    """Also while the program still holds them, and their tensors."""
    program = PROGRAMS / "gcl/transport/closed_communicators.py"
    assert run_job(program, tmp_path).succeeded().out == ["fine\n"] * 2
