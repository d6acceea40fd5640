"""Jobs under srun: with a stand-in that records its arguments and starts the processes, and with a real Slurm."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
from pathlib import Path

import pytest

from tests.helpers.mpi_jobs import PROGRAMS


@pytest.fixture
def slurm(launch, tmp_path):
    """``slurm(*arguments)`` starts poprun-py in an allocation of two hosts; ``record`` has the arguments of srun."""
    folder = tmp_path / "slurm"
    folder.mkdir()
    record = folder / "record"
    program = PROGRAMS / "poprun_py/recording_srun.py"
    (folder / "srun").write_text(f'#!/bin/sh\nexec "{sys.executable}" "{program}" "{record}" "$@"\n')
    (folder / "srun").chmod(0o755)

    def start(*arguments, **environment):
        path = f"{folder}{os.pathsep}{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        allocation = {"SLURM_JOB_ID": "17", "SLURM_JOB_NODELIST": "node[1-2]", "PATH": path}
        return launch(*arguments, **allocation | environment)

    start.record = record
    return start


def test_an_allocation_runs_through_srun(slurm, tmp_path):
    show = 'echo "$POPDIST_REPLICA_INDEX_OFFSET $POPDIST_LOCAL_INSTANCE_INDEX $PWD $SLURM_PROCID"'
    job = slurm("--num-instances", "4", "--num-replicas", "8", "sh", "-c", show)
    code, out, err = job.finish()
    assert (code, err) == (0, b"")
    expected = [f"[1,{rank}]<stdout>:{2 * rank} {rank % 2} {tmp_path} {rank}" for rank in range(4)]
    assert sorted(out.decode().splitlines()) == expected
    told = json.loads(slurm.record.read_text())
    for word in (
        "--nodes=2",
        "--ntasks=4",
        "--ntasks-per-node=2",
        "--nodelist=node1,node2",
        "--mpi=pmi2",
        "--overlap",
    ):
        assert word in told["options"]
    assert told["key"] not in " ".join(told["options"] + told["command"])
    job.assert_nothing_left()


def test_a_failure_under_srun_is_named_with_its_host(slurm):
    job = slurm("--num-instances", "2", "sh", "-c", "test $SLURM_PROCID = 1 && exit 9; sleep 60")
    code, _, err = job.finish()
    assert code == 9
    assert b"on node2, replica 1) exited with code 9" in err
    job.assert_nothing_left()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_nothing_outlives_the_launcher_under_srun(slurm, number):
    job = slurm("--num-instances", "2", "sh", "-c", "echo ready; sleep 60")
    job.read_until("ready", 2)
    job.process.send_signal(number)
    job.process.wait(30)
    job.assert_nothing_left()


def test_a_single_host_that_is_this_one_needs_no_srun(slurm):
    job = slurm("echo", "here", SLURM_JOB_NODELIST=os.uname().nodename)
    assert job.finish()[:2] == (0, b"[1,0]<stdout>:here\n")
    assert not slurm.record.exists()


@pytest.mark.skipif(
    not (os.environ.get("SLURM_JOB_ID") and shutil.which("srun")), reason="not inside an allocation of a real Slurm"
)
def test_a_real_allocation_exchanges_values(launch):
    gather = (sys.executable, str(PROGRAMS / "poprun_py/mpi/host_collectives.py"), "gather")
    job = launch("--mpi", "mpich", "--backend", "slurm", "--num-instances", "2", *gather)
    code, out, err = job.finish()
    assert code == 0, err
    assert out.count(b"[ 0 10]") == 2
