"""Ranks of several hosts, simulated by names: gcl within a host, gloo between them, and the same bits."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed; scripts/test --with-torch adds it")

import torch.distributed as dist  # noqa: E402

from ipu_emu.trace import read_run  # noqa: E402
from ipu_emu.trace.timelines.flows import flows  # noqa: E402
from popdist_py.trace import Kind  # noqa: E402
from tests.gcl.helpers.torch_ranks import run_ranks  # noqa: E402
from tests.gcl.torch.test_collectives import moves, same  # noqa: E402
from tests.helpers.mpi_jobs import PROGRAMS, ROOT, every_mpi  # noqa: E402
from tests.helpers.network_namespaces import hosts, needs_hosts  # noqa: E402
from tests.helpers.warm_processes import WITH_PYTORCH, warm_python  # noqa: E402

pytestmark = pytest.mark.torch


def sums():
    """Sums and means of numbers whose sum depends on the order in which they are added."""
    generator = torch.Generator().manual_seed(dist.get_rank())
    arrays = []
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        for size in (1, 1001, 50_000):
            x = (torch.randn(size, generator=generator) * 100).to(dtype)
            y = x.clone()
            dist.all_reduce(x)
            dist.all_reduce(y, dist.ReduceOp.AVG)
            arrays += [x.view(torch.uint8).numpy(), y.view(torch.uint8).numpy()]
    return arrays


def messages():
    """Tags, any source, and a barrier."""
    rank = dist.get_rank()
    dist.barrier()
    if rank == 0:
        x = torch.zeros(3, dist.get_world_size() - 1)
        sources = sorted(dist.recv(column, tag=4) for column in x.unbind(1))
        return sources, x.sum().item()
    dist.send(torch.full((3,), float(rank)), 0, tag=4)
    return None


def empty_messages():
    """Messages without elements, from a given and from any source."""
    empty = torch.empty(0)
    if dist.get_rank():
        dist.send(empty, 0)
        dist.send(empty, 0)
        return []
    ranks = dist.get_world_size()
    return [dist.recv(empty, rank) for rank in range(1, ranks)] + sorted(dist.recv(empty) for _ in range(1, ranks))


def deferred_receive():
    """Whether the future of a receive has a result although nobody waits for the receive itself."""
    rank, ranks, x = dist.get_rank(), dist.get_world_size(), torch.zeros(3)
    received = dist.irecv(x, (rank - 1) % ranks, tag=5).get_future()
    dist.send(torch.full((3,), float(rank)), (rank + 1) % ranks, tag=5)
    received.wait()
    return x.tolist() == [(rank - 1.0) % ranks] * 3


@pytest.mark.parametrize("names", [("a", "a", "b", "b"), ("a", "b", "c", "d"), ("a", "b", "b", "b")])
def test_sums_have_the_bits_of_one_host(names):
    alone = run_ranks(4, sums)[0]
    for arrays in run_ranks(4, sums, hosts=names):
        assert all(
            same(torch.from_numpy(array), torch.from_numpy(other)) for array, other in zip(arrays, alone, strict=True)
        )


def test_copies_and_messages_arrive():
    assert run_ranks(3, moves, hosts=("a", "a", "b")) == [[]] * 3
    assert run_ranks(3, messages, hosts=("a", "b", "b"))[0] == ([1, 2], 9.0)


def test_empty_messages_arrive_between_hosts():
    assert run_ranks(3, empty_messages, hosts=("a", "b", "b"), timeout=10)[0] == [1, 2, 1, 2]


def test_a_receive_between_hosts_that_nobody_waits_for_completes():
    assert run_ranks(3, deferred_receive, hosts=("a", "b", "b")) == [True] * 3


@pytest.mark.parametrize("program", [messages, deferred_receive])
def test_messages_between_hosts_are_traced_at_both_ends(program, tmp_path, monkeypatch):
    monkeypatch.setenv("IPU_EMU_TRACE", str(tmp_path / "run"))
    run_ranks(3, program, hosts=("a", "b", "b"))
    run = read_run(tmp_path / "run")
    transfers = flows(run)
    assert all(flow.is_possible and flow.sender is not flow.receiver for flow in transfers)
    for kind in (Kind.FLOW_OUT, Kind.FLOW_IN):  # every flow has both ends
        assert sum((process.records["kind"] == kind).sum() for process in run.processes) == len(transfers)
    assert len(transfers) >= 2


def joined():
    """The class of this rank's group, and a sum."""
    x = torch.ones(3)
    dist.all_reduce(x)
    return type(dist.group.WORLD._group).__name__, x.tolist()


def test_containers_of_one_host_do_not_share_memory(monkeypatch):
    """The same process id belongs to different processes in them."""
    assert run_ranks(2, joined) == [("HostGroup", [2.0] * 3)] * 2
    monkeypatch.setattr("gcl.torch.registration.process_namespace", lambda: str(os.getpid()))
    assert run_ranks(2, joined) == [("SeveralHosts", [2.0] * 3)] * 2


#: Prints the transport of each rank, and its errors.
PROGRAM = PROGRAMS / "gcl" / "torch_hosts.py"


def transports(output):
    """The printed lines of each rank."""
    return sorted(re.findall(r"rank (\d) of 4 by SeveralHosts (\w+): (.*)", output))


@pytest.mark.parametrize("launcher", ["mpirun", "poprun-py"])
def test_a_job_that_has_mpi_uses_it_between_hosts(launcher):
    options = {"mpirun": ["-n", "4"], "poprun-py": ["--num-instances", "4", "--num-replicas", "4"]}[launcher]
    command = [str(Path(sys.executable).parent / launcher), *options]
    command += [*warm_python(*WITH_PYTORCH), str(PROGRAM), "2"]
    environ = os.environ | {"PYTHONPATH": str(ROOT)}
    ended = subprocess.run(command, capture_output=True, text=True, timeout=100, env=environ, cwd=ROOT, check=False)
    assert ended.returncode == 0, ended.stderr
    assert transports(ended.stdout) == [(str(rank), "mpi", "[]") for rank in range(4)], ended.stdout


@needs_hosts
@every_mpi
def test_hosts_of_a_poprun_py_job_are_joined_by_its_mpi(tmp_path, mpi):
    with hosts(2, tmp_path) as where:
        launcher = Path(sys.executable).parent / "poprun-py"
        options = ["--mpi", mpi.mpirun, "--host", ",".join(where.names), "--num-instances", 4, "--num-replicas", 4]
        options += ["--trace", tmp_path / "run"]
        argv = where.command(0, [launcher, *options, *warm_python(*WITH_PYTORCH), PROGRAM, 0])
        environ = {"POPRUN_PY_SSH": str(where.ssh), "UCX_TLS": "tcp,self,posix", "PYTHONPATH": str(ROOT)}
        ended = subprocess.run(
            argv, capture_output=True, text=True, env=os.environ | environ, timeout=250, check=False
        )
    assert transports(ended.stdout) == [(str(rank), "mpi", "[]") for rank in range(4)], ended.stdout + ended.stderr
    transfers = flows(read_run(tmp_path / "run"))
    assert any(flow.sender.host != flow.receiver.host for flow in transfers)
    assert all(flow.is_possible for flow in transfers)


@needs_hosts
def test_hosts_of_a_torchrun_job_are_joined_by_gloo(tmp_path):
    with hosts(2, tmp_path) as where:
        jobs = []
        for host, name in enumerate(where.names):
            torchrun = [
                *warm_python(*WITH_PYTORCH),
                "-m",
                "torch.distributed.run",
                "--nnodes",
                2,
                "--nproc-per-node",
                2,
            ]
            meeting = ["--node-rank", host, "--master-addr", where.names[0], "--master-port", 29500]
            program = ["--no-python", *warm_python(*WITH_PYTORCH), PROGRAM, 0]
            argv = where.command(host, [*torchrun, *meeting, "--local-addr", name, *program])
            environ = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
            pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
            jobs.append(subprocess.Popen(argv, text=True, env=environ, **pipes))
        said = "".join(job.communicate(timeout=250)[0] for job in jobs)
    assert transports(said) == [(str(rank), "gloo", "[]") for rank in range(4)], said
