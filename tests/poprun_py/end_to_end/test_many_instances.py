"""Many instances: far more instances than cores."""

from __future__ import annotations

import pytest

from tests.helpers.mpi_jobs import PROGRAMS
from tests.helpers.warm_processes import WITH_GCL, warm_python


@pytest.mark.parametrize("count", [20, pytest.param(64, marks=pytest.mark.full)])
def test_many_instances_exchange_and_end(count, launch):
    """One all-reduce of host values: each adds its index."""
    script = str(PROGRAMS / "poprun_py/mpi/host_collectives.py")
    python = warm_python(*WITH_GCL)
    job = launch("--num-instances", str(count), *python, script, "sum", OMP_NUM_THREADS="1")
    code, out, err = job.finish(timeout=200)
    assert code == 0, err
    lines = sorted(out.decode().splitlines())
    assert lines == sorted(f"[1,{rank}]<stdout>:sum {sum(range(count))}" for rank in range(count))
    job.assert_nothing_left()
