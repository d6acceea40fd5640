"""Every collective for every pair of operator, dtype, group, transport, size and number of replicas."""

import pickle
from pathlib import Path

import pytest

from tests.gcl.helpers.checks import check_collectives
from tests.gcl.helpers.pairwise_cases import REPLICAS, Case, cases
from tests.gcl.helpers.threads import on_threads
from tests.helpers.mpi_jobs import PROGRAMS, run_job

CASES = cases()
#: Tensors lie in the segment on every other rank.
PROGRAM = PROGRAMS / "gcl/collectives/pairwise_cases.py"


def sized(cases: list[Case], full: bool) -> list[Case]:
    """The cases; without --full, large tensors are a tenth as large, still several chunks and pages per rank."""
    return [case if full else case._replace(size=min(case.size, 100_003)) for case in cases]


def work(case: Case) -> None:
    counts = (case.replicas,) if case.replicas < 3 else (1, case.replicas - 1)
    on_threads(counts, lambda c: check_collectives(c, case.size, case.dtype, case.op, "mixed"), group=case.group)


@pytest.mark.parametrize("replicas", REPLICAS)
def test_among_threads(replicas: int, full: bool) -> None:
    for case in sized(CASES, full):
        if (case.transport, case.replicas) == ("inprocess", replicas):
            work(case)


@pytest.mark.parametrize("replicas", REPLICAS[1:])
def test_between_processes(replicas: int, full: bool, tmp_path: Path) -> None:
    own = [case for case in sized(CASES, full) if case.transport != "inprocess" and case.replicas == replicas]
    job = run_job(PROGRAM, tmp_path, pickle.dumps(own).hex(), counts=(1, replicas - 1))
    assert job.succeeded().out == ["fine\n"] * 2
