"""Prepared calls: repeated calls are prepared once, and do not keep their tensors alive."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import numpy as np
import pytest

from gcl import Communicator
from tests.gcl.helpers.threads import on_threads
from tests.helpers.mpi_jobs import PROGRAMS, run_job

__all__ = ["kept_after"]

PROGRAM = PROGRAMS / "gcl/core/prepared_calls.py"


def kept_after(communicator: Communicator) -> int:
    """The number of prepared calls whose results were deleted, after every collective from each kind of memory."""
    size, local = communicator.group.size, communicator.local_replicas
    calls = {
        communicator.all_reduce: (600,),
        communicator.reduce_scatter: (600 // size,),
        communicator.all_gather: (size, 600),
        communicator.broadcast: (600,),
        communicator.all_to_all: (size, 600 // size),
    }
    private, shared = np.zeros((local, 600), np.float32), communicator.empty(600)
    prepared = communicator._dispatch.path.prepared
    before = len(prepared)
    for (call, shape), x in product(calls.items(), (private, shared)):
        operand = x.reshape(local, size, -1) if call == communicator.all_to_all else x
        results = [np.zeros((local, *shape), np.float32) for _ in range(3)]
        results += [communicator.empty(shape) for _ in range(3)]
        for out in results:
            call(operand, out=out)
    del results, out
    return len(prepared) - before


@pytest.mark.parametrize("counts", [(1,), (1, 1), (2, 1)], ids=str)
def test_the_results_of_threads_go(counts: tuple[int, ...]) -> None:
    assert on_threads(counts, kept_after) == [0] * len(counts)


@pytest.mark.timeout(180)
@pytest.mark.parametrize("hosts", ["aa", "ab", "aabb"])
def test_the_results_of_processes_go(hosts: str, tmp_path: Path) -> None:
    ended = run_job(PROGRAM, tmp_path, hosts, counts=(1,) * len(hosts)).succeeded()
    assert ended.out == ["0\n"] * len(hosts)
