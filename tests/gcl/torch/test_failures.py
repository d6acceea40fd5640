"""Failures in a PyTorch job: if a rank dies, leaves, raises or makes another call, every other rank soon raises."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed; scripts/test --with-torch adds it")

import torch.distributed as dist  # noqa: E402
from torch.nn.parallel import DistributedDataParallel  # noqa: E402

import gcl.torch  # noqa: E402
from tests.gcl.helpers.torch_ranks import run_ranks  # noqa: E402
from tests.helpers.mpi_jobs import PROGRAMS, ROOT  # noqa: E402
from tests.helpers.warm_processes import WITH_PYTORCH, warm_python  # noqa: E402

pytestmark = pytest.mark.torch

#: Seconds after which every rank has its error.
SOON = 5.0


def failing(how, asynchronous):
    """The errors of ranks 0 and 2 about rank 1, and the seconds until they were raised."""
    dist.barrier()
    x = torch.ones(200_000)
    dist.all_reduce(x)
    since = time.monotonic()
    try:
        if dist.get_rank() != 1:
            work = dist.all_reduce(x, async_op=asynchronous)
            if asynchronous:
                work.wait()
        elif how == "dies":
            os.kill(os.getpid(), signal.SIGKILL)
        elif how == "leaves":
            dist.destroy_process_group()
            return "", 0.0
        elif how == "calls another":
            dist.broadcast(x, 0)
        else:
            dist.all_reduce(torch.eye(3).to_sparse())
    except (dist.DistBackendError, ValueError) as error:
        return str(error), time.monotonic() - since
    return "no error", 0.0


@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize("how", ["dies", "leaves", "calls another", "is refused"])
def test_every_rank_soon_gets_the_error_of_another(how, asynchronous):
    first, second, third = run_ranks(3, failing, how, asynchronous, dead=(1,) if how == "dies" else ())
    for text, seconds in (first, third):
        assert seconds < SOON, text
        assert "rank 1" in text
        assert {
            "dies": "all_reduce(add, 200000 x float32) waits for rank 1, whose process has died",
            "leaves": "which has left",
            "calls another": f"called broadcast(root 0, 800000 x uint8 as 200000 x float32) at {__file__}:",
            "is refused": "whose call was refused: all_reduce of a sparse tensor",
        }[how] in text
    if how == "calls another":
        assert "called all_reduce(add, 200000 x float32) at" in second[0]


def deprecated():
    """Sizes that differ, in a function whose name PyTorch has deprecated, which FSDP still calls."""
    x, ranks = torch.ones(3 + dist.get_rank()), dist.get_world_size()
    try:
        dist.all_gather_into_tensor(torch.empty(ranks * x.numel()), x)
    except dist.DistBackendError as error:
        return str(error)
    return ""


def test_a_call_by_a_deprecated_name_is_found_in_the_program():
    for text in run_ranks(2, deprecated):
        assert re.search(rf"rank 1 called all_gather\([^)]*4 x float32\) at {re.escape(__file__)}:", text)


def receiving():
    """A receive from a rank that dies."""
    if dist.get_rank() == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        dist.recv(torch.empty(3), 1)
    except dist.DistBackendError as error:
        return str(error)
    return ""


def test_a_receive_from_a_dead_rank_ends():
    assert "rank 1, whose process has died" in run_ranks(2, receiving, dead=(1,))[0]


def forked():
    """A forked child of a rank is not a rank, and its parent continues."""
    x = torch.ones(3)
    dist.all_reduce(x)
    reading, writing = os.pipe()
    if (child := os.fork()) == 0:
        try:
            dist.all_reduce(x)
        except dist.DistBackendError as error:
            os.write(writing, str(error).encode())
        os._exit(0)
    os.waitpid(child, 0)
    dist.all_reduce(x)
    return os.read(reading, 1000).decode(), x[0].item()


def test_a_forked_child_is_no_rank():
    for said, value in run_ranks(2, forked):
        assert "this process was forked from a rank" in said
        assert value == 4.0


def aborted():
    """A call that would wait forever ends when another thread aborts the group."""
    from threading import Timer

    if dist.get_rank() == 1:
        time.sleep(1.5)
        return ""
    Timer(0.3, dist.group.WORLD.abort).start()
    try:
        dist.barrier()
    except dist.DistBackendError as error:
        return str(error)
    return "no error"


def test_abort_ends_a_call_that_waits():
    assert "aborted" in run_ranks(2, aborted)[0]


def training(hook):
    """The error of rank 0 in DDP's backward pass when rank 1 dies."""
    model = DistributedDataParallel(torch.nn.Linear(300, 300), bucket_cap_mb=0.1)
    if hook:
        model.register_comm_hook(None, hook)
    for step in range(3):
        if step == 2 and dist.get_rank() == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        try:
            model(torch.ones(2, 300)).sum().backward()
        except dist.DistBackendError as error:
            return str(error)
    return "no error"


@pytest.mark.parametrize("hook", [None, gcl.torch.ddp_hook, gcl.torch.fp16_hook], ids=["none", "ddp", "fp16"])
def test_a_backward_pass_raises_the_failure_of_another_rank(hook):
    assert "waits for rank 1, whose process has died" in run_ranks(2, training, hook, dead=(1,))[0]


TORCHRUN = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "--no-python"]
POPRUN_PY = [str(Path(sys.executable).parent / "poprun-py"), "--num-instances", "2", "--num-replicas", "2"]


@pytest.mark.parametrize(("launcher", "hook"), [("torchrun", "none"), ("poprun-py", "ddp_hook")])
def test_a_job_whose_rank_is_killed_ends_soon_and_leaves_no_resources(launcher, hook):
    program = PROGRAMS / "gcl" / "torch_killed_rank.py"
    python = warm_python(*WITH_PYTORCH)
    command = {"torchrun": [*python, *TORCHRUN], "poprun-py": POPRUN_PY}[launcher]
    ended = subprocess.run(
        [*command, *python, str(program), hook],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=ROOT,
        check=False,
    )
    assert ended.returncode != 0
    line = re.search(r"rank 0 heard after (\S+) s: (.*)", ended.stdout)
    assert line, ended.stdout + ended.stderr
    assert float(line[1]) < SOON, line[0]
    assert line[2].startswith("DistBackendError")
    assert "rank 1, whose process has died" in line[2]
    processes = re.findall(r"process (\d+)", ended.stdout)
    assert len(processes) == 2
    named = re.compile("|".join(rf"(?<![0-9a-f]){process}(?![0-9a-f])" for process in processes))
    assert not [name for name in os.listdir("/dev/shm") if named.search(name)]
