"""Many instances: 64 of them on however few cores."""

from __future__ import annotations

import sys


def test_64_instances_exchange_and_end(launch):
    """One all-reduce of host values: each adds its index."""
    script = "import popdist_py as p; p.init(); print('sum', int(p.allReduce(p.getInstanceIndex())))"
    job = launch("--num-instances", "64", sys.executable, "-c", script, OMP_NUM_THREADS="1")
    code, out, err = job.finish(timeout=200)
    assert code == 0, err
    lines = sorted(out.decode().splitlines())
    assert lines == sorted(f"[1,{rank}]<stdout>:sum {sum(range(64))}" for rank in range(64))
    job.assert_nothing_left()
