"""Collectives over several hosts: real ssh, real links, on network namespaces."""

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
from textwrap import dedent

import pytest

from tests.helpers.mpi_jobs import MPICH, ROOT
from tests.helpers.network_namespaces import Hosts, hosts, needs_hosts

#: Counts what each host puts on its link in each collective, and compares results with one process.
PROGRAM = """
    import json, os, sys
    import numpy as np
    per_host, local = map(int, sys.argv[1:3])
    rank, size = int(os.environ["PMI_RANK"]), int(os.environ["PMI_SIZE"])
    names = ("NUM_TOTAL_REPLICAS", "NUM_LOCAL_REPLICAS", "REPLICA_INDEX_OFFSET", "LOCAL_INSTANCE_INDEX")
    values = (size * local, local, rank * local, rank)
    os.environ.update({f"POPDIST_{name}": str(value) for name, value in zip(names, values)})
    import gcl, popdist_py
    from tests.gcl.helpers.bitwise_comparison import check_dtypes

    def sent():
        with open("/proc/net/dev") as file:
            lines = [line.split() for line in file if line.strip().startswith("v")]
        return sum(int(words[9]) for words in lines)

    def count(communicator, collective):
        tensor = communicator.empty(2_000_000 if collective != "all_gather" else 500_000)
        if collective == "all_to_all":
            tensor = tensor.reshape(local, communicator.group.size, -1)
        communicator.barrier()
        before = sent()
        communicator.barrier()
        getattr(communicator, collective)(tensor)
        communicator.barrier()
        return sent() - before

    popdist_py.init()
    total, found = size * local, {}
    groups = {
        "all": gcl.Group.all(total),
        "inside": gcl.Group.consecutive(total, per_host * local),
        "across": gcl.Group.orthogonal(total, size // per_host),
    }
    for name, group in groups.items():
        place = {"local_replicas": local, "global_offset": rank * local, "global_replicas": total}
        with gcl.connect(**place, group=group, timeout=250) as communicator:
            assert communicator.transport == ("hosts" if per_host > 1 else "mpi")
            check_dtypes(communicator, (7, 1000, 100_003) if name == "all" else (7, 1000))
            collectives = ["all_reduce", "reduce_scatter", "all_gather", "broadcast", "all_to_all"]
            found[name] = {collective: count(communicator, collective) for collective in collectives}
    with open(f"{sys.argv[3]}.{rank}", "w") as file:
        json.dump(found, file)
"""


def run(where: Hosts, folder: Path, per_host: int, local: int) -> list[dict[str, dict[str, int]]]:
    """What the first rank of each host counted."""
    script, results = folder / "program.py", folder / "counted"
    script.write_text(dedent(PROGRAM))
    size = per_host * len(where.names)
    command = [MPICH.mpirun, "-hosts", ",".join(where.names), "-ppn", per_host, "-n", size]
    environ: Mapping[str, str] = {
        **os.environ,
        "HYDRA_LAUNCHER_EXEC": str(where.ssh),
        "UCX_TLS": "tcp,self",  # else UCX finds out that the hosts are one machine, and shares memory
        "PYTHONPATH": str(ROOT),
        "OMP_NUM_THREADS": "1",
    }
    argv = where.command(0, [*command, sys.executable, script, per_host, local, results])
    ended = subprocess.run(argv, capture_output=True, text=True, env=environ, timeout=200, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return [json.loads((folder / f"counted.{rank}").read_text()) for rank in range(0, size, per_host)]


def expected(host_count: int, replicas: int, host: int) -> dict[str, dict[str, float]]:
    """Bytes that ``host`` must send, with so many replicas on each of the hosts.

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
    for host, found in enumerate(counted):
        for group, least in expected(count, per_host * local, host).items():
            for collective, nbytes in least.items():
                measured = found[group][collective]
                # acknowledgements of what comes in, and barriers, are the rest
                assert nbytes <= measured <= 1.05 * nbytes + 100_000, (host, group, collective, measured, nbytes)


#: Every instance tells its pid, then reduces until it hears of a fault.
ENDLESS = """
    import os, time
    import gcl, popdist_py
    popdist_py.init()
    communicator = gcl.connect(
        local_replicas=popdist_py.getNumLocalReplicas(),
        global_offset=popdist_py.getReplicaIndexOffset(),
        global_replicas=popdist_py.getNumTotalReplicas(),
    )
    x = communicator.empty(500_000)
    print(f"pid={os.getpid()} of={popdist_py.getInstanceIndex()} ", flush=True)
    try:
        while True:
            communicator.all_reduce(x, out=x)
    except gcl.PeerLost as error:
        print(f"heard {error}", flush=True)
        time.sleep(60)
"""


@needs_hosts
def test_a_killed_instance_ends_the_job_on_all_hosts(tmp_path: Path) -> None:
    with hosts(2, tmp_path) as where:
        launcher = Path(sys.executable).parent / "poprun-py"
        options = ["--host", ",".join(where.names), "--num-instances", 4, "--num-replicas", 4]
        argv = where.command(0, [launcher, *options, sys.executable, "-c", dedent(ENDLESS)])
        environ = {"HYDRA_LAUNCHER_EXEC": str(where.ssh), "UCX_TLS": "tcp,self,posix", "PYTHONPATH": str(ROOT)}
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        job = subprocess.Popen(argv, text=True, env=os.environ | environ, **pipes)
        assert job.stdout is not None
        pids: dict[int, int] = {}
        for line in job.stdout:
            if found := re.search(r"pid=(\d+) of=(\d)", line):
                pids[int(found[2])] = int(found[1])
            if len(pids) == 4:
                break
        time.sleep(0.5)
        os.kill(pids[3], signal.SIGKILL)
        said, _ = job.communicate(timeout=250)
        # those who were quicker than the launcher, which ends them, heard it themselves
        for heard in re.findall(r"heard (.*)", said):
            assert "replica 3 (rank 3)" in heard or "which has left" in heard, said
        assert job.returncode == 128 + signal.SIGKILL
        assert not [pid for pid in pids.values() if Path(f"/proc/{pid}").exists()]
