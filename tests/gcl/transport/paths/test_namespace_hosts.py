"""Collectives over several hosts: real ssh and links, in network namespaces."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.helpers.mpi_jobs import MPICH, PROGRAMS, ROOT
from tests.helpers.network_namespaces import Hosts, hosts, needs_hosts
from tests.helpers.warm_processes import WITH_GCL, warm_python

#: Counts the bytes that each host sends in each collective, and compares results with one process.
PROGRAM = PROGRAMS / "gcl/transport/namespace_hosts.py"


def run(where: Hosts, folder: Path, per_host: int, local: int) -> list[dict[str, dict[str, int]]]:
    """The counts of the first rank of each host."""
    results = folder / "counted"
    size = per_host * len(where.names)
    command = [MPICH.mpirun, "-hosts", ",".join(where.names), "-ppn", per_host, "-n", size]
    environ: Mapping[str, str] = {
        **os.environ,
        "HYDRA_LAUNCHER_EXEC": str(where.ssh),
        "UCX_TLS": "tcp,self",  # otherwise UCX detects that the hosts are one machine, and shares memory
        "PYTHONPATH": str(ROOT),
        "OMP_NUM_THREADS": "1",
    }
    argv = where.command(0, [*command, *warm_python(*WITH_GCL), PROGRAM, per_host, local, results])
    ended = subprocess.run(argv, capture_output=True, text=True, env=environ, timeout=200, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return [json.loads((folder / f"counted.{rank}").read_text()) for rank in range(0, size, per_host)]


def expected(host_count: int, replicas: int, host: int) -> dict[str, dict[str, float]]:
    """Bytes that ``host`` must send, with ``replicas`` replicas on each of the hosts.

    S is a tensor of one replica; the all-gather's are a quarter of it. Groups across hosts are as many as a host has
    replicas.
    """
    tensor, others = 8_000_000, host_count - 1
    shared = others / host_count
    root = others * tensor if host == 0 else 0
    return {
        "all": {
            "all_reduce": 2 * shared * tensor,
            "reduce_scatter": shared * tensor,
            "all_gather": replicas * others * tensor / 4,
            "broadcast": root,
            "all_to_all": replicas * shared * tensor,
        },
        "inside": dict.fromkeys(("all_reduce", "reduce_scatter", "all_gather", "broadcast", "all_to_all"), 0),
        "across": {
            "all_reduce": 2 * replicas * shared * tensor,
            "reduce_scatter": replicas * shared * tensor,
            "all_gather": replicas * others * tensor / 4,
            "broadcast": replicas * root,
            "all_to_all": replicas * shared * tensor,
        },
    }


@needs_hosts
@pytest.mark.parametrize(("count", "per_host", "local"), [(2, 2, 1), (4, 1, 1)])
def test_a_byte_crosses_a_link_of_1_gbit_as_rarely_as_it_can(
    count: int, per_host: int, local: int, tmp_path: Path
) -> None:
    with hosts(count, tmp_path) as where:
        where.limit("1gbit")
        counted = run(where, tmp_path, per_host, local)
    for host, by_group in enumerate(counted):
        for group, least in expected(count, per_host * local, host).items():
            for collective, nbytes in least.items():
                measured = by_group[group][collective]
                # the rest are barriers, and acknowledgements of received data
                assert nbytes <= measured <= 1.05 * nbytes + 100_000, (host, group, collective, measured, nbytes)


#: Every instance prints its pid, then reduces until it gets an error.
ENDLESS = PROGRAMS / "gcl/transport/endless_collectives.py"


@needs_hosts
def test_a_killed_instance_ends_the_job_on_all_hosts(tmp_path: Path) -> None:
    with hosts(2, tmp_path) as where:
        launcher = Path(sys.executable).parent / "poprun-py"
        options = ["--host", ",".join(where.names), "--num-instances", 4, "--num-replicas", 4]
        argv = where.command(0, [launcher, *options, *warm_python(*WITH_GCL), ENDLESS])
        environ = {"HYDRA_LAUNCHER_EXEC": str(where.ssh), "UCX_TLS": "tcp,self,posix", "PYTHONPATH": str(ROOT)}
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        job = subprocess.Popen(argv, text=True, env=os.environ | environ, **pipes)
        assert job.stdout is not None
        pids: dict[int, int] = {}
        for line in job.stdout:
            if match := re.search(r"pid=(\d+) of=(\d)", line):
                pids[int(match[2])] = int(match[1])
            if len(pids) == 4:
                break
        time.sleep(0.5)
        os.kill(pids[3], signal.SIGKILL)
        said, _ = job.communicate(timeout=250)
        # instances that noticed before the launcher ended them
        for heard in re.findall(r"heard (.*)", said):
            assert "replica 3 (rank 3)" in heard or "which has left" in heard, said
        assert job.returncode == 128 + signal.SIGKILL
        assert not [pid for pid in pids.values() if Path(f"/proc/{pid}").exists()]
