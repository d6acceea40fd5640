"""Collectives over several hosts: real ssh, real links, on network namespaces."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from textwrap import dedent

import pytest

from tests.jobs import MPICH, ROOT
from tests.netns import Hosts, hosts, needs_hosts

PROGRAM = """
    import hashlib, json, os, sys
    import numpy as np
    rank, size, local = int(os.environ["PMI_RANK"]), int(os.environ["PMI_SIZE"]), 2
    names = ("NUM_TOTAL_REPLICAS", "NUM_LOCAL_REPLICAS", "REPLICA_INDEX_OFFSET", "LOCAL_INSTANCE_INDEX")
    values = (size * local, local, rank * local, rank)
    os.environ.update({f"POPDIST_{name}": str(value) for name, value in zip(names, values)})
    import popdist_py, gcl
    popdist_py.init()
    total, offset = size * local, rank * local
    communicator = gcl.connect(local_replicas=local, global_offset=offset, global_replicas=total)
    digest = hashlib.sha256()
    for dtype in ("float32", "float16"):
        for count in (0, 1, 7, 100_003):
            data = np.random.default_rng(count).standard_normal((total, count)).astype(dtype)
            x = communicator.empty(count, dtype)
            x[...] = data[offset : offset + local]
            for op in ("add", "mean", "max"):
                digest.update(communicator.all_reduce(x, op).tobytes())
            assert (communicator.all_gather(x) == data).all()
            assert (communicator.broadcast(x, total - 1) == data[-1]).all()
            shards = communicator.reduce_scatter(x, "max")
            padded = np.zeros(shards.shape[1] * total, dtype)
            padded[:count] = data.max(0) if count else 0
            assert (shards == padded.reshape(total, -1)[offset : offset + local]).all()
    print(json.dumps({"transport": communicator.transport, "digest": digest.hexdigest()}), flush=True)
    big = communicator.empty(int(sys.argv[1]))
    big[...] = 1
    communicator.barrier()
    if len(sys.argv) > 2:
        for turn in ("before", "after"):
            if rank == 0:
                print(turn, flush=True)
                sys.stdin.readline()
            communicator.barrier()
            if turn == "before":
                communicator.all_reduce(big, out=big)
                assert (big == total).all()
"""


def start(where: Hosts, folder: Path, per_host: int, *arguments: object) -> subprocess.Popen[str]:
    script = folder / "program.py"
    script.write_text(dedent(PROGRAM))
    command = [MPICH.mpirun, "-hosts", ",".join(where.names), "-ppn", per_host, "-n", per_host * len(where.names)]
    environ: Mapping[str, str] = {
        **os.environ,
        "HYDRA_LAUNCHER_EXEC": str(where.ssh),
        "UCX_TLS": "tcp,self",  # else UCX finds out that the hosts are one machine, and shares memory
        "PYTHONPATH": str(ROOT),
        "OMP_NUM_THREADS": "1",
    }
    argv = where.command(0, [*command, sys.executable, script, *arguments])
    pipe = subprocess.PIPE
    return subprocess.Popen(argv, stdin=pipe, stdout=pipe, stderr=pipe, text=True, env=environ)


def reports(output: str) -> list[dict[str, str]]:
    decoder, found, at = json.JSONDecoder(), [], output.find("{")
    while at >= 0:
        report, end = decoder.raw_decode(output, at)
        found.append(report)
        at = output.find("{", end)
    return found


@needs_hosts
@pytest.mark.timeout(180)
def test_two_hosts_give_the_bits_of_one(tmp_path: Path) -> None:
    digests = []
    for count, per_host in ((2, 2), (1, 4)):
        folder = tmp_path / str(count)
        folder.mkdir()
        with hosts(count, folder) as where:
            out, err = start(where, folder, per_host, 1).communicate(timeout=80)
        found = reports(out)
        assert len(found) == 4, out + err
        assert {report["transport"] for report in found} == {"hosts" if count > 1 else "shared_memory"}
        digests += [report["digest"] for report in found]
    assert len(set(digests)) == 1


@needs_hosts
@pytest.mark.timeout(180)
@pytest.mark.parametrize("count", [2, 4])
def test_a_byte_crosses_a_link_of_1_gbit_as_rarely_as_it_can(count: int, tmp_path: Path) -> None:
    elements = 4_000_000
    with hosts(count, tmp_path) as where:
        where.limit("1gbit")
        job = start(where, tmp_path, 1 if count == 4 else 2, elements, "count")
        assert job.stdout is not None
        assert job.stdin is not None
        sent = {}
        for line in job.stdout:
            if line.strip() in ("before", "after"):
                sent[line.strip()] = [where.sent_bytes(host) for host in range(count)]
                job.stdin.write("\n")
                job.stdin.flush()
        assert job.wait(60) == 0, job.stderr.read() if job.stderr else ""
    # each host's replicas are one subtree; every byte of the tensors of one replica counts once
    least = 2 * (count - 1) / count * elements * 4
    for before, after in zip(sent["before"], sent["after"], strict=True):
        assert least <= after - before <= 1.05 * least
